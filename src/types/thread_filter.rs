//! Selects the threads to profile, by Gecko's rules for filters.

use crate::types::ids::ProcessId;

/// The thread filters of a session, in lower case.
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

    /// Returns whether the filters select a thread with this name in this process.
    ///
    /// An empty list selects every thread, and so do `*` and the empty filter. Other filters select
    /// threads whose name contains them; `pid:N` selects all threads of process N.
    #[doc(alias = "ShouldProfileThread")]
    pub(crate) fn selects(&self, thread_name: &str, process: ProcessId) -> bool {
        self.lowercased.is_empty() || self.matches(thread_name, process).any(|matches| matches)
    }

    /// Returns for each filter whether it selects a thread with this name in this process.
    pub(crate) fn matches(
        &self,
        thread_name: &str,
        process: ProcessId,
    ) -> impl Iterator<Item = bool> {
        let name = thread_name.to_ascii_lowercase();
        self.lowercased.iter().map(move |filter| {
            filter == "*" || name.contains(filter.as_str()) || parse_pid(filter) == Some(process)
        })
    }

    /// Returns for each filter whether it selects another process than this one.
    pub(crate) fn names_other_process(&self, process: ProcessId) -> impl Iterator<Item = bool> {
        self.lowercased
            .iter()
            .map(move |filter| parse_pid(filter).is_some_and(|other| other != process))
    }

    /// Returns whether the filters select only other processes.
    #[doc(alias = "FiltersExcludePid")]
    pub(crate) fn excludes_process(&self, process: ProcessId) -> bool {
        !self.lowercased.is_empty()
            && self
                .lowercased
                .iter()
                .all(|filter| filter.starts_with("pid:") && parse_pid(filter) != Some(process))
    }
}

fn parse_pid(filter: &str) -> Option<ProcessId> {
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
    fn selects_follows_geckos_rules() {
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
    fn matches_and_names_other_process_answer_for_each_filter() {
        let own = ProcessId::from_number(42);
        let filters = ["WORK", "pid:42", "pid:43", "pid:4x", "main"].map(str::to_owned);
        let filter = ThreadFilter::new(&filters);
        let matches: Vec<_> = filter.matches("worker-1", own).collect();
        assert_eq!(matches, [true, true, false, false, false]);
        let others: Vec<_> = filter.names_other_process(own).collect();
        assert_eq!(others, [false, false, true, false, false]);
    }

    #[test]
    fn excludes_process_if_all_filters_name_other_processes() {
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
