//! Several slots of one thread, which keep its captures until the sampler collects them.
//!
//! An event of the thread's CPU clock interrupts it while it runs. Each time, its handler fills the
//! next slot that has a request. So no capture is lost if the sampler gets no processor for a while.
//!
//! Runs in the signal handler: [`CaptureSlot::requested_of_batch_in_handler`].
//!
//! The slots form a list, which begins at the thread's own slot. They are found by their numbers, so
//! a handler that follows an old list still finds slots. A slot that belongs to another thread by
//! then does not answer: the handler reads the number of the request, compares the thread pointers, and
//! begins only if the slot still has that request.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::capture::capture_parts::CaptureParts;
use crate::capture::capture_slot::CaptureSlot;
use crate::capture::captured_view::CapturedView;
use crate::capture::slot_pool::{SlotHandle, find_slot_in_handler, forget_events_in_child};
use crate::capture::slot_state::SlotPhase;

/// Number of slots in a batch.
const BATCH_SLOTS: usize = 4;
/// Maximum number of slots in all batches. A slot takes some 20 KiB once it was used.
const MAX_BATCHED: usize = 1024;

static BATCHED: AtomicUsize = AtomicUsize::new(0);

const PARTS: CaptureParts = CaptureParts {
    stack: true,
    labels: true,
};

/// The further slots of one thread, in addition to its own slot.
#[derive(Debug)]
pub(crate) struct SlotBatch {
    own: Arc<SlotHandle>,
    slots: Vec<SlotHandle>,
}

impl CaptureSlot {
    /// Returns the first slot of the thread's batch that has a request. Called on the slot that the
    /// thread owns. `None` if the thread has unregistered: then its labels may be gone, to which the
    /// other slots are still bound. `None`, too, if the own slot has a request, whose signal the kernel
    /// may have dropped because the event's was pending.
    pub(crate) fn requested_of_batch_in_handler(&self) -> Option<&'static Self> {
        if !self.is_own_in_handler() || self.state.phase() == SlotPhase::Requested {
            return None;
        }
        let mut link = self.next_in_batch.load(Ordering::Acquire);
        // The limit ends the loop even if the list changes during the walk.
        for _ in 0..BATCH_SLOTS {
            let slot = find_slot_in_handler(number_of_link(link)?)?;
            if slot.state.phase() == SlotPhase::Requested {
                return Some(slot);
            }
            link = slot.next_in_batch.load(Ordering::Acquire);
        }
        None
    }

    /// Forgets the batch of an earlier session, or of the parent process.
    pub(crate) fn unlink_batch(&self) {
        self.next_in_batch.store(0, Ordering::Release);
    }
}

/// Forgets that slots are in batches. Called in the child of a fork, which has no sampler and no events.
pub(crate) fn forget_batches_in_child() {
    BATCHED.store(0, Ordering::Relaxed);
    forget_events_in_child();
}

/// A link is the number of the slot plus one, or 0 at the end.
fn link_to(slot: &SlotHandle) -> u32 {
    u32::from(slot.number()) + 1
}

fn number_of_link(link: u32) -> Option<u16> {
    u16::try_from(link.checked_sub(1)?).ok()
}

impl SlotBatch {
    /// Makes a batch for the thread that owns this slot. `None` if the thread has unregistered, if all
    /// batches together have too many slots, or if the system has no memory.
    pub(crate) fn acquire(own: &Arc<SlotHandle>) -> Option<Self> {
        if Self::are_all_used() {
            return None;
        }
        let mut slots = Vec::new();
        slots.try_reserve(BATCH_SLOTS).ok()?;
        let is_allowed = BATCHED.fetch_add(BATCH_SLOTS, Ordering::Relaxed) < MAX_BATCHED;
        let mut batch = Self {
            own: Arc::clone(own),
            slots,
        };
        while batch.slots.len() < BATCH_SLOTS && is_allowed {
            let slot = SlotHandle::acquire()?;
            slot.next_in_batch
                .store(batch.slots.last().map_or(0, link_to), Ordering::Release);
            let is_bound = slot.bind_like(own, PARTS);
            batch.slots.push(slot);
            if !is_bound {
                return None;
            }
        }
        let first = batch.slots.last().map_or(0, link_to);
        own.next_in_batch.store(first, Ordering::Release);
        is_allowed.then_some(batch)
    }

    /// Makes a request in each slot without a capture. The areas for stacks get the size of the
    /// largest, so that deep stacks are lost until the next collection, and not in each slot again.
    /// The bounds of the stack of a thread that has not registered may have grown.
    pub(crate) fn request_all(&self) {
        let capacities = self.slots.iter().map(|slot| slot.stack_capacity());
        let stack_bytes = capacities.fold(self.own.stack_capacity(), usize::max);
        for slot in &self.slots {
            if slot.state.phase() == SlotPhase::Idle {
                if slot.stack_capacity() < stack_bytes {
                    slot.prepare_for_stack_of(stack_bytes);
                }
                if slot.bind_like(&self.own, PARTS) {
                    slot.state.request();
                }
            }
        }
    }

    /// Returns how many slots the thread has filled.
    pub(crate) fn waiting(&self) -> u64 {
        let is_ready = |slot: &&SlotHandle| slot.state.phase() == SlotPhase::Ready;
        self.slots.iter().filter(is_ready).count() as u64
    }

    pub(crate) fn are_all_used() -> bool {
        BATCHED.load(Ordering::Relaxed) >= MAX_BATCHED
    }

    /// Returns whether more than half of the slots that all batches may have are in use.
    pub(crate) fn are_many() -> bool {
        BATCHED.load(Ordering::Relaxed) > MAX_BATCHED / 2
    }

    /// Returns how often the event has found no slot for a capture.
    pub(crate) fn uncaptured(&self) -> u64 {
        self.own.uncaptured.load(Ordering::Relaxed).into()
    }

    /// Takes the number of times that the event has found no slot for a capture.
    pub(crate) fn take_uncaptured(&self) -> u64 {
        self.own.uncaptured.swap(0, Ordering::Relaxed).into()
    }

    /// Gives back the memory of the slots, which keep their requests.
    pub(crate) fn release_memory(&self) {
        for slot in &self.slots {
            slot.state.cancel();
            slot.release_memory();
        }
        self.request_all();
    }

    /// Takes the captures that have arrived, in the order of their times, and returns their number,
    /// too.
    pub(crate) fn captures(&self) -> (impl Iterator<Item = CapturedView<'_>>, u64) {
        let mut views = [const { None }; BATCH_SLOTS];
        let mut count = 0;
        for view in self.slots.iter().filter_map(|slot| slot.captured()) {
            views[count] = Some(view);
            count += 1;
        }
        views[..count].sort_unstable_by_key(|view| view.as_ref().map(|view| view.header().time));
        (views.into_iter().flatten(), count as u64)
    }
}

impl Drop for SlotBatch {
    fn drop(&mut self) {
        let first = self.slots.last().map_or(0, link_to);
        // The sampler of a later session may have made another batch.
        let _ =
            self.own
                .next_in_batch
                .compare_exchange(first, 0, Ordering::AcqRel, Ordering::Relaxed);
        for slot in &self.slots {
            slot.next_in_batch.store(0, Ordering::Release);
            slot.state.cancel();
            slot.shrink_stack_area();
        }
        BATCHED.fetch_sub(BATCH_SLOTS, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::{StackBounds, thread_pointer};
    use crate::types::TimeStamp;

    fn own_slot() -> Arc<SlotHandle> {
        let own = SlotHandle::acquire().expect("a slot");
        own.bind_to_current_thread(StackBounds { low: 8, top: 16 });
        Arc::new(own)
    }

    /// Fills the slot that the handler would fill next, and returns it.
    fn capture(own: &SlotHandle, time: u64) -> Option<&'static CaptureSlot> {
        let slot = own.requested_of_batch_in_handler()?;
        let writer = slot.begin_simulated(None, thread_pointer(), 0);
        let mut writer = writer.expect("requested");
        writer.header.time = TimeStamp(time);
        writer.publish_in_handler();
        Some(slot)
    }

    fn times(batch: &SlotBatch) -> (Vec<u64>, u64) {
        let (views, count) = batch.captures();
        (views.map(|view| view.header().time.0).collect(), count)
    }

    #[test]
    fn captures_are_kept_until_they_are_collected() {
        let own = own_slot();
        let batch = SlotBatch::acquire(&own).expect("slots");
        assert!(capture(&own, 1).is_none(), "no request");
        batch.request_all();
        assert_eq!(batch.waiting(), 0);
        // The slots of the list are used in turn. A reader sorts by time all the same.
        for time in [5, 3] {
            capture(&own, time).expect("a slot");
        }
        assert_eq!(times(&batch), (vec![3, 5], 2));
        batch.request_all();
        for time in [7, 8, 9, 10] {
            capture(&own, time).expect("a slot");
        }
        assert!(batch.waiting() == 4 && capture(&own, 11).is_none());
        assert_eq!(times(&batch), (vec![7, 8, 9, 10], 4));
        drop(batch);
        assert!(own.requested_of_batch_in_handler().is_none());
        own.unbind();
    }

    #[test]
    fn batch_of_another_thread_gets_no_capture() {
        let own = own_slot();
        let batch = SlotBatch::acquire(&own).expect("slots");
        batch.request_all();
        let slot = own.requested_of_batch_in_handler().expect("a request");
        assert!(
            slot.begin_simulated(None, thread_pointer() + 64, 0)
                .is_none()
        );
        own.unbind();
        assert!(
            own.requested_of_batch_in_handler().is_none(),
            "unregistered"
        );
        assert!(SlotBatch::acquire(&own).is_none());
    }

    #[test]
    fn batch_that_ends_leaves_a_later_one_alone() {
        let own = own_slot();
        let first = SlotBatch::acquire(&own).expect("slots");
        let second = SlotBatch::acquire(&own).expect("slots");
        drop(first);
        second.request_all();
        capture(&own, 4).expect("a slot");
        assert_eq!(times(&second), (vec![4], 1));
        own.unbind();
    }
}
