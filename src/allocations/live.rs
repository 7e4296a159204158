//! The sampled allocations that have not been freed.
//!
//! A free asks one byte of a table whether a sampled allocation may have its address; for nearly all
//! frees the answer is no. The byte counts the live sampled allocations whose addresses share it.
//!
//! All memory is reserved when a session begins. The holder of the lock must not allocate, because
//! the allocator inside may have locks of its own.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

use crate::platform::monotonic_now;
use crate::types::{ThreadId, TimeStamp};
use crate::util::{Guard, LockRank, NamedMutex, NumberMap, holds_rank, try_vec};

/// Number of bytes of the table: few enough to stay in the second-level cache.
const FILTER_BYTES: usize = 1 << 16;
/// Maximum number of live sampled allocations. Further ones are not sampled, because their frees
/// could not be recognized.
const MAX_LIVE: usize = 1 << 17;
/// Maximum number of events that wait for the sampler. Allocations may fill half of this number.
/// Further allocations are not sampled.
const MAX_EVENTS: usize = 1 << 16;
/// Number of frees that can be remembered while their thread cannot wait for the lock.
const MAX_UNSEEN: usize = 64;

static FILTER: [AtomicU8; FILTER_BYTES] = [const { AtomicU8::new(0) }; FILTER_BYTES];

/// A sampled allocation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LiveAllocation {
    pub(crate) size: u64,
    /// The bytes that the allocation represents.
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
    /// The bytes that the event represents; negative for a free.
    pub(crate) estimated_bytes: i64,
    /// Number of the stack; 0 without a stack.
    pub(crate) stack: u64,
    pub(crate) time: TimeStamp,
    pub(crate) thread: ThreadId,
}

impl AllocationEvent {
    pub(crate) fn allocation(address: u64, allocation: &LiveAllocation) -> Self {
        Self {
            address,
            size: allocation.size,
            estimated_bytes: i64::try_from(allocation.estimated_bytes).unwrap_or(i64::MAX),
            stack: allocation.stack,
            time: allocation.time,
            thread: allocation.thread,
        }
    }

    /// Returns the free of this allocation by the calling thread, now.
    pub(crate) fn free(
        address: u64,
        allocation: &LiveAllocation,
        stack: u64,
        thread: ThreadId,
    ) -> Self {
        let allocated = Self::allocation(address, allocation);
        Self {
            estimated_bytes: -allocated.estimated_bytes,
            stack,
            time: monotonic_now(),
            thread,
            ..allocated
        }
    }
}

/// The live sampled allocations by address, and what has happened to them.
#[derive(Debug)]
struct Live {
    by_address: Option<NumberMap<LiveAllocation>>,
    /// What the sampler has not recorded yet, in the order in which it happened.
    events: Vec<AllocationEvent>,
}

impl Live {
    const fn new() -> Self {
        Self {
            by_address: None,
            events: Vec::new(),
        }
    }
}

static LIVE: NamedMutex<Live> =
    NamedMutex::new("live allocations", LockRank::LiveAllocations, Live::new());

/// Whether an event waits for the sampler.
static HAS_EVENTS: AtomicBool = AtomicBool::new(false);

/// The addresses of sampled allocations that were freed while their thread could not wait for the
/// lock; 0 for none. The next thread that takes the lock sees them before anything else, so before
/// another allocation at the same address is listed.
static UNSEEN: [AtomicU64; MAX_UNSEEN] = [const { AtomicU64::new(0) }; MAX_UNSEEN];
static HAS_UNSEEN: AtomicBool = AtomicBool::new(false);

/// Number of sampled allocations and frees that were dropped for lack of space.
static DROPPED: AtomicU64 = AtomicU64::new(0);

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
        let Some(by_address) = &mut self.by_address else {
            return false;
        };
        let has_space = by_address.len() < by_address.capacity().min(MAX_LIVE)
            && self.events.len() < self.events.capacity() / 2;
        if !has_space {
            return false;
        }
        let event = AllocationEvent::allocation(address, &allocation);
        self.events.push(event);
        if by_address.insert(address, allocation).is_some() {
            // Its free was not seen. The byte counts the address already.
            return true;
        }
        let byte = filter_byte(address);
        // A byte at its maximum stays there: it no longer knows its number.
        let count = byte.load(Ordering::Relaxed);
        byte.store(count.saturating_add(1), Ordering::Relaxed);
        true
    }

    fn add_free(&mut self, event: AllocationEvent) {
        if self.events.len() < self.events.capacity() {
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

    /// Records the frees that were not seen when they happened.
    #[cold]
    fn see_frees(&mut self) {
        HAS_UNSEEN.store(false, Ordering::Relaxed);
        for cell in &UNSEEN {
            let address = cell.swap(0, Ordering::Relaxed);
            if let Some(allocation) = self.take(address) {
                let thread = allocation.thread;
                self.add_free(AllocationEvent::free(address, &allocation, 0, thread));
            }
        }
    }
}

/// Takes the lock by polling, because the application may be inside `parking_lot`.
fn lock() -> Guard<'static, Live> {
    let mut live = LIVE.lock_by_polling();
    if HAS_UNSEEN.load(Ordering::Relaxed) {
        live.see_frees();
    }
    live
}

/// Returns whether the calling thread must not wait for the lock: it holds the lock, or it forks.
fn is_within_lock() -> bool {
    holds_rank(LockRank::LiveAllocations)
}

/// Lists a sampled allocation and hands it to the sampler. Returns false if it is dropped.
pub(crate) fn add_live(address: u64, allocation: LiveAllocation) -> bool {
    let is_added = !is_within_lock() && lock().add(address, allocation);
    if is_added {
        HAS_EVENTS.store(true, Ordering::Relaxed);
    } else {
        DROPPED.fetch_add(1, Ordering::Relaxed);
    }
    is_added
}

/// Removes and returns the sampled allocation with this address, which is being freed.
pub(super) fn take_live(address: u64) -> Option<LiveAllocation> {
    if is_within_lock() {
        let is_kept = UNSEEN.iter().any(|cell| {
            let kept = cell.compare_exchange(0, address, Ordering::Relaxed, Ordering::Relaxed);
            kept.is_ok()
        });
        match is_kept {
            true => HAS_UNSEEN.store(true, Ordering::Relaxed),
            false => drop(DROPPED.fetch_add(1, Ordering::Relaxed)),
        }
        return None;
    }
    lock().take(address)
}

/// Hands the free of a sampled allocation to the sampler.
pub(crate) fn add_free(event: AllocationEvent) {
    if !is_within_lock() {
        lock().add_free(event);
        HAS_EVENTS.store(true, Ordering::Relaxed);
    }
}

/// Returns whether an event waits for the sampler.
pub(crate) fn has_events() -> bool {
    HAS_EVENTS.load(Ordering::Relaxed)
}

/// Returns whether so many events wait that the next allocations may find no space.
pub(crate) fn has_many_events() -> bool {
    lock().events.len() > MAX_EVENTS / 4
}

/// Replaces `events`, which must be empty, by the events that wait for the sampler, oldest first.
/// Returns whether there are any.
pub(crate) fn swap_events(events: &mut Vec<AllocationEvent>) -> bool {
    if !HAS_EVENTS.swap(false, Ordering::Relaxed) {
        return false;
    }
    // The next events need the same space.
    if events.try_reserve_exact(MAX_EVENTS).is_err() {
        HAS_EVENTS.store(true, Ordering::Relaxed);
        return false;
    }
    std::mem::swap(&mut lock().events, events);
    !events.is_empty()
}

/// Returns the live sampled allocations with their addresses, in no order. Without memory for the
/// list, returns `None`.
pub(crate) fn live_allocations() -> Option<Vec<(u64, LiveAllocation)>> {
    let mut all = Vec::new();
    loop {
        let live = lock();
        let by_address = live.by_address.as_ref();
        let count = by_address.map_or(0, |by_address| by_address.len());
        if all.capacity() >= count {
            all.extend(by_address.into_iter().flatten().map(|(k, v)| (*k, *v)));
            return Some(all);
        }
        drop(live);
        all.try_reserve_exact(count + count / 8).ok()?;
    }
}

/// Reserves the memory for the allocations of a session, and forgets those of an earlier one.
/// Returns false if there is not enough memory.
pub(super) fn prepare_live() -> bool {
    let mut by_address = NumberMap::default();
    let Some(events) = try_vec(MAX_EVENTS) else {
        return false;
    };
    if by_address.try_reserve(MAX_LIVE).is_err() {
        return false;
    }
    replace(Live {
        by_address: Some(by_address),
        events,
    });
    DROPPED.store(0, Ordering::Relaxed);
    true
}

/// Forgets all live allocations, at the end of a session.
pub(super) fn forget_live() {
    replace(Live::new());
}

fn replace(new: Live) {
    let old = {
        let mut live = lock();
        clear_filter();
        std::mem::replace(&mut *live, new)
    };
    // Without the lock.
    drop(old);
}

fn clear_filter() {
    let bytes = FILTER.iter();
    bytes.for_each(|byte| byte.store(0, Ordering::Relaxed));
}

/// Forgets the parent's live allocations in the child of a fork.
pub(super) fn forget_live_in_child() {
    LIVE.renew_in_child(Live::new());
    clear_filter();
}

/// Returns how many sampled allocations and frees were dropped since the session began.
pub(crate) fn dropped_allocations() -> u64 {
    DROPPED.load(Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allocation() -> LiveAllocation {
        LiveAllocation {
            size: 10,
            estimated_bytes: 1000,
            stack: 3,
            time: TimeStamp(5),
            thread: ThreadId::from_number(1),
        }
    }

    fn live(space: usize) -> Live {
        Live {
            by_address: Some(NumberMap::with_capacity_and_hasher(
                space,
                Default::default(),
            )),
            events: Vec::with_capacity(space),
        }
    }

    // Far above the addresses of user space, so that no test allocates there.
    const HIGH: u64 = 1 << 60;

    #[test]
    fn live_allocations_are_found_by_address_until_they_are_freed() {
        let mut live = live(2000);
        let addresses = (0..1000u64).map(|number| HIGH | (number << 4));
        for address in addresses.clone() {
            assert!(live.add(address, allocation()));
            assert!(may_be_live(address));
        }
        for address in addresses.clone() {
            assert_eq!(live.take(address), Some(allocation()));
            assert_eq!(live.take(address), None);
        }
        assert!(addresses.clone().all(|address| !may_be_live(address)));
        assert_eq!(live.events.len(), 1000);
        assert!(
            !live.add(HIGH, allocation()),
            "half of the events are for frees"
        );
    }

    #[test]
    fn space_is_kept_for_frees_and_nothing_grows() {
        let mut live = live(16);
        let capacity = live.events.capacity();
        let added = (0..100u64).filter(|number| live.add(HIGH | (number << 8), allocation()));
        let added = added.count();
        assert_eq!(added, capacity / 2);
        for number in 0..100u64 {
            let address = HIGH | (number << 8);
            let thread = ThreadId::from_number(2);
            live.add_free(AllocationEvent::free(address, &allocation(), 0, thread));
            live.take(address);
        }
        assert_eq!(live.events.len(), capacity);
        assert_eq!(live.events.capacity(), capacity);
    }

    #[test]
    fn byte_of_the_filter_at_its_maximum_stays() {
        let mut live = live(100);
        let address = HIGH << 1;
        let byte = filter_byte(address);
        byte.store(u8::MAX - 1, Ordering::Relaxed);
        for _ in 0..3 {
            assert!(live.add(address, allocation()));
        }
        assert_eq!(
            byte.load(Ordering::Relaxed),
            u8::MAX,
            "an address counts once"
        );
        assert!(live.take(address).is_some());
        assert_eq!(byte.load(Ordering::Relaxed), u8::MAX);
        byte.store(0, Ordering::Relaxed);
    }

    #[test]
    fn free_inside_the_lock_is_seen_by_the_next_holder() {
        let address = HIGH | 0x7770;
        assert!(prepare_live());
        assert!(add_live(address, allocation()));
        {
            let _live = lock();
            assert_eq!(take_live(address), None);
        }
        assert!(may_be_live(address));
        let mut events = Vec::new();
        assert!(swap_events(&mut events));
        let bytes: Vec<_> = events.iter().map(|event| event.estimated_bytes).collect();
        assert_eq!(bytes, [1000, -1000]);
        assert!(!may_be_live(address));
        assert!(live_allocations().is_some_and(|all| all.is_empty()));
        forget_live();
    }
}
