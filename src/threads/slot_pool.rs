//! Where slots come from. A slot is never unmapped, so that its number leads to a slot for ever.
//!
//! [`find_slot_in_handler`] runs in the signal handler.
//!
//! **Contract** (cited below):
//! - *for ever*: an address, once in the table, stays there and stays mapped as a [`CaptureSlot`];
//! - *one owner*: a slot is either in the pool or held by one [`SlotHandle`].

use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use crate::base::{LockRank, NamedMutex};
use crate::platform::LazyRegion;
use crate::threads::capture::CaptureParts;
use crate::threads::capture_slot::{CaptureSlot, STACK_OFFSET};

/// More threads than these at once go unsampled.
const MAX_SLOTS: usize = 1 << 16;
const LEAST_STACK_BYTES: usize = 64 << 10;
/// A thread whose stack is larger has its youngest part sampled, marked as truncated when more was in use.
const MOST_STACK_BYTES: usize = 64 << 20;

static TABLE: [AtomicPtr<CaptureSlot>; MAX_SLOTS] =
    [const { AtomicPtr::new(std::ptr::null_mut()) }; MAX_SLOTS];
/// Slots by the pointers of the threads that own them: a pointer, which is a multiple of 64 below 2^47, above the slot's
/// number. 0 was never used, [`LEFT`] is free again.
static BY_THREAD: [AtomicU64; 2 * MAX_SLOTS] = [const { AtomicU64::new(0) }; 2 * MAX_SLOTS];
const LEFT: u64 = 1 << 63;
/// A thread that finds no place within so many goes without a timer.
const MAX_PROBES: usize = 64;

static POOL: NamedMutex<Pool> = NamedMutex::new("slot pool", LockRank::ThreadData, Pool::EMPTY);

/// Stacks have the sizes of the powers of two from [`LEAST_STACK_BYTES`] to [`MOST_STACK_BYTES`].
const SIZES: usize = (MOST_STACK_BYTES / LEAST_STACK_BYTES).ilog2() as usize + 1;

fn size_of(stack_bytes: usize) -> usize {
    (stack_bytes / LEAST_STACK_BYTES).ilog2() as usize
}

#[derive(Debug)]
pub(super) struct Pool {
    /// By size, so that to find one takes no longer when there are many.
    free: [Vec<u16>; SIZES],
    /// Given back while some handler was still writing into them.
    late: Vec<u16>,
    made: usize,
}

impl Pool {
    const EMPTY: Self = Self {
        free: [const { Vec::new() }; SIZES],
        late: Vec::new(),
        made: 0,
    };

    fn put(&mut self, number: u16, stack_bytes: usize) {
        self.free[size_of(stack_bytes)].push(number);
    }

    /// Takes in the slots whose late handlers have ended.
    fn collect_late(&mut self) {
        let late = std::mem::take(&mut self.late);
        for number in late {
            let slot = find_slot_in_handler(number);
            match slot.filter(|slot| slot.retire()) {
                Some(slot) => self.put(number, slot.stack_capacity()),
                None => self.late.push(number),
            }
        }
    }
}

/// A slot that belongs to one thread's registration, or to one request.
#[derive(Debug)]
pub(crate) struct SlotHandle {
    number: u16,
    slot: &'static CaptureSlot,
}

/// Why there is no slot for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoSlot {
    /// The thread has unregistered.
    Unregistered,
    /// The system has no memory for one.
    OutOfMemory,
}

/// The slot with this number, if there ever was one.
pub(crate) fn find_slot_in_handler(number: u16) -> Option<&'static CaptureSlot> {
    // SAFETY: *for ever*.
    unsafe { TABLE[usize::from(number)].load(Ordering::Acquire).as_ref() }
}

fn places_for_in_handler(thread_pointer: u64) -> impl Iterator<Item = &'static AtomicU64> {
    let first = ((thread_pointer >> 6).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as usize;
    (first..first + MAX_PROBES).filter_map(|place| BY_THREAD.get(place % BY_THREAD.len()))
}

/// The slot of the thread that has this pointer, if it owns one.
pub(crate) fn find_slot_of_thread_in_handler(thread_pointer: u64) -> Option<&'static CaptureSlot> {
    for place in places_for_in_handler(thread_pointer) {
        match place.load(Ordering::Acquire) {
            0 => return None,
            LEFT => {}
            known if known >> 16 == thread_pointer => return find_slot_in_handler(known as u16),
            _ => {}
        }
    }
    None
}

impl SlotHandle {
    /// Makes the slot one that the calling thread's handler finds by itself.
    pub(super) fn enter_for_thread(&self, thread_pointer: u64) {
        if thread_pointer == 0 || thread_pointer >> 47 != 0 {
            return;
        }
        let entry = thread_pointer << 16 | u64::from(self.number);
        for place in places_for_in_handler(thread_pointer) {
            let before = place.load(Ordering::Relaxed);
            // A thread of the same pointer died without leaving.
            let is_free = before == 0 || before == LEFT || before >> 16 == thread_pointer;
            if is_free
                && place
                    .compare_exchange(before, entry, Ordering::AcqRel, Ordering::Relaxed)
                    .is_ok()
            {
                return;
            }
        }
    }

    /// Takes that back. On the same thread.
    pub(super) fn leave_for_thread(&self, thread_pointer: u64) {
        let entry = thread_pointer << 16 | u64::from(self.number);
        for place in places_for_in_handler(thread_pointer) {
            if place
                .compare_exchange(entry, LEFT, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
            {
                return;
            }
        }
    }

    /// A slot for a stack of so many bytes, from the pool if one fits; `None` when there are no more.
    pub(super) fn acquire(stack_bytes: usize) -> Option<Self> {
        let stack_bytes = stack_bytes
            .clamp(LEAST_STACK_BYTES, MOST_STACK_BYTES)
            .next_power_of_two();
        let mut pool = POOL.lock();
        pool.collect_late();
        if let Some(number) = pool.free[size_of(stack_bytes)].pop() {
            return find_slot_in_handler(number).map(|slot| Self { number, slot });
        }
        let number = u16::try_from(pool.made).ok()?;
        let region = LazyRegion::reserve(STACK_OFFSET + stack_bytes)?;
        // Never dropped, by *for ever*.
        let slot = CaptureSlot::place_in(Box::leak(Box::new(region)));
        TABLE[usize::from(number)].store(std::ptr::from_ref(slot).cast_mut(), Ordering::Release);
        pool.made += 1;
        Some(Self { number, slot })
    }

    /// Another slot for the thread that `own` is tied to, for one request beside those of the sampler.
    ///
    /// # Errors
    /// [`NoSlot`] tells why there is none.
    pub(crate) fn acquire_beside(own: &Self, parts: CaptureParts) -> Result<Self, NoSlot> {
        let stack_bytes = if parts.stack { own.stack_capacity() } else { 0 };
        let slot = Self::acquire(stack_bytes).ok_or(NoSlot::OutOfMemory)?;
        if slot.bind_like(own, parts) {
            Ok(slot)
        } else {
            Err(NoSlot::Unregistered)
        }
    }

    pub(crate) fn number(&self) -> u16 {
        self.number
    }
}

/// Holds the pool still while the process forks.
pub(super) fn hold_pool() -> crate::base::Guard<'static, Pool> {
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
        // A handler that comes late finds that nobody waits; one that is still writing is waited for by nobody, and its
        // slot is used again only after.
        let is_idle = self.slot.retire();
        self.slot.give_back_deep_stack();
        let mut pool = POOL.lock();
        if is_idle {
            pool.put(self.number, self.slot.stack_capacity())
        } else {
            pool.late.push(self.number)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_that_is_given_back_is_found_again_and_fits() {
        let first = SlotHandle::acquire(100 << 10).expect("a slot");
        assert_eq!(first.stack_capacity(), 128 << 10);
        let number = first.number();
        assert!(std::ptr::eq(
            find_slot_in_handler(number).expect("in the table"),
            &*first
        ));
        drop(first);
        let large = SlotHandle::acquire(1 << 20).expect("a slot");
        assert_eq!(large.stack_capacity(), 1 << 20);
        assert_ne!(large.number(), number);
    }
}
