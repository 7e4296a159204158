//! The pool of capture slots. A slot is never unmapped, so its number identifies it for the life of
//! the process.
//!
//! [`find_slot_in_handler`] runs in the signal handler.
//!
//! **Contract** (cited below):
//! - *for ever*: an address, once in the table, stays there and stays mapped as a [`CaptureSlot`];
//! - *one owner*: a slot is either in the pool or held by one [`SlotHandle`].

use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use crate::capture::capture_parts::CaptureParts;
use crate::capture::capture_slot::{CaptureSlot, FIRST_STACK_BYTES};
use crate::platform::{EVENT_NUMBERS, SignalTicket, thread_pointer};
use crate::types::{SuspendError, ThreadId};
use crate::util::{Guard, LockRank, NamedMutex};

/// Maximum number of slots. A thread that finds no free slot is sampled without stacks.
const MAX_SLOTS: usize = 1 << 16;

/// Number of free slots of each list that keep their memory for the next threads.
const WARM_SLOTS: usize = 32;

static TABLE: [AtomicPtr<CaptureSlot>; MAX_SLOTS] =
    [const { AtomicPtr::new(std::ptr::null_mut()) }; MAX_SLOTS];
/// Hash table of slots, by the thread pointers of their owners. An entry holds the slot's number in
/// its lower 16 bits and the thread pointer above it, a multiple of 64 below 2^48. An entry that
/// was never used is 0; one that is free again is [`TOMBSTONE`].
static BY_THREAD: [AtomicU64; 2 * MAX_SLOTS] = [const { AtomicU64::new(0) }; 2 * MAX_SLOTS];
const TOMBSTONE: u64 = 1;
/// Maximum number of entries to probe.
const MAX_PROBES: usize = 64;

/// The slots of the threads whose CPU clocks have events, by the events' numbers, as in [`BY_THREAD`]. An
/// event that has ended keeps its entry: its last signal may be on its way.
static BY_EVENT: [AtomicU64; EVENT_NUMBERS] = [const { AtomicU64::new(0) }; EVENT_NUMBERS];

static POOL: NamedMutex<Pool> = NamedMutex::new("slot pool", LockRank::SessionData, Pool::EMPTY);

#[derive(Debug)]
pub(crate) struct Pool {
    /// Free slots with a stack area of the first size, and those with a larger one.
    free: Vec<u16>,
    free_large: Vec<u16>,
    /// Slots that were returned while a handler was still writing into them.
    busy: Vec<u16>,
    created: usize,
}

impl Pool {
    const EMPTY: Self = Self {
        free: Vec::new(),
        free_large: Vec::new(),
        busy: Vec::new(),
        created: 0,
    };

    /// Makes space for one more slot in each list, so that a slot can be returned without memory.
    fn try_reserve_for_one_more(&mut self) -> Option<()> {
        for list in [&mut self.free, &mut self.free_large, &mut self.busy] {
            let missing = (self.created + 1).saturating_sub(list.len());
            list.try_reserve(missing).ok()?;
        }
        Some(())
    }

    /// Adds a slot that is free again. The slots returned last are taken first, so the others may
    /// stay free for ever: they give back their memory. That happens under the pool's lock, which a
    /// fork holds, so that no child inherits a slot in the middle of it.
    fn add_free(&mut self, number: u16, stack_bytes: usize) {
        let list = match stack_bytes > FIRST_STACK_BYTES {
            true => &mut self.free_large,
            false => &mut self.free,
        };
        list.push(number);
        let cold = list.len().checked_sub(WARM_SLOTS + 1);
        if let Some(slot) = cold.and_then(|index| find_slot_in_handler(list[index])) {
            slot.release_memory();
        }
    }

    fn take_free(&mut self, prefers_large: bool) -> Option<u16> {
        let lists = [&mut self.free, &mut self.free_large];
        let [first, second] = if prefers_large {
            let [small, large] = lists;
            [large, small]
        } else {
            lists
        };
        first.pop().or_else(|| second.pop())
    }

    /// Moves the slots whose handlers have finished to the free ones.
    fn reclaim_busy(&mut self) {
        let mut index = 0;
        while let Some(&number) = self.busy.get(index) {
            let slot = find_slot_in_handler(number);
            match slot.filter(|slot| slot.state.retire()) {
                Some(slot) => {
                    self.busy.swap_remove(index);
                    self.add_free(number, slot.stack_capacity());
                }
                None => index += 1,
            }
        }
    }
}

/// A slot that belongs to one registration, or to one request.
#[derive(Debug)]
pub(crate) struct SlotHandle {
    number: u16,
    slot: &'static CaptureSlot,
}

/// Returns the slot with this number, if it was ever created.
pub(crate) fn find_slot_in_handler(number: u16) -> Option<&'static CaptureSlot> {
    // SAFETY: *for ever*.
    unsafe { TABLE[usize::from(number)].load(Ordering::Acquire).as_ref() }
}

/// Returns the slot that the calling thread has or had, if an event with this number interrupts that thread.
pub(crate) fn find_slot_of_event_in_handler(number: i32) -> Option<&'static CaptureSlot> {
    let entry = BY_EVENT.get(usize::try_from(number).ok()?)?;
    let known = entry.load(Ordering::Acquire);
    (known >> 16 == thread_pointer()).then(|| find_slot_in_handler(known as u16))?
}

/// Forgets all events. A descriptor of the child may have the number of one.
pub(crate) fn forget_events_in_child() {
    let entries = BY_EVENT.iter();
    entries.for_each(|entry| entry.store(0, Ordering::Relaxed));
}

/// Returns the entries of [`BY_THREAD`] that may belong to this thread pointer, in probing order.
fn entries_for_in_handler(thread_pointer: u64) -> impl Iterator<Item = &'static AtomicU64> {
    let first = ((thread_pointer >> 6).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as usize;
    (first..first + MAX_PROBES)
        .filter_map(|table_entry| BY_THREAD.get(table_entry % BY_THREAD.len()))
}

/// Returns the slot that the thread with this thread pointer owns.
pub(crate) fn find_slot_of_thread_in_handler(thread_pointer: u64) -> Option<&'static CaptureSlot> {
    for table_entry in entries_for_in_handler(thread_pointer) {
        match table_entry.load(Ordering::Acquire) {
            0 => return None,
            TOMBSTONE => {}
            known if known >> 16 == thread_pointer => return find_slot_in_handler(known as u16),
            _ => {}
        }
    }
    None
}

impl SlotHandle {
    /// Inserts the slot into the hash table, so that the calling thread's handler finds it by the
    /// thread pointer. Does nothing if an entry cannot hold the pointer.
    pub(crate) fn insert_for_thread(&self, thread_pointer: u64) {
        if thread_pointer == 0 || thread_pointer >> 48 != 0 {
            return;
        }
        let entry = thread_pointer << 16 | u64::from(self.number);
        for table_entry in entries_for_in_handler(thread_pointer) {
            let before = table_entry.load(Ordering::Relaxed);
            // The last condition: a thread with the same pointer exited without removing its entry.
            let is_free = before == 0 || before == TOMBSTONE || before >> 16 == thread_pointer;
            if is_free
                && table_entry
                    .compare_exchange(before, entry, Ordering::AcqRel, Ordering::Relaxed)
                    .is_ok()
            {
                return;
            }
        }
    }

    /// Removes the slot from the hash table. Called only on the thread that inserted it.
    pub(crate) fn remove_for_thread(&self, thread_pointer: u64) {
        let entry = thread_pointer << 16 | u64::from(self.number);
        for table_entry in entries_for_in_handler(thread_pointer) {
            if table_entry
                .compare_exchange(entry, TOMBSTONE, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
            {
                return;
            }
        }
    }

    /// Returns a slot, from the pool if one is free; `None` when the maximum is reached or the
    /// system has no memory. Prefers one that was enlarged. Otherwise in time all slots would be
    /// enlarged, one by one, by the threads that have deep stacks.
    pub(crate) fn acquire() -> Option<Self> {
        Self::acquire_of(true)
    }

    fn acquire_of(prefers_large: bool) -> Option<Self> {
        let mut pool = POOL.lock();
        pool.reclaim_busy();
        if let Some(number) = pool.take_free(prefers_large) {
            return find_slot_in_handler(number).map(|slot| Self { number, slot });
        }
        let number = u16::try_from(pool.created).ok()?;
        pool.try_reserve_for_one_more()?;
        let slot = CaptureSlot::create()?;
        TABLE[usize::from(number)].store(std::ptr::from_ref(slot).cast_mut(), Ordering::Release);
        pool.created += 1;
        Some(Self { number, slot })
    }

    /// Returns an additional slot for this thread, which `own` is bound to, for a request that is
    /// independent of the sampler's.
    ///
    /// # Errors
    /// - [`SuspendError::NoStack`]: all slots are in use, or the system has no memory for another one.
    /// - [`SuspendError::NotRegistered`]: the thread has unregistered.
    pub(crate) fn acquire_additional(
        own: &Self,
        thread: ThreadId,
        parts: CaptureParts,
    ) -> Result<Self, SuspendError> {
        let slot = Self::acquire_of(parts.stack).ok_or(SuspendError::NoStack { thread })?;
        if slot.bind_like(own, parts) {
            // The request has one answer, which cannot be repeated in a larger slot.
            slot.prepare_for_whole_stack();
            Ok(slot)
        } else {
            Err(SuspendError::NotRegistered { thread })
        }
    }

    pub(crate) fn number(&self) -> u16 {
        self.number
    }

    /// Returns what the signal of this request carries.
    pub(crate) fn ticket(&self, sequence: u32) -> SignalTicket {
        SignalTicket {
            slot: self.number,
            sequence,
        }
    }

    /// Notes that the event with this number interrupts the thread that owns the slot.
    pub(crate) fn set_event(&self, number: i32) {
        self.slot.note_event();
        if let Some(entry) = usize::try_from(number).ok().and_then(|at| BY_EVENT.get(at)) {
            let known = self.slot.owner() << 16 | u64::from(self.number);
            entry.store(known, Ordering::Release);
        }
    }
}

/// Locks the pool while the process forks.
pub(crate) fn hold_pool_for_fork() -> Guard<'static, Pool> {
    POOL.lock()
}

impl std::ops::Deref for SlotHandle {
    type Target = CaptureSlot;
    fn deref(&self) -> &CaptureSlot {
        self.slot
    }
}

impl Drop for SlotHandle {
    fn drop(&mut self) {
        // A late handler finds that no request is pending. No thread waits for a handler that is
        // still writing: its slot is reused only after it has finished.
        let is_idle = self.slot.state.retire();
        self.slot.release_stack_at_exit();
        let mut pool = POOL.lock();
        if is_idle {
            pool.add_free(self.number, self.slot.stack_capacity())
        } else {
            pool.busy.push(self.number)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use crate::capture::capture_slot::MAX_STACK_BYTES;
    use crate::platform::{StackBounds, current_thread_id, thread_pointer};

    #[test]
    fn slot_is_found_by_a_thread_pointer_of_48_bits() {
        let slot = SlotHandle::acquire().expect("a slot");
        let highest = 0xffff_ffff_ffc0;
        slot.insert_for_thread(highest);
        let found = find_slot_of_thread_in_handler(highest).expect("inserted");
        assert!(std::ptr::eq(found, &*slot));
        slot.remove_for_thread(highest);
        assert!(find_slot_of_thread_in_handler(highest).is_none());
    }

    #[test]
    fn free_slot_is_chosen_by_size_of_stack_area() {
        let mut pool = Pool::EMPTY;
        pool.add_free(1, FIRST_STACK_BYTES);
        pool.add_free(2, 2 * FIRST_STACK_BYTES);
        pool.add_free(3, FIRST_STACK_BYTES);
        pool.add_free(4, MAX_STACK_BYTES);
        let taken = [true, false, false, false, true].map(|is_large| pool.take_free(is_large));
        assert_eq!(taken, [Some(4), Some(3), Some(1), Some(2), None]);
    }

    #[test]
    fn slot_that_stays_free_gives_back_its_memory() {
        let slots: Vec<_> = std::iter::repeat_with(|| CaptureSlot::create().expect("memory"))
            .take(WARM_SLOTS + 2)
            .collect();
        let mut pool = Pool::EMPTY;
        // Far above the slots that this process creates.
        let first = usize::from(u16::MAX) - slots.len();
        for (number, slot) in (first..).zip(&slots) {
            TABLE[number].store(std::ptr::from_ref(*slot).cast_mut(), Ordering::Release);
            slot.bind_simulated(5, StackBounds { low: 8, top: 16 });
            pool.add_free(number as u16, FIRST_STACK_BYTES);
        }
        let was_bound = |slot: &&CaptureSlot| slot.was_bound.load(Ordering::Relaxed);
        let kept: Vec<_> = slots.iter().map(was_bound).collect();
        let mut expected = vec![true; WARM_SLOTS + 2];
        expected[..2].fill(false);
        assert_eq!(kept, expected);
    }

    #[test]
    fn slot_is_enlarged_for_deep_stack_up_to_the_maximum() {
        let slot = SlotHandle::acquire().expect("a slot");
        slot.state.retire();
        for (bytes, capacity) in [(1, 0), (100 << 10, 128 << 10), (9 << 20, MAX_STACK_BYTES)] {
            slot.prepare_for_stack_of(bytes);
            assert!(slot.stack_capacity() >= capacity);
        }
        assert_eq!(slot.stack_capacity(), MAX_STACK_BYTES);
        assert!(std::ptr::eq(
            find_slot_in_handler(slot.number()).expect("in the table"),
            &*slot
        ));
    }

    #[test]
    fn slot_dropped_during_write_is_reused_after_publish() {
        let acquire = || SlotHandle::acquire().expect("a slot");
        let slot = acquire();
        let number = slot.number();
        let shared = find_slot_in_handler(number).expect("in the table");
        slot.bind_simulated(5, StackBounds { low: 8, top: 16 });
        let sequence = slot.state.request().expect("idle");
        let writer = shared.begin_simulated(sequence, 5, 0).expect("requested");
        drop(slot);
        assert_ne!(acquire().number(), number, "a handler is writing");
        writer.publish_in_handler();
        // Other tests in this process may have the slot for a moment.
        let end = Instant::now() + Duration::from_secs(60);
        while acquire().number() != number {
            assert!(Instant::now() < end, "the slot is not in the pool");
            std::thread::yield_now();
        }
    }

    #[test]
    fn additional_slot_binds_requested_parts() {
        let own = SlotHandle::acquire().expect("a slot");
        let thread = current_thread_id();
        let additional = |parts| SlotHandle::acquire_additional(&own, thread, parts);
        let parts = CaptureParts {
            stack: true,
            labels: false,
        };
        let unbound = additional(parts);
        assert!(matches!(unbound, Err(SuspendError::NotRegistered { .. })));
        own.bind_to_current_thread(StackBounds { low: 8, top: 16 });
        let slot = additional(parts).expect("a slot");
        assert_eq!(slot.binding(), (thread_pointer(), [8, 16], false));
        own.unbind();
        assert!(additional(parts).is_err());
        crate::labels::close_profiling_stack();
    }
}
