//! What is copied of a thread: a header, its stack, its labels and their texts.

use crate::base::{FrameFlags, StackAddress, TimeStamp};
use crate::platform::Registers;
use crate::threads::event_delay::EventLoopState;
use crate::threads::profiling_stack_frame::ScriptPlace;

/// What of a thread is to be copied beside its registers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CaptureParts {
    pub(crate) stack: bool,
    pub(crate) labels: bool,
}

/// What the handler notes beside the copies.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct CaptureHeader {
    pub(crate) registers: Registers,
    /// When the thread was stopped.
    pub(crate) time: TimeStamp,
    /// The thread's CPU time, where its own timer stopped it; else 0.
    pub(crate) cpu_ns: u64,
    /// What the thread's event loop did then.
    pub(crate) event_loop: EventLoopState,
    /// The stack address of the first byte of the copy; 0 when nothing there was readable.
    pub(crate) stack_start: u64,
    pub(crate) stack_bytes: usize,
    /// Whether the stack pointer lay outside of the thread's stack: on a signal stack, or a coroutine's.
    pub(crate) on_other_stack: bool,
    pub(crate) labels: usize,
    pub(crate) text_bytes: usize,
    /// Whether there were more labels than there is room for: the newest are missing.
    pub(crate) labels_left_out: bool,
}

/// A label, or a script frame, as it was copied: a label's text, static and dynamic, stands in the text area.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct CapturedLabel {
    pub(crate) stack_address: StackAddress,
    pub(super) text_start: u32,
    pub(super) label_bytes: u32,
    pub(super) dynamic_bytes: u32,
    pub(crate) category: u8,
    pub(crate) subcategory: u8,
    pub(crate) flags: FrameFlags,
    /// Of a script frame; anything of a label.
    pub(super) place: ScriptPlace,
}

impl CapturedLabel {
    /// Of a script frame, where it is.
    pub(crate) fn script(&self) -> Option<ScriptPlace> {
        self.flags.has(FrameFlags::SCRIPT).then_some(self.place)
    }
}
