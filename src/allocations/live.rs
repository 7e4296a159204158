//! The sampled allocations that have not been freed.
//!
//! A free asks one byte of a table whether a sampled allocation may have its address; for nearly all
//! frees the answer is no. The byte counts the live sampled allocations whose addresses share it.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

use crate::types::{ThreadId, TimeStamp};
use crate::util::{Guard, LockRank, NamedMutex, NumberMap, holds_rank};

/// Number of bytes of the table: few enough to stay in the second-level cache.
const FILTER_BYTES: usize = 1 << 16;
/// Maximum number of live sampled allocations. Further ones are not sampled, because their frees
/// could not be recognized.
const MAX_LIVE: usize = 1 << 17;

/// Maximum number of events that wait for the sampler. Further ones are dropped and counted.
const MAX_EVENTS: usize = 1 << 17;

static FILTER: [AtomicU8; FILTER_BYTES] = [const { AtomicU8::new(0) }; FILTER_BYTES];

/// A sampled allocation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LiveAllocation {
    pub(crate) size: u64,
    /// The bytes that it stands for.
    pub(crate) estimated_bytes: u64,
    /// Number of the stack that allocated it; 0 without a stack.
    pub(crate) stack: u64,
    pub(crate) time: TimeStamp,
    pub(crate) thread: ThreadId,
}

/// A sampled allocation, or its free, for the sampler to record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct AllocationEvent {
    pub(crate) address: u64,
    pub(crate) size: u64,
    /// The bytes that it stands for; negative for a free.
    pub(crate) estimated_bytes: i64,
    /// Number of the stack; 0 without a stack.
    pub(crate) stack: u64,
    pub(crate) time: TimeStamp,
    pub(crate) thread: ThreadId,
}

/// The live sampled allocations by address, and what has happened to them.
#[derive(Debug)]
pub(crate) struct Live {
    by_address: Option<NumberMap<LiveAllocation>>,
    /// What the sampler has not recorded yet, in the order in which it happened.
    events: Vec<AllocationEvent>,
}

static LIVE: NamedMutex<Live> = NamedMutex::new(
    "live allocations",
    LockRank::LiveAllocations,
    Live {
        by_address: None,
        events: Vec::new(),
    },
);

/// Whether an event waits for the sampler.
static HAS_EVENTS: AtomicBool = AtomicBool::new(false);

/// Number of sampled allocations that were dropped, because there were too many live ones, or
/// because there was no memory to remember them, and of events that were.
static DROPPED: AtomicU64 = AtomicU64::new(0);

/// The lock of the live allocations, held during a fork.
pub(crate) type HeldLive = Guard<'static, Live>;

fn filter_byte(address: u64) -> &'static AtomicU8 {
    // Allocations have at least 16 bytes of alignment in most allocators.
    let mixed = (address >> 4).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    &FILTER[(mixed >> 48) as usize % FILTER_BYTES]
}

/// Returns whether a sampled allocation may have this address.
#[inline(always)]
pub(super) fn may_be_live(address: u64) -> bool {
    filter_byte(address).load(Ordering::Relaxed) != 0
}

impl Live {
    fn add(&mut self, address: u64, allocation: LiveAllocation) -> bool {
        let by_address = self.by_address.get_or_insert_default();
        if by_address.len() >= MAX_LIVE || by_address.try_reserve(1).is_err() {
            return false;
        }
        by_address.insert(address, allocation);
        let byte = filter_byte(address);
        // A byte at its maximum stays there: it no longer knows its number.
        let count = byte.load(Ordering::Relaxed);
        byte.store(count.saturating_add(1), Ordering::Relaxed);
        true
    }

    fn add_event(&mut self, event: AllocationEvent) {
        if self.events.len() < MAX_EVENTS && self.events.try_reserve(1).is_ok() {
            self.events.push(event);
        } else {
            DROPPED.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn take(&mut self, address: u64) -> Option<LiveAllocation> {
        let found = self.by_address.as_mut()?.remove(&address)?;
        let byte = filter_byte(address);
        let count = byte.load(Ordering::Relaxed);
        if count < u8::MAX {
            byte.store(count.saturating_sub(1), Ordering::Relaxed);
        }
        Some(found)
    }
}

/// Adds a sampled allocation. Returns false if it is dropped.
pub(crate) fn add_live(address: u64, allocation: LiveAllocation) -> bool {
    let is_added = LIVE.lock_by_polling().add(address, allocation);
    if !is_added {
        DROPPED.fetch_add(1, Ordering::Relaxed);
    }
    is_added
}

/// Removes and returns the sampled allocation with this address.
pub(super) fn take_live(address: u64) -> Option<LiveAllocation> {
    LIVE.lock_by_polling().take(address)
}

/// Hands an event to the sampler.
pub(crate) fn add_event(event: AllocationEvent) {
    if holds_rank(LockRank::LiveAllocations) {
        return;
    }
    LIVE.lock_by_polling().add_event(event);
    HAS_EVENTS.store(true, Ordering::Relaxed);
}

/// Takes the events that wait for the sampler, oldest first.
pub(crate) fn take_events() -> Vec<AllocationEvent> {
    if !HAS_EVENTS.swap(false, Ordering::Relaxed) {
        return Vec::new();
    }
    std::mem::take(&mut LIVE.lock_by_polling().events)
}

/// Returns the live sampled allocations with their addresses, in no order. Without memory for the
/// list, returns `None`.
pub(crate) fn live_allocations() -> Option<Vec<(u64, LiveAllocation)>> {
    let mut all = Vec::new();
    loop {
        let live = LIVE.lock_by_polling();
        let by_address = live.by_address.as_ref();
        let count = by_address.map_or(0, |by_address| by_address.len());
        if all.capacity() >= count {
            all.extend(by_address.into_iter().flatten().map(|(k, v)| (*k, *v)));
            return Some(all);
        }
        // Without the lock, because the application's allocator may wait.
        drop(live);
        all.try_reserve_exact(count + count / 8).ok()?;
    }
}

/// Forgets all live allocations, for a new session.
pub(super) fn forget_live() {
    let forgotten = {
        let mut live = LIVE.lock_by_polling();
        FILTER
            .iter()
            .for_each(|byte| byte.store(0, Ordering::Relaxed));
        DROPPED.store(0, Ordering::Relaxed);
        let events = std::mem::take(&mut live.events);
        (live.by_address.take(), events)
    };
    drop(forgotten);
}

/// Returns how many sampled allocations were dropped since the session began.
pub(crate) fn dropped_allocations() -> u64 {
    DROPPED.load(Ordering::Relaxed)
}

/// Locks the live allocations while the process forks.
pub(crate) fn hold_live_for_fork() -> HeldLive {
    LIVE.lock_by_polling()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allocation(stack: u64) -> LiveAllocation {
        LiveAllocation {
            size: 10,
            estimated_bytes: 1000,
            stack,
            time: TimeStamp(5),
            thread: ThreadId::from_number(1),
        }
    }

    #[test]
    fn live_allocations_are_found_by_address_until_they_are_freed() {
        // Far above the addresses of user space, so that no test allocates there.
        let addresses = (0..1000u64).map(|number| (1 << 60) | (number << 4));
        for (stack, address) in (1..).zip(addresses.clone()) {
            assert!(add_live(address, allocation(stack)));
            assert!(may_be_live(address));
        }
        let all = live_allocations().expect("memory");
        assert_eq!(all.len(), 1000);
        for address in addresses.clone() {
            assert!(take_live(address).is_some());
            assert_eq!(take_live(address), None);
        }
        assert!(addresses.clone().all(|address| !may_be_live(address)));
        assert!(add_live(1 << 60, allocation(7)));
        forget_live();
        assert!(!may_be_live(1 << 60) && take_live(1 << 60).is_none());
    }

    #[test]
    fn byte_of_the_filter_at_its_maximum_stays() {
        let mut live = Live {
            by_address: None,
            events: Vec::new(),
        };
        let byte = filter_byte(1 << 61);
        byte.store(u8::MAX - 1, Ordering::Relaxed);
        for _ in 0..3 {
            assert!(live.add(1 << 61, allocation(0)));
        }
        assert!(live.take(1 << 61).is_some());
        assert_eq!(byte.load(Ordering::Relaxed), u8::MAX);
        byte.store(0, Ordering::Relaxed);
    }
}
