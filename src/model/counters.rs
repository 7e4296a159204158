//! Values over time.

/// Name of the counter of a process's CPU time. The viewer shows a counter of this name by default,
/// and hides one named [`HIDDEN_PROCESS_CPU_NAME`].
pub(crate) const PROCESS_CPU_NAME: &str = "Process CPU";

/// Name of the same counter in profiles of Firefox.
const HIDDEN_PROCESS_CPU_NAME: &str = "processCPU";

/// Category of that counter.
pub(crate) const PROCESS_CPU_CATEGORY: &str = "CPU";

/// A counter of a process.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counter {
    /// Index in `ProfileModel::processes`.
    pub(crate) process: usize,
    pub(crate) name: String,
    /// Category of the counter, such as `Memory` or `CPU`: it selects the track in the viewer.
    pub(crate) category: String,
    pub(crate) description: String,
    /// How the application wants the counter to be shown; `None` if the category tells it.
    pub(crate) graph: Option<CounterGraph>,
    pub(crate) samples: Vec<CounterSample>,
}

/// How a counter of the application is shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct CounterGraph {
    /// Whether the graph shows the value, and not its growth.
    pub(crate) is_level: bool,
    /// Whether the value is in bytes, and not a number of things.
    pub(crate) is_bytes: bool,
    /// The viewer's name of the color.
    pub(crate) color: &'static str,
}

impl Counter {
    /// Returns whether the values add up to what a graph shows, and not each for itself.
    #[cfg(feature = "formats")]
    pub(crate) fn is_level(&self) -> bool {
        let is_memory = self.category == "Memory";
        self.graph.map_or(is_memory, |graph| graph.is_level)
    }

    /// Returns whether the counter is the CPU time of its process, in a profile of gekkota or of
    /// Firefox.
    pub(crate) fn is_process_cpu(&self) -> bool {
        let names = [PROCESS_CPU_NAME, HIDDEN_PROCESS_CPU_NAME];
        self.category == PROCESS_CPU_CATEGORY && names.contains(&self.name.as_str())
    }
}

/// A value of a counter.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct CounterSample {
    pub(crate) time_ns: i64,
    /// The change since the previous value.
    pub(crate) delta: f64,
    /// Number of operations that made the change, if the counter counts them.
    pub(crate) operations: Option<u64>,
}
