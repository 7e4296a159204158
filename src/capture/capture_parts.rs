//! The parts of a thread that a capture contains: a header, the stack, the labels and their texts.

use crate::capture::event_delay::EventLoopState;
use crate::labels::{ContextWords, ScriptLocation};
use crate::platform::Registers;
use crate::types::{FrameFlags, StackAddress, TimeStamp};

/// Parts of a thread to copy in addition to its registers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CaptureParts {
    pub(crate) stack: bool,
    pub(crate) labels: bool,
}

/// Values that the handler records in addition to the copies.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct CaptureHeader {
    pub(crate) registers: Registers,
    /// When the thread was interrupted.
    pub(crate) time: TimeStamp,
    /// The thread's CPU time, in ns; 0 if the handler did not read it. The handler reads it if an event
    /// interrupted the thread, and for a request by signal that is answered late, or where the system
    /// hides whether threads sleep.
    pub(crate) cpu_ns: u64,
    /// How long the handler took from `time` to the end of its copies, in ns: in CPU time if it read
    /// that, otherwise in wall-clock time; 0 in a remote capture.
    pub(crate) handler_ns: u64,
    /// State of the thread's event loop at `time`.
    pub(crate) event_loop: EventLoopState,
    /// The thread's context at `time`.
    pub(crate) context: ContextWords,
    /// Stack address of the first copied byte; 0 when no memory there was readable.
    pub(crate) stack_start: u64,
    pub(crate) stack_bytes: usize,
    /// Size of the used part of the thread's stack, in bytes; 0 on another stack. The copy is
    /// shorter if the slot was full: then the oldest part is missing.
    pub(crate) used_stack_bytes: usize,
    /// Whether the stack pointer lay outside the thread's stack: on a signal stack or in a
    /// coroutine. False if the bounds of that stack are not known.
    pub(crate) on_other_stack: bool,
    /// The thread's thread pointer; 0 in a remote capture.
    pub(crate) thread_pointer: u64,
    /// Number of copied labels, and the size of their texts in bytes.
    pub(crate) labels: usize,
    pub(crate) text_bytes: usize,
    /// Whether the newest labels are missing because the slot was full.
    pub(crate) labels_left_out: bool,
}

impl CaptureHeader {
    /// Returns whether the oldest part of the thread's stack is missing because the slot was full.
    pub(crate) fn stack_left_out(&self) -> bool {
        self.stack_bytes < self.used_stack_bytes
    }
}

/// A copied label or script frame. The static and the dynamic text of a label are in the text area.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct CapturedLabel {
    pub(crate) stack_address: StackAddress,
    /// Offset of the static text in the text area; the dynamic text follows it.
    pub(crate) text_start: u32,
    /// Length of the static text.
    pub(crate) label_bytes: u32,
    pub(crate) dynamic_bytes: u32,
    pub(crate) category: u8,
    pub(crate) subcategory: u8,
    pub(crate) flags: FrameFlags,
    /// Location of a script frame; unspecified for a label.
    pub(crate) location: ScriptLocation,
}

impl CapturedLabel {
    /// Returns the location of a script frame; `None` for a label.
    pub(crate) fn script(&self) -> Option<ScriptLocation> {
        self.flags.has(FrameFlags::SCRIPT).then_some(self.location)
    }
}
