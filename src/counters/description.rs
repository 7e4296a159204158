//! The identity and the names of a counter, and a reading of its value.

use std::borrow::Cow;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::types::{CounterUnit, Features, GraphColor};

/// Numbers of the counters of this crate. Those of the application follow.
pub(crate) const PROCESS_CPU_ID: u64 = 1;
pub(crate) const RESIDENT_MEMORY_ID: u64 = 2;
pub(crate) const ALLOCATED_MEMORY_ID: u64 = 3;
static NEXT_ID: AtomicU64 = AtomicU64::new(64);

/// What the value of a counter is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CounterKind {
    /// A level, such as memory. A profile without the beginning of the session begins with the whole
    /// level.
    Level,
    /// A sum that grows with time.
    Total,
}

/// The value of a counter, and the number of changes that made it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct CounterReading {
    pub(crate) count: i64,
    pub(crate) operations: u64,
}

/// A counter's identity and names. The viewer selects a track by category and name.
#[doc(alias = "BaseProfilerCount")]
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct CounterDescription {
    /// Identifies the counter in the buffer. Not used again in this process.
    pub(crate) id: u64,
    /// The feature with which the counter is sampled.
    pub(crate) feature: Features,
    pub(crate) name: Cow<'static, str>,
    pub(crate) category: Cow<'static, str>,
    pub(crate) description: Cow<'static, str>,
    pub(crate) kind: CounterKind,
    /// Whether the number of changes is recorded, too.
    pub(crate) counts_operations: bool,
    pub(crate) unit: CounterUnit,
    /// The color of the graph, where the format allows one.
    pub(crate) color: Option<GraphColor>,
}

impl CounterDescription {
    pub(crate) fn is_level(&self) -> bool {
        self.kind == CounterKind::Level
    }
}

/// Returns an id that no other counter has.
pub(crate) fn next_counter_id() -> u64 {
    NEXT_ID.fetch_add(1, Ordering::Relaxed)
}
