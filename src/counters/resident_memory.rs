//! The memory of the whole process, with that of the profiler.

use crate::counters::description::CounterDescription;
use crate::types::Features;

/// The second counter of feature `processcpu`: the bytes of memory that are in RAM. The viewer knows
/// the category `Memory`: the track shows the memory relative to its beginning.
pub(crate) const RESIDENT_MEMORY: CounterDescription = CounterDescription {
    id: 2,
    feature: Features::PROCESS_CPU,
    name: "Resident memory",
    category: "Memory",
    description: "Memory of the process that is in RAM, in bytes",
    is_level: true,
};
