//! Compact unwind rules, small enough to be cached for many addresses.

use crate::unwind::native_stack::StackCopy;
use crate::unwind::register_file::{
    HAS_LINK_REGISTER, RETURN_ADDRESS, RegisterFile, strip_pointer_signature,
};

/// How to find the caller of a frame at one code address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Rule {
    /// The frame has no caller, according to call frame information.
    Root,
    /// The caller's frame starts at an offset from the stack pointer.
    FromStackPointer(FrameOffsets),
    /// The caller's frame starts at an offset from the frame pointer.
    FromFramePointer(FrameOffsets),
    /// The call frame information needs more than the two rules above can express.
    Evaluate,
    /// The code to which a signal handler returns. Its call frame information is evaluated, too.
    SignalTrampoline,
    /// The function is about to jump to an exception's handler. It may have replaced the registers
    /// and the return address that it saved with the handler's, so its caller is unknown.
    JumpsToHandler,
    /// Call frame information does not cover the address.
    Uncovered(CodeShape),
    /// The address lies in generated code that the application or the perf map announced.
    Generated,
}

const _: () = assert!(size_of::<Rule>() == 8);

/// Offsets around the start of the caller's frame, the *canonical frame address* (CFA), in words.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FrameOffsets {
    /// Offset of the CFA from the rule's register.
    pub(crate) frame: u16,
    /// Offset of the saved frame pointer from the CFA; 0 if the register still holds it.
    pub(crate) fp: i16,
    /// Offset of the return address from the CFA; 0 if the link register still holds it.
    pub(crate) return_address: i16,
}

/// State of the frame at an instruction without call frame information, derived from machine code.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CodeShape {
    Unknown,
    /// Before the function's first instruction or its return, or at the jump of a linkage table:
    /// the return address is where a call puts it.
    NoFrame,
    /// The frame pointer has been pushed but not yet set.
    FramePointerPushed,
    /// Inside a function that keeps a frame pointer.
    Framed {
        /// Distance from the function's start, in bytes.
        function: u16,
    },
}

impl FrameOffsets {
    /// Changes `registers` to the caller's and returns the return address. `base` is the value of
    /// the rule's register. `is_pc` means that the frame was interrupted and made no call.
    #[inline]
    pub(crate) fn follow(
        self,
        base: u64,
        registers: &mut RegisterFile,
        stack: StackCopy<'_>,
        is_pc: bool,
    ) -> Option<u64> {
        let frame = base.checked_add(u64::from(self.frame) * 8)?;
        let word = |words: i16| stack.word_at(frame.wrapping_add_signed(i64::from(words) * 8));
        let return_address = match self.return_address {
            0 => registers.get(RETURN_ADDRESS)?,
            words => word(words)?,
        };
        let fp = match self.fp {
            0 => registers.fp(),
            words => Some(word(words)?),
        };
        // A call uses stack space, except when a register holds the return address.
        let may_stay = HAS_LINK_REGISTER && is_pc;
        if frame < registers.sp() || (frame == registers.sp() && !may_stay) {
            return None;
        }
        registers.reset_to(frame, fp);
        Some(strip_pointer_signature(return_address))
    }
}
