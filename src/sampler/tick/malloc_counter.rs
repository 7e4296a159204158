//! Samples the counter of allocated memory.

use crate::allocations::{AllocationCounts, all_counts};
use crate::buffer::all_slab_bytes;
use crate::counters::{ALLOCATED_MEMORY, CounterReading};
use crate::sampler::tick::counter_sampler::{CounterRow, WrittenCounter};
use crate::state::Session;
use crate::types::TimeStamp;

/// The counter of allocated memory. It counts from the beginning of the session.
#[derive(Debug)]
pub(crate) struct MallocCounter {
    base: AllocationCounts,
    sampled_at: TimeStamp,
    written: WrittenCounter,
}

/// Returns what the application has allocated: what all threads have, less the profiler's buffer.
pub(crate) fn less_own_chunks(all: AllocationCounts) -> AllocationCounts {
    let own_bytes = i64::try_from(all_slab_bytes()).unwrap_or(i64::MAX);
    AllocationCounts {
        bytes: all.bytes.wrapping_sub(own_bytes),
        ..all
    }
}

impl MallocCounter {
    pub(crate) fn new(session: &Session) -> Self {
        Self {
            base: session.allocated_at_start,
            sampled_at: session.started_at,
            written: WrittenCounter::default(),
        }
    }

    fn read(&self) -> CounterReading {
        let now = less_own_chunks(all_counts());
        CounterReading {
            count: now.bytes.wrapping_sub(self.base.bytes),
            operations: now.operations.wrapping_sub(self.base.operations),
        }
    }

    /// Samples the counter, and gives the rows to `put`.
    pub(crate) fn sample(&mut self, now: TimeStamp, mut put: impl FnMut(CounterRow)) {
        let before = std::mem::replace(&mut self.sampled_at, now);
        let reading = self.read();
        (self.written).sample(ALLOCATED_MEMORY.id, reading, before, now, &mut put);
    }

    /// Writes the value if it has not been written since it last changed.
    pub(crate) fn write_rest(&mut self, mut put: impl FnMut(CounterRow)) {
        (self.written).write_rest(ALLOCATED_MEMORY.id, self.sampled_at, &mut put);
    }
}
