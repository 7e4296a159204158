//! The memory of the whole process, with that of the profiler.

use std::borrow::Cow;

use crate::counters::description::{CounterDescription, CounterKind, RESIDENT_MEMORY_ID};
use crate::types::{CounterUnit, Features};

/// The second counter of feature `processcpu`: the bytes of memory that are in RAM. The viewer knows
/// the category `Memory`: the track shows the memory relative to its beginning.
pub(crate) const RESIDENT_MEMORY: CounterDescription = CounterDescription {
    id: RESIDENT_MEMORY_ID,
    feature: Features::PROCESS_CPU,
    name: Cow::Borrowed("Resident memory"),
    category: Cow::Borrowed("Memory"),
    description: Cow::Borrowed("Memory of the process that is in RAM, in bytes"),
    kind: CounterKind::Level,
    counts_operations: false,
    unit: CounterUnit::Bytes,
    color: None,
};
