//! Decides whether the system has the memory for another chunk.
//!
//! A session that used up the last memory of its process would end the process, because most code
//! of the application aborts if an allocation fails. And the recorded data could not be saved,
//! because saving needs memory, too. So a chunk is allocated only if enough memory remains for
//! both.

use crate::types::CAPACITY_RANGE_BYTES;

/// Asks the system whether it has this many bytes of memory.
pub(crate) type MemoryProbe = fn(usize) -> bool;

/// Memory to leave to the application and to the small allocations of the profiler, in bytes.
const FOR_OTHERS_BYTES: usize = 8 << 20;
/// Memory that saving a chunk may need, as a multiple of the chunk: its decoded rows, and tables
/// that double when they grow. Many distinct texts need the most. A save asks for as much.
const SAVE_FACTOR: usize = 4;
/// Size of the chunks that are allocated after one probe, in bytes.
const STEP_BYTES: usize = 4 << 20;
/// Size of the chunks that are refused after a failed probe without another one, in bytes.
const REFUSED_BYTES: usize = 256 << 10;

/// Returns the capacity, in bytes, for which a system with this much memory left has enough: for a
/// full buffer, for saving it while a second one fills, and for the application's growth.
pub(crate) fn capacity_within(left_bytes: u64) -> u64 {
    const SHARE: u64 = 8;
    (left_bytes / SHARE).max(*CAPACITY_RANGE_BYTES.start())
}

/// The memory that is left for chunks.
#[derive(Debug)]
pub(crate) struct Headroom {
    probe: MemoryProbe,
    /// Size of the chunks that may be allocated without another probe.
    granted_bytes: usize,
    /// Size of the chunks to refuse without another probe.
    refused_bytes: usize,
}

impl Headroom {
    pub(crate) fn new(probe: MemoryProbe) -> Self {
        Self {
            probe,
            granted_bytes: 0,
            refused_bytes: 0,
        }
    }

    /// Returns whether a chunk of `bytes` may be allocated in addition to `held_bytes` of chunks.
    pub(crate) fn allows(&mut self, bytes: usize, held_bytes: usize) -> bool {
        if self.refused_bytes > 0 {
            self.refused_bytes = self.refused_bytes.saturating_sub(bytes);
            return false;
        }
        if let Some(rest) = self.granted_bytes.checked_sub(bytes) {
            self.granted_bytes = rest;
            return true;
        }
        let has_memory_for = |new_bytes: usize| {
            let to_save = held_bytes
                .saturating_add(new_bytes)
                .saturating_mul(SAVE_FACTOR);
            (self.probe)(
                to_save
                    .saturating_add(new_bytes)
                    .saturating_add(FOR_OTHERS_BYTES),
            )
        };
        let with_more = bytes.saturating_add(STEP_BYTES);
        if has_memory_for(with_more) {
            self.granted_bytes = STEP_BYTES;
            return true;
        }
        let is_allowed = has_memory_for(bytes);
        if !is_allowed {
            self.refuse();
        }
        is_allowed
    }

    /// Refuses the next chunks, after an allocation has failed.
    pub(crate) fn refuse(&mut self) {
        (self.granted_bytes, self.refused_bytes) = (0, REFUSED_BYTES);
    }

    /// Probes for the next chunk again.
    pub(crate) fn end_refusal(&mut self) {
        self.refused_bytes = 0;
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn allows_a_chunk_only_if_it_can_be_saved() {
        static AVAILABLE: AtomicUsize = AtomicUsize::new(usize::MAX);
        static PROBES: AtomicUsize = AtomicUsize::new(0);
        let mut headroom = Headroom::new(|bytes| {
            PROBES.fetch_add(1, Ordering::Relaxed);
            bytes <= AVAILABLE.load(Ordering::Relaxed)
        });
        let mut count_of_allowed = |chunk: usize, available: usize, max: usize| {
            AVAILABLE.store(available, Ordering::Relaxed);
            PROBES.store(0, Ordering::Relaxed);
            let allowed = (0..max).take_while(|count| headroom.allows(chunk, count * chunk));
            (allowed.count(), PROBES.load(Ordering::Relaxed))
        };
        assert_eq!(count_of_allowed(1 << 20, usize::MAX, 50), (50, 10));
        // What was granted is used up first. The rest of the memory stays for others and for
        // saving.
        assert_eq!(count_of_allowed(1 << 20, 0, 50), (0, 2));
        assert_eq!(
            count_of_allowed(256 << 10, 0, 1),
            (0, 0),
            "no probe after a refusal"
        );
        let available = FOR_OTHERS_BYTES + (1 << 20) * (SAVE_FACTOR * 6 + 1);
        assert_eq!(count_of_allowed(1 << 20, available, 50).0, 6);
        // A chunk that the allocator refuses anyway.
        assert_eq!(count_of_allowed(256 << 10, usize::MAX, 1), (0, 0));
        assert_eq!(count_of_allowed(256 << 10, usize::MAX, 1), (1, 1));
        headroom.refuse();
        assert!(!headroom.allows(1 << 20, 0));
        assert!(headroom.allows(1 << 20, 0));
    }
}
