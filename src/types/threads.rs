//! Which threads a session records, by Gecko's rules for filters, and which kinds of data of each.

use crate::types::features::Features;
use crate::types::newtypes::{ProcessId, ThreadId};

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

    /// Returns whether the filters select a thread with this name and id in this process.
    ///
    /// An empty list selects every thread, and so do `*` and the empty filter. Other filters select
    /// threads whose name contains them; `pid:N` selects all threads of process N, and `tid:N` the
    /// thread N. A filter after a `-` excludes the threads that it would select. A list that only
    /// excludes selects all other threads.
    #[doc(alias = "ShouldProfileThread")]
    pub(crate) fn selects(&self, thread_name: &str, tid: ThreadId, process: ProcessId) -> bool {
        let matches = self.matches(thread_name, tid, process);
        let (mut has_selecting, mut is_selected) = (false, false);
        for (filter, matches) in self.lowercased.iter().zip(matches) {
            if filter.starts_with('-') {
                if matches {
                    return false;
                }
            } else {
                has_selecting = true;
                is_selected |= matches;
            }
        }
        is_selected || !has_selecting
    }

    /// Returns whether a filter after a `-` excludes such a thread.
    pub(crate) fn excludes(&self, thread_name: &str, tid: ThreadId, process: ProcessId) -> bool {
        let mut matches = (self.lowercased.iter()).zip(self.matches(thread_name, tid, process));
        matches.any(|(filter, matches)| matches && filter.starts_with('-'))
    }

    /// Returns whether the filters select every thread, whatever its name.
    pub(crate) fn selects_all(&self) -> bool {
        let selects_all = |filter: &String| matches!(filter.as_str(), "" | "*");
        let excludes = |filter: &String| filter.starts_with('-');
        !self.lowercased.iter().any(excludes)
            && (self.lowercased.is_empty() || self.lowercased.iter().any(selects_all))
    }

    /// Returns for each filter whether it selects or excludes a thread with this name and id in this
    /// process.
    pub(crate) fn matches(
        &self,
        thread_name: &str,
        tid: ThreadId,
        process: ProcessId,
    ) -> impl Iterator<Item = bool> {
        let name = thread_name.to_ascii_lowercase();
        self.lowercased.iter().map(move |filter| {
            let (excludes, filter) = match filter.strip_prefix('-') {
                Some(filter) => (true, filter),
                None => (false, filter.as_str()),
            };
            // An empty filter selects every thread, but excludes none.
            let is_in_name = name.contains(filter) && !(excludes && filter.is_empty());
            filter == "*"
                || is_in_name
                || parse_pid(filter) == Some(process)
                || parse_tid(filter) == Some(tid)
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
    parse_number(filter, "pid:").map(ProcessId::from_number)
}

fn parse_tid(filter: &str) -> Option<ThreadId> {
    parse_number(filter, "tid:").map(ThreadId::from_number)
}

fn parse_number(filter: &str, prefix: &str) -> Option<i32> {
    let digits = filter.strip_prefix(prefix)?;
    let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| digits.parse().ok())?
}

/// A set of the kinds of data that a session records for a thread: CPU utilization, stacks and
/// markers.
///
/// A session records all three for threads that its filters select. For all other threads, the
/// features [`Features::CPU_ALL_THREADS`], [`Features::SAMPLING_ALL_THREADS`] and
/// [`Features::MARKERS_ALL_THREADS`] select one kind each. A profile always lists the main thread,
/// even without data. Idea: Gecko's type of the same name.
///
/// [`Features::CPU_ALL_THREADS`]: crate::types::features::Features::CPU_ALL_THREADS
/// [`Features::SAMPLING_ALL_THREADS`]: crate::types::features::Features::SAMPLING_ALL_THREADS
/// [`Features::MARKERS_ALL_THREADS`]: crate::types::features::Features::MARKERS_ALL_THREADS
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct ThreadProfilingFeatures(u8);

impl ThreadProfilingFeatures {
    /// Nothing.
    #[doc(alias = "NotProfiled")]
    pub const NOT_PROFILED: Self = Self(0);
    /// The thread's CPU time, per sample.
    #[doc(alias = "CPUUtilization")]
    pub const CPU_UTILIZATION: Self = Self(1);
    /// The thread's stacks.
    #[doc(alias = "Sampling")]
    pub const SAMPLING: Self = Self(2);
    /// The thread's markers.
    #[doc(alias = "Markers")]
    pub const MARKERS: Self = Self(4);
    /// All kinds; in a query, any of them.
    #[doc(alias = "Any")]
    pub const ANY: Self = Self(7);

    /// Returns whether the sets have a kind in common. The queries about threads use this test.
    #[doc(alias = "DoFeaturesIntersect")]
    pub const fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// Returns the union of the sets.
    #[doc(alias = "Combine")]
    pub const fn combined(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns what a session with these features records for a thread that its filters do or
    /// do not select.
    pub(crate) fn in_session(features: Features, is_selected: bool) -> Self {
        if is_selected {
            return Self::ANY;
        }
        let of_all = [
            (Features::CPU_ALL_THREADS, Self::CPU_UTILIZATION),
            (Features::SAMPLING_ALL_THREADS, Self::SAMPLING),
            (Features::MARKERS_ALL_THREADS, Self::MARKERS),
        ];
        let wanted = of_all
            .into_iter()
            .filter(|(of_all, _)| features.contains(*of_all));
        wanted.fold(Self::NOT_PROFILED, |all, (_, one)| all | one)
    }

    pub(crate) const fn to_bits(self) -> u8 {
        self.0
    }

    /// Restores a set from the result of [`Self::to_bits`]. Ignores other bits.
    pub(crate) const fn from_bits(bits: u8) -> Self {
        Self(bits & Self::ANY.0)
    }
}

impl std::ops::BitOr for ThreadProfilingFeatures {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        self.combined(other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selects_follows_geckos_rules() {
        let own = ProcessId::from_number(42);
        let selects = |filters: &[&str], name: &str| {
            let filters: Vec<String> = filters.iter().map(ToString::to_string).collect();
            ThreadFilter::new(&filters).selects(name, ThreadId::from_number(77), own)
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
    fn selects_by_id_and_excludes_after_a_dash() {
        let selects = |filters: &[&str], name: &str, tid: i32| {
            let filters: Vec<String> = filters.iter().map(ToString::to_string).collect();
            let (tid, own) = (ThreadId::from_number(tid), ProcessId::from_number(42));
            ThreadFilter::new(&filters).selects(name, tid, own)
        };
        assert!(selects(&["tid:77"], "any", 77) && !selects(&["tid:77"], "any", 78));
        assert!(!selects(&["tid:"], "any", 77));
        assert!(selects(&["-GC"], "worker", 77) && !selects(&["-GC"], "gc thread", 77));
        assert!(!selects(&["-tid:77", "*"], "any", 77) && selects(&["-tid:77"], "any", 78));
        assert!(selects(&["worker", "-worker 2"], "Worker 1", 77));
        assert!(!selects(&["worker", "-worker 2"], "Worker 2", 77));
        assert!(!selects(&["worker", "-worker 2"], "other", 77));
        assert!(selects(&["-"], "any", 77), "excludes nothing");
    }

    #[test]
    fn excludes_and_selects_all_tell_the_filters_apart() {
        let filter = |filters: &[&str]| {
            ThreadFilter::new(&filters.iter().map(ToString::to_string).collect::<Vec<_>>())
        };
        let (tid, own) = (ThreadId::from_number(77), ProcessId::from_number(42));
        assert!(filter(&["*", "-GC"]).excludes("gc thread", tid, own));
        assert!(!filter(&["*", "-GC"]).excludes("worker", tid, own));
        assert!(
            !filter(&["worker"]).excludes("gc thread", tid, own),
            "only not selected"
        );
        for all in [&[][..], &["*"], &["worker", ""]] {
            assert!(filter(all).selects_all(), "{all:?}");
        }
        for some in [&["worker"][..], &["-GC"], &["*", "-GC"], &["pid:42"]] {
            assert!(!filter(some).selects_all(), "{some:?}");
        }
    }

    #[test]
    fn matches_and_names_other_process_answer_for_each_filter() {
        let own = ProcessId::from_number(42);
        let filters = ["WORK", "pid:42", "pid:43", "pid:4x", "main"].map(str::to_owned);
        let filter = ThreadFilter::new(&filters);
        let matches: Vec<_> = filter
            .matches("worker-1", ThreadId::from_number(77), own)
            .collect();
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

    #[test]
    fn intersects_needs_a_common_kind() {
        use ThreadProfilingFeatures as Of;
        assert!(
            Of::ANY.intersects(Of::MARKERS) && (Of::SAMPLING | Of::MARKERS).intersects(Of::ANY)
        );
        assert!(
            !Of::SAMPLING.intersects(Of::CPU_UTILIZATION) && !Of::NOT_PROFILED.intersects(Of::ANY)
        );
        assert_eq!(Of::CPU_UTILIZATION | Of::SAMPLING | Of::MARKERS, Of::ANY);
    }

    #[test]
    fn unselected_threads_record_what_all_threads_features_ask_for() {
        use ThreadProfilingFeatures as Of;
        let of_all = [
            (Features::CPU_ALL_THREADS, Of::CPU_UTILIZATION),
            (Features::SAMPLING_ALL_THREADS, Of::SAMPLING),
            (Features::MARKERS_ALL_THREADS, Of::MARKERS),
        ];
        for combination in 0..8 {
            let chosen = || {
                (0..3)
                    .filter(|bit| combination >> bit & 1 != 0)
                    .map(|bit| of_all[bit])
            };
            let features = chosen().fold(Features::STACK_WALK, |all, (one, _)| all | one);
            let expected = chosen().fold(Of::NOT_PROFILED, |all, (_, one)| all | one);
            assert_eq!(Of::in_session(features, false), expected);
            assert_eq!(Of::in_session(features, true), Of::ANY);
            assert_eq!(Of::from_bits(expected.to_bits()), expected);
        }
    }
}
