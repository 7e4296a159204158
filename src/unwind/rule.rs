//! How the caller of a frame is found, in so few bytes that a cache of them stays small.

use crate::unwind::native_stack::StackCopy;
use crate::unwind::register_file::{
    HAS_LINK_REGISTER, RETURN_ADDRESS, RegisterFile, without_signature,
};

/// What is known of a place in code.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Rule {
    /// Call frame information says that there is no caller.
    Root,
    /// The caller's frame begins so far above the stack pointer.
    FromStackPointer(Places),
    /// The caller's frame begins so far above the frame pointer.
    FromFramePointer(Places),
    /// Call frame information says more than the two above can hold.
    Evaluate,
    /// Call frame information does not speak of it.
    Uncovered(CodeShape),
    /// Machine code outside of every module, which the host told of.
    Generated,
}

const _: () = assert!(size_of::<Rule>() == 8);

/// Where things are, in words from the beginning of the caller's frame, the *canonical frame address*.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Places {
    /// From the register that the rule is about to the canonical frame address.
    pub(super) frame: u16,
    /// From there to the caller's frame pointer; 0 when the register still holds it.
    pub(super) fp: i16,
    /// From there to the return address; 0 when the link register still holds it.
    pub(super) return_address: i16,
}

/// What the instructions of a function without call frame information tell.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum CodeShape {
    Unknown,
    /// About to run its first instruction, its return, or the jump of a linkage table: the return address is where a call
    /// puts it.
    AtCall,
    /// The frame pointer has been pushed, and nothing else done.
    Pushed,
    /// Within a function that keeps a frame pointer and began so many bytes before.
    Framed {
        function: u16,
    },
}

impl Places {
    /// Goes to the caller of the frame whose register, that the rule is about, holds `base`; gives where the caller goes
    /// on. `exact` is a frame that was interrupted, not one that calls.
    #[inline]
    pub(super) fn follow(
        self,
        base: u64,
        registers: &mut RegisterFile,
        stack: StackCopy<'_>,
        exact: bool,
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
        // A call takes room on the stack, except where a register holds the return address.
        let may_stay = HAS_LINK_REGISTER && exact;
        if frame < registers.sp() || (frame == registers.sp() && !may_stay) {
            return None;
        }
        registers.forget_but(frame, fp);
        Some(without_signature(return_address))
    }
}
