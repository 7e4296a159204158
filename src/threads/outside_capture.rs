//! A thread that sleeps is captured from outside: the sampler reads its stack and labels, and the thread is not woken.
//!
//! Nothing that is read is trusted: the thread may wake at any moment, change what is read, or end. So all of it comes by
//! guarded copies, and counts only if the thread turns out not to have run meanwhile.
//!
//! **Contract** (cited below, beside `capture_slot.rs`'s *phase owns* and *placed*):
//! - *plain numbers*: what is copied into a local is a type for which any bytes are a value.

use std::sync::atomic::Ordering;

use crate::base::TimeStamp;
use crate::platform::{MemoryPiece, Registers, read_guarded};
use crate::threads::capture::CaptureHeader;
use crate::threads::capture_slot::{
    CaptureSlot, MAX_LABELS, STACK_OFFSET, SlotWriter, fitting_texts_in_handler,
};
use crate::threads::profiling_stack::StackFromOutside;
use crate::threads::profiling_stack_frame::ProfilingStackFrame;

impl CaptureSlot {
    /// Idle to ready, by the sampler, for a thread that is blocked in the kernel with these registers. `stood_still` is
    /// asked after the last byte was read: whether the thread cannot have run since before the first. False when it may
    /// have, or the slot was not idle.
    pub(crate) fn capture_from_outside(
        &self,
        registers: Registers,
        time: TimeStamp,
        stood_still: impl FnOnce() -> bool,
    ) -> bool {
        let Some(sequence) = self.state.begin_from_outside() else {
            return false;
        };
        let event_loop = self.event_delay().state_in_handler();
        let header = CaptureHeader {
            registers,
            time,
            event_loop,
            ..CaptureHeader::default()
        };
        let mut writer = SlotWriter {
            slot: self,
            sequence,
            header,
        };
        let whole = writer.copy_from_outside().is_some() && stood_still();
        if whole {
            writer.publish_in_handler();
        } else {
            self.state.abandon(sequence);
        }
        whole
    }
}

impl SlotWriter<'_> {
    fn copy_from_outside(&mut self) -> Option<()> {
        match self.used_stack_in_handler() {
            Some(piece) => {
                // SAFETY: *phase owns*; the area is *placed* and has room for the piece.
                let copied = unsafe { read_guarded(&[piece], self.slot.area(STACK_OFFSET)) };
                (self.header.stack_start, self.header.stack_bytes) = (piece.address, copied & !7);
                (copied == piece.bytes).then_some(())?;
            }
            None => self.copy_other_stack_in_handler(),
        }
        self.copy_labels_from_outside()
    }

    /// `None` when something was not readable: then the labels were changing.
    fn copy_labels_from_outside(&mut self) -> Option<()> {
        let address = self.slot.profiling_stack.load(Ordering::Acquire) as u64;
        if address == 0 {
            return Some(());
        }
        let [stack] = read_all::<StackFromOutside>(address, 1)?[..] else {
            return None;
        };
        if stack.depth == 0 || stack.frames == 0 {
            return Some(());
        }
        let depth = (stack.depth as usize).min(MAX_LABELS);
        self.header.labels_left_out = stack.depth as usize > depth;
        let frames = read_all::<ProfilingStackFrame>(stack.frames, depth)?;
        let mut bytes = 0;
        let mut pieces = Vec::with_capacity(2 * depth);
        let mut lengths = Vec::with_capacity(depth);
        for frame in &frames {
            let (dynamic, dynamic_bytes) = frame.text_range_in_handler();
            let fitting =
                fitting_texts_in_handler(bytes, frame.label_bytes as usize, dynamic_bytes);
            let address = stack.text.wrapping_add(dynamic as u64);
            for piece in [
                MemoryPiece {
                    address: frame.label_address,
                    bytes: fitting.0,
                },
                MemoryPiece {
                    address,
                    bytes: fitting.1,
                },
            ] {
                bytes += piece.bytes;
                pieces.extend((piece.bytes > 0).then_some(piece));
            }
            lengths.push(fitting);
        }
        let mut texts = vec![0; bytes];
        // SAFETY: the vector has room for all pieces.
        if unsafe { read_guarded(&pieces, texts.as_mut_ptr()) } < bytes {
            return None;
        }
        let mut rest = &texts[..];
        for (frame, (label, dynamic)) in frames.iter().zip(lengths) {
            let (label, after) = rest.split_at(label);
            let (dynamic, after) = after.split_at(dynamic);
            rest = after;
            self.copy_label_in_handler(frame, (label, dynamic));
        }
        Some(())
    }
}

/// So many values from an address of another thread's; `None` when they are not readable. `T` holds plain numbers.
fn read_all<T: Copy + Default>(address: u64, count: usize) -> Option<Vec<T>> {
    let mut values = vec![T::default(); count];
    let bytes = size_of_val(&values[..]);
    // SAFETY: *plain numbers*; the vector has room for so many bytes.
    let copied = unsafe {
        read_guarded(
            &[MemoryPiece { address, bytes }],
            values.as_mut_ptr().cast(),
        )
    };
    (copied == bytes).then_some(values)
}
