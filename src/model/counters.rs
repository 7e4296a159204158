//! Values over time.

/// A counter of a process.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counter {
    /// Index in `ProfileModel::processes`.
    pub(crate) process: usize,
    pub(crate) name: String,
    /// Category of the counter, such as `Memory` or `CPU`: it selects the track in the viewer.
    pub(crate) category: String,
    pub(crate) description: String,
    pub(crate) samples: Vec<CounterSample>,
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
