//! A capture that has arrived, to read from; and what becomes of the memory that a deep one took.
//!
//! **Contract**: as `capture_slot.rs`: *phase owns*, *placed*.

use std::sync::atomic::Ordering;

use crate::threads::capture::{CaptureHeader, CapturedLabel};
use crate::threads::capture_slot::{
    CAPTURES_WITHOUT, CaptureSlot, KEPT_STACK_BYTES, LABELS_OFFSET, STACK_OFFSET, TEXT_OFFSET,
};

impl CaptureSlot {
    /// Ready to reading: what was captured. The view's end is the move to idle.
    pub(crate) fn captured(&self) -> Option<CapturedView<'_>> {
        let sequence = self.state.take()?;
        // SAFETY: *phase owns*: reading, by the move just made.
        let header = unsafe { &*self.header.get() };
        Some(CapturedView {
            slot: self,
            header,
            sequence,
        })
    }

    /// Gives back what deep stacks took, for a thread that rests or ends; nothing while a capture is made or read.
    pub(crate) fn give_back_deep_stack(&self) {
        if self.since_deep.load(Ordering::Relaxed) == 0 {
            return;
        }
        // Nobody else writes or reads from here on.
        let Some(sequence) = self.state.begin_from_outside() else {
            return;
        };
        self.since_deep.store(0, Ordering::Relaxed);
        // SAFETY: *phase owns*: writing, by the move just made.
        unsafe { self.region.give_back_from(STACK_OFFSET + KEPT_STACK_BYTES) };
        self.state.abandon(sequence);
    }
}

/// A capture that is ready, to read from. Dropping it frees the slot for the next request.
pub(crate) struct CapturedView<'a> {
    slot: &'a CaptureSlot,
    header: &'a CaptureHeader,
    sequence: u32,
}

impl CapturedView<'_> {
    pub(crate) fn header(&self) -> &CaptureHeader {
        self.header
    }

    /// The copied part of the stack, from `header().stack_start` on.
    pub(crate) fn stack(&self) -> &[u8] {
        // SAFETY: *phase owns*: reading; the handler wrote so many bytes.
        unsafe { std::slice::from_raw_parts(self.slot.area(STACK_OFFSET), self.header.stack_bytes) }
    }

    /// The labels, oldest first.
    pub(crate) fn labels(&self) -> &[CapturedLabel] {
        // SAFETY: *phase owns*: reading; the handler wrote so many labels.
        unsafe {
            std::slice::from_raw_parts(self.slot.area(LABELS_OFFSET).cast(), self.header.labels)
        }
    }

    /// A label's static and dynamic text.
    pub(crate) fn texts_of(&self, label: &CapturedLabel) -> (&[u8], &[u8]) {
        // SAFETY: *phase owns*: reading; the handler wrote so many bytes.
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
        let since_deep = match self.slot.since_deep.load(Ordering::Relaxed) {
            _ if self.header.stack_bytes > KEPT_STACK_BYTES => 1,
            0 => 0,
            CAPTURES_WITHOUT => {
                // SAFETY: *phase owns*: still reading, so that no handler writes, and this view ends here.
                unsafe {
                    self.slot
                        .region
                        .give_back_from(STACK_OFFSET + KEPT_STACK_BYTES)
                };
                0
            }
            count => count + 1,
        };
        self.slot.since_deep.store(since_deep, Ordering::Relaxed);
        self.slot.state.give_back(self.sequence);
    }
}
