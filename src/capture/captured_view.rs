//! Access to a finished capture, and the release of memory that a deep capture took.
//!
//! **Contract**: as in `capture_slot.rs`: *phase owns*, *placed*.

use std::sync::atomic::Ordering;

use crate::capture::capture_parts::{CaptureHeader, CapturedLabel};
use crate::capture::capture_slot::{
    CAPTURES_BEFORE_RELEASE, CaptureSlot, FIRST_STACK_BYTES, LABELS_OFFSET, MAX_STACK_BYTES,
    RETAINED_STACK_BYTES, TEXT_OFFSET,
};

impl CaptureSlot {
    /// Moves from ready to reading, and returns the capture. Dropping the view moves to idle.
    pub(crate) fn captured(&self) -> Option<CapturedView<'_>> {
        let sequence = self.state.begin_reading()?;
        // SAFETY: *phase owns*: the slot is in reading, by the transition above.
        let header = unsafe { &*self.header.get() };
        Some(CapturedView {
            slot: self,
            header,
            sequence,
        })
    }

    /// Returns the memory of deep stacks to the kernel, for a thread that is idle. Does nothing while
    /// a capture is written or read.
    pub(crate) fn release_deep_stack(&self) {
        if self.captures_since_deep.load(Ordering::Relaxed) > 0 {
            self.release_stack_beyond(RETAINED_STACK_BYTES, false);
        }
    }

    /// Returns memory to the kernel that the next thread may not need, for a thread that exits:
    /// otherwise every slot would in time retain as much as the deepest of its threads. Does nothing
    /// while a capture is written or read. Cost: one system call if the slot was ever enlarged.
    pub(crate) fn release_stack_at_exit(&self) {
        if self.stack_capacity() > FIRST_STACK_BYTES {
            self.release_stack_beyond(FIRST_STACK_BYTES, false);
        }
    }

    /// Returns all memory of the slot but its head to the kernel, for a slot that stays free. Does
    /// nothing while a capture is written or read. Cost: two system calls if a thread had the slot
    /// since the last time.
    pub(crate) fn release_memory(&self) {
        if self.was_bound.swap(false, Ordering::Relaxed) {
            self.release_stack_beyond(0, true);
        }
    }

    fn release_stack_beyond(&self, retained_bytes: usize, releases_labels: bool) {
        // From here on, no other thread writes or reads the slot.
        let Some(sequence) = self.state.begin_remote() else {
            return;
        };
        self.captures_since_deep.store(0, Ordering::Relaxed);
        // SAFETY: *phase owns*: the slot is in writing, by the transition above.
        unsafe { self.discard_stack_beyond(retained_bytes) };
        if releases_labels {
            // SAFETY: as above.
            unsafe { self.discard_labels() };
        }
        self.state.abandon(sequence);
    }
}

/// A finished capture, for reading. Dropping the view frees the slot for the next request.
pub(crate) struct CapturedView<'a> {
    slot: &'a CaptureSlot,
    header: &'a CaptureHeader,
    sequence: u32,
}

impl CapturedView<'_> {
    pub(crate) fn header(&self) -> &CaptureHeader {
        self.header
    }

    /// Returns the copied part of the stack, which starts at `header().stack_start`.
    pub(crate) fn stack(&self) -> &[u8] {
        // SAFETY: *phase owns*: the slot is in reading, and the handler wrote this many bytes.
        unsafe { std::slice::from_raw_parts(self.slot.stack_area(), self.header.stack_bytes) }
    }

    /// Enlarges the slot if the thread's stack did not fit into it but fits into a larger one.
    /// Returns whether it did: then the capture is lost, and the next one has the whole stack.
    pub(crate) fn enlarge_slot(&mut self) -> bool {
        let capacity = self.slot.stack_capacity();
        if !self.header.stack_left_out() || capacity >= MAX_STACK_BYTES {
            return false;
        }
        // Half as much again, because a stack that has grown may grow further.
        let bytes = self.header.used_stack_bytes.saturating_mul(3) / 2;
        // SAFETY: *phase owns*: the slot is in reading, where no handler writes, and `&mut self`
        // shows that no reference into the area is alive.
        unsafe { self.slot.enlarge_stack_area(bytes) }
    }

    /// Returns the labels, oldest first.
    pub(crate) fn labels(&self) -> &[CapturedLabel] {
        // SAFETY: *phase owns*: the slot is in reading, and the handler wrote this many labels.
        unsafe {
            std::slice::from_raw_parts(self.slot.area(LABELS_OFFSET).cast(), self.header.labels)
        }
    }

    /// Returns the static and the dynamic text of a label.
    pub(crate) fn texts_of(&self, label: &CapturedLabel) -> (&[u8], &[u8]) {
        // SAFETY: *phase owns*: the slot is in reading, and the handler wrote this many bytes.
        let all = unsafe {
            std::slice::from_raw_parts(self.slot.area(TEXT_OFFSET), self.header.text_bytes)
        };
        let text = all.get(label.text_start as usize..).unwrap_or_default();
        let (fixed, rest) = text
            .split_at_checked(label.label_bytes as usize)
            .unwrap_or_default();
        (
            fixed,
            rest.get(..label.dynamic_bytes as usize).unwrap_or_default(),
        )
    }
}

impl Drop for CapturedView<'_> {
    fn drop(&mut self) {
        let captures_since_deep = match self.slot.captures_since_deep.load(Ordering::Relaxed) {
            _ if self.header.stack_bytes > RETAINED_STACK_BYTES => 1,
            0 => 0,
            CAPTURES_BEFORE_RELEASE => {
                // SAFETY: *phase owns*: the slot is still in reading, so no handler writes; this
                // view ends here.
                unsafe { self.slot.discard_stack_beyond(RETAINED_STACK_BYTES) };
                0
            }
            count => count + 1,
        };
        self.slot
            .captures_since_deep
            .store(captures_since_deep, Ordering::Relaxed);
        self.slot.state.finish_reading(self.sequence);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns which of these places of a slot's stack area hold what was written there, after
    /// `release`.
    fn kept_after(release: fn(&CaptureSlot), deep: u32) -> [bool; 3] {
        let slot = CaptureSlot::create().expect("memory");
        slot.prepare_for_stack_of(MAX_STACK_BYTES);
        slot.captures_since_deep.store(deep, Ordering::Relaxed);
        let places = [
            FIRST_STACK_BYTES - 1,
            RETAINED_STACK_BYTES - 1,
            MAX_STACK_BYTES - 1,
        ];
        let places = places.map(|offset| slot.stack_area().wrapping_add(offset));
        for place in places {
            // SAFETY: *phase owns*: no request was made to this slot, which no other thread knows;
            // *placed*: the area is `MAX_STACK_BYTES` long.
            unsafe { place.write(1) };
        }
        release(slot);
        // SAFETY: as above.
        places.map(|place| unsafe { place.read() } == 1)
    }

    #[test]
    fn slot_that_stays_free_keeps_only_its_head() {
        use crate::platform::StackBounds;

        let slot = CaptureSlot::create().expect("memory");
        let places = [
            slot.stack_area(),
            slot.area(LABELS_OFFSET),
            slot.area(TEXT_OFFSET),
        ];
        // SAFETY: *phase owns*: no request was made to this slot, which no other thread knows;
        // *placed*: the areas begin at these places.
        let write = || places.iter().for_each(|place| unsafe { place.write(1) });
        // SAFETY: as above.
        let read = || places.map(|place| unsafe { place.read() });
        slot.bind_simulated(5, StackBounds { low: 8, top: 16 });
        write();
        slot.release_memory();
        assert_eq!(read(), [0; 3]);
        assert!(slot.state.request().is_some(), "the slot works as before");
        slot.state.retire();
        write();
        slot.release_memory();
        assert_eq!(read(), [1; 3], "no thread had the slot meanwhile");
    }

    #[test]
    fn exit_releases_more_than_idleness() {
        let idle = CaptureSlot::release_deep_stack;
        assert_eq!(
            kept_after(idle, 0),
            [true, true, true],
            "nothing to release"
        );
        assert_eq!(kept_after(idle, 1), [true, true, false]);
        let exit = CaptureSlot::release_stack_at_exit;
        for deep in [0, 1] {
            assert_eq!(kept_after(exit, deep), [true, false, false]);
        }
    }
}
