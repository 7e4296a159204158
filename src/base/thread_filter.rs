//! Which threads are profiled: Gecko's rules for filters.

use crate::base::ProcessId;

/// A session's thread filters, lower-cased.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ThreadFilter {
    lowercased: Vec<String>,
}

impl ThreadFilter {
    pub(crate) fn new(filters: &[String]) -> Self {
        Self {
            lowercased: filters
                .iter()
                .map(|filter| filter.to_ascii_lowercase())
                .collect(),
        }
    }

    /// Whether a thread of this name in this process is selected: by an empty list, by `*`, by a filter that is part of
    /// its name (as the empty one is of every name), or by `pid:` and the process's id.
    #[doc(alias = "ShouldProfileThread")]
    pub(crate) fn selects(&self, thread_name: &str, process: ProcessId) -> bool {
        let name = thread_name.to_ascii_lowercase();
        self.lowercased.is_empty()
            || self.lowercased.iter().any(|filter| {
                filter == "*" || name.contains(filter.as_str()) || pid_of(filter) == Some(process)
            })
    }

    /// Whether the filters name processes only, and not this one.
    #[doc(alias = "FiltersExcludePid")]
    pub(crate) fn excludes_process(&self, process: ProcessId) -> bool {
        !self.lowercased.is_empty()
            && self
                .lowercased
                .iter()
                .all(|filter| filter.starts_with("pid:") && pid_of(filter) != Some(process))
    }
}

fn pid_of(filter: &str) -> Option<ProcessId> {
    let digits = filter.strip_prefix("pid:")?;
    digits
        .bytes()
        .all(|byte| byte.is_ascii_digit())
        .then(|| digits.parse().ok().map(ProcessId::from_number))?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_select_as_in_gecko() {
        let own = ProcessId::from_number(42);
        let selects = |filters: &[&str], name: &str| {
            let filters: Vec<String> = filters.iter().map(ToString::to_string).collect();
            ThreadFilter::new(&filters).selects(name, own)
        };
        assert!(selects(&[], "any"));
        assert!(selects(&["*"], "any"));
        assert!(selects(&[""], "any"));
        assert!(selects(&["WORK"], "worker-1"));
        assert!(selects(&["pid:42"], "any"));
        assert!(!selects(&["pid:43"], "any"));
        assert!(!selects(&["pid:4x"], "any"));
        assert!(!selects(&["Compositor"], "any"));
        assert!(selects(&["Compositor", "an"], "any"));
    }

    #[test]
    fn only_filters_of_other_processes_exclude_this_one() {
        let excludes = |filters: &[&str]| {
            let filters: Vec<String> = filters.iter().map(ToString::to_string).collect();
            ThreadFilter::new(&filters).excludes_process(ProcessId::from_number(42))
        };
        assert!(excludes(&["pid:1", "pid:2"]));
        assert!(!excludes(&["pid:1", "pid:42"]));
        assert!(!excludes(&["pid:1", "GeckoMain"]));
        assert!(!excludes(&[]));
    }
}
