//! Frames of code without call frame information, where they are proven.
//!
//! In a module, a frame pointer is believed when the call that the return address follows names the very function that the
//! address lies in, and that function begins by setting its frame pointer up. So a frame pointer that belongs to an older
//! frame, as in code built without frame pointers, is never mistaken for this one's; calls through pointers are not
//! followed. Generated code promises to keep frame pointers; there, any call will do.
//!
//! In the few instructions between a function's giving its frame pointer back and its return, the frame pointer is its
//! caller's. So where a return address is on top of the stack, or what looks like one, the frame pointer of the innermost
//! frame is not believed.

use crate::unwind::machine_code::{Call, call_before};
use crate::unwind::native_stack::StackCopy;
use crate::unwind::register_file::{HAS_LINK_REGISTER, RETURN_ADDRESS, RegisterFile, without_signature};
use crate::unwind::rule::CodeShape;

/// Who may have made the call that a frame pointer leads to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Believe {
    /// One that names this function.
    CallTo(u64),
    /// Any.
    AnyCall,
}

/// Goes to the caller; gives where it goes on. `is_code` says whether an address lies in known code.
pub(super) fn follow_frame(
    shape: CodeShape,
    believe: Believe,
    exact: bool,
    registers: &mut RegisterFile,
    stack: StackCopy<'_>,
    mut is_code: impl FnMut(u64) -> bool,
) -> Option<u64> {
    let sp = registers.sp();
    let mut returns_to = |address: u64| {
        let is_call = is_code(address.wrapping_sub(1));
        if is_call { call_before(address) } else { None }
    };
    let (return_address, fp, callers_sp) = match shape {
        CodeShape::Unknown => return None,
        CodeShape::AtCall if HAS_LINK_REGISTER => (registers.get(RETURN_ADDRESS)?, registers.fp(), sp),
        CodeShape::AtCall => (stack.word_at(sp)?, registers.fp(), sp.checked_add(8)?),
        CodeShape::Pushed => {
            (stack.word_at(sp.checked_add(8)?)?, Some(stack.word_at(sp)?), sp.checked_add(16)?)
        }
        CodeShape::Framed { .. } => {
            let frame = registers.fp().filter(|fp| *fp >= sp && fp.is_multiple_of(8))?;
            if exact && !HAS_LINK_REGISTER && stack.word_at(sp).is_none_or(|word| returns_to(word).is_some())
            {
                return None;
            }
            let above = frame.checked_add(8)?;
            (stack.word_at(above)?, Some(stack.word_at(frame)?), above.checked_add(8)?)
        }
    };
    let return_address = without_signature(return_address);
    let call = returns_to(return_address)?;
    let is_proven = match (shape, believe) {
        (CodeShape::Framed { .. }, Believe::CallTo(function)) => call == Call::Direct(function),
        _ => true,
    };
    if !is_proven {
        return None;
    }
    registers.forget_but(callers_sp, fp);
    Some(return_address)
}
