//! Remote captures: the sampler reads the stack and labels of a blocked thread without waking it.
//!
//! The data are not trusted: the thread may wake at any moment, change the data, or exit. So all
//! reads are guarded against unmapped memory, and the capture counts only if the thread turns out
//! not to have run since the first read.
//!
//! **Contract** (cited below, in addition to *phase owns* and *placed* of `capture_slot.rs`):
//! - *plain numbers*: memory is copied only into types that are [`PlainNumbers`].

use std::sync::atomic::Ordering;

use crate::capture::capture_parts::CaptureHeader;
use crate::capture::capture_slot::{CaptureSlot, MAX_LABELS, SlotWriter, fitting_texts_in_handler};
use crate::labels::ProfilingStackFrame;
use crate::labels::RemoteStack;
use crate::platform::{MemoryPiece, Registers, read_guarded};
use crate::types::TimeStamp;
use crate::util::try_vec;

impl CaptureSlot {
    /// Moves from idle to ready, for a thread that is blocked in the kernel with these registers.
    /// Called by the sampler.
    ///
    /// Calls `has_not_run` after the last read: it returns whether the thread cannot have run since
    /// before the first read. Returns false if the thread may have run, or if the slot was not
    /// idle.
    pub(crate) fn capture_remotely(
        &self,
        registers: Registers,
        time: TimeStamp,
        has_not_run: impl FnOnce() -> bool,
    ) -> bool {
        let Some(sequence) = self.state.begin_remote() else {
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
        let is_complete = writer.copy_remotely().is_some() && has_not_run();
        if is_complete {
            writer.publish_in_handler();
        } else {
            self.state.abandon(sequence);
        }
        is_complete
    }
}

impl SlotWriter<'_> {
    fn copy_remotely(&mut self) -> Option<()> {
        let piece = self.used_stack_in_handler().map(|piece| {
            // SAFETY: *phase owns*: the sampler has moved the slot to writing.
            if unsafe { self.slot.enlarge_stack_area(self.header.used_stack_bytes) } {
                // The capacity may have grown, so the piece may be longer now.
                self.used_stack_in_handler().unwrap_or(piece)
            } else {
                piece
            }
        });
        match piece {
            Some(piece) => {
                // SAFETY: *phase owns*; the area is *placed* and large enough for the piece.
                let target =
                    unsafe { std::slice::from_raw_parts_mut(self.slot.stack_area(), piece.bytes) };
                let copied = read_guarded(&[piece], target);
                (self.header.stack_start, self.header.stack_bytes) = (piece.address, copied & !7);
                (copied == piece.bytes).then_some(())?;
            }
            None => {
                self.copy_other_stack_by_in_handler(|piece, target| {
                    // SAFETY: *phase owns*; the area is *placed* and large enough for the piece.
                    let target = unsafe { std::slice::from_raw_parts_mut(target, piece.bytes) };
                    read_guarded(&[piece], target)
                });
                // If this is the thread's own stack, it is readable, or no stack is.
                let is_own = !self.header.on_other_stack;
                (self.header.stack_bytes > 0 || !is_own).then_some(())?;
            }
        }
        self.copy_labels_remotely()
    }

    /// Copies the labels; `None` when some memory was not readable, which means that the labels
    /// were changing, or when there is not enough memory.
    fn copy_labels_remotely(&mut self) -> Option<()> {
        let address = self.slot.profiling_stack.load(Ordering::Acquire) as u64;
        if address == 0 {
            return Some(());
        }
        let [stack] = read_remote::<RemoteStack>(address, 1)?[..] else {
            return None;
        };
        self.header.context = stack.context.get();
        if stack.depth == 0 || stack.frames == 0 {
            return Some(());
        }
        let depth = (stack.depth as usize).min(MAX_LABELS);
        self.header.labels_left_out = stack.depth as usize > depth;
        let frames = read_remote::<ProfilingStackFrame>(stack.frames, depth)?;
        let mut bytes = 0;
        let mut pieces = try_vec(2 * depth)?;
        let mut lengths = try_vec(depth)?;
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
        let mut texts = try_vec(bytes)?;
        texts.resize(bytes, 0);
        if read_guarded(&pieces, &mut texts) < bytes {
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

/// A type whose value is valid whatever its bytes are.
///
/// # Safety
/// - All fields are integers, or structures and arrays of integers.
unsafe trait PlainNumbers: Copy + Default {}

// SAFETY: the fields are integers, and a structure of integers.
unsafe impl PlainNumbers for RemoteStack {}
// SAFETY: the fields are integers, and structures of integers.
unsafe impl PlainNumbers for ProfilingStackFrame {}

/// Reads `count` values from an address in another thread's memory; `None` when they are not
/// readable, or when there is not enough memory.
fn read_remote<T: PlainNumbers>(address: u64, count: usize) -> Option<Vec<T>> {
    let mut values = try_vec(count)?;
    values.resize(count, T::default());
    let bytes = size_of_val(&values[..]);
    // SAFETY: *plain numbers*; the vector has exactly this many bytes.
    let target = unsafe { std::slice::from_raw_parts_mut(values.as_mut_ptr().cast(), bytes) };
    let copied = read_guarded(&[MemoryPiece { address, bytes }], target);
    (copied == bytes).then_some(values)
}
