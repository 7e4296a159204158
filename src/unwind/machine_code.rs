//! What machine code tells of frames where call frame information says nothing.
//!
//! Code is read with the kernel's help, since it may be gone. A frame counts only if it is proven: what looks like a
//! return address may be left over from a call that is long done.

use std::ops::Range;

use crate::platform::read_own_memory;
use crate::unwind::machine_code_arch as arch;
use crate::unwind::rule::CodeShape;

/// So many bytes from an instruction on are looked at.
const LOOK_BYTES: usize = 16;

/// An instruction that calls.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Call {
    /// It names what it calls.
    Direct(u64),
    /// It goes where the word at this address says.
    Through(u64),
    Indirect,
}

impl Call {
    /// Whether it calls the function at this address. `is_linked` says of a word in memory whether the dynamic linker alone
    /// writes it, and so has it say the same for ever.
    pub(super) fn is_to(self, function: u64, mut is_linked: impl FnMut(u64) -> bool) -> bool {
        let slot = match self {
            Self::Direct(callee) if callee == function => return true,
            // By way of a procedure linkage table, perhaps.
            Self::Direct(callee) => jump_at(callee),
            Self::Through(slot) => Some(slot),
            Self::Indirect => None,
        };
        let mut word = [0; 8];
        slot.is_some_and(|slot| {
            is_linked(slot)
                && read_own_memory(slot, &mut word)
                && u64::from_ne_bytes(word) == function
        })
    }
}

/// The word that says where the jump at this address goes.
fn jump_at(address: u64) -> Option<u64> {
    let (bytes, read) = code_at(address);
    arch::jump_through(&bytes[..read], address)
}

/// A function's first instructions, by their distances from its beginning.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Prologue {
    pub(super) push_at: usize,
    /// Where the frame pointer has been pushed, if it is.
    pub(super) pushed_at: Option<usize>,
    /// Where it has been set, too.
    pub(super) framed_at: Option<usize>,
}

/// The call that returns to this address.
pub(super) fn call_before(return_address: u64) -> Option<Call> {
    let mut bytes = [0; arch::MAX_CALL_BYTES];
    let start = return_address.checked_sub(bytes.len() as u64)?;
    read_own_memory(start, &mut bytes).then(|| arch::call_ending(&bytes, return_address))?
}

/// The bytes of the instruction at an address and of some that follow, as many as there are.
fn code_at(address: u64) -> ([u8; LOOK_BYTES], usize) {
    let mut bytes = [0; LOOK_BYTES];
    // The last page of the code may end here.
    let lengths = [LOOK_BYTES, 4, 1];
    let read = lengths
        .into_iter()
        .find(|&length| read_own_memory(address, &mut bytes[..length]));
    (bytes, read.unwrap_or(0))
}

/// A function whose code is longer than this is taken to do anything.
const LONGEST_FUNCTION: u64 = 256 << 10;

/// Whether a function's frame has the same size each time that it comes by the same instruction: it moves its stack
/// pointer by numbers in its code alone, never by a register, as for an array whose length is not known before. False
/// also where that cannot be told.
pub(super) fn has_fixed_frame(function: &Range<u64>) -> bool {
    let length = function.end.saturating_sub(function.start);
    if length > LONGEST_FUNCTION {
        return false;
    }
    let mut code = vec![0; length as usize];
    read_own_memory(function.start, &mut code) && arch::has_fixed_frame(&code)
}

/// The shape of code in a function that begins at `function`, if that is known. `exact` is an instruction that is about to
/// run, not one that a call returns to. `is_linked` as above.
pub(super) fn shape_in_function(
    address: u64,
    exact: bool,
    function: Option<u64>,
    is_linked: impl FnOnce(u64) -> bool,
) -> CodeShape {
    if exact {
        let (bytes, read) = code_at(address);
        let here = &bytes[..read];
        // A jump to what the dynamic linker has found is a linkage table's, or a function's last call; both leave the
        // return address to the callee.
        if arch::is_return(here) || arch::jump_through(here, address).is_some_and(is_linked) {
            return CodeShape::AtCall;
        }
    }
    let Some(function) = function else {
        return CodeShape::Unknown;
    };
    let Ok(distance) = u16::try_from(address - function) else {
        return CodeShape::Unknown;
    };
    let mut beginning = [0; arch::PROLOGUE_BYTES];
    if !read_own_memory(function, &mut beginning) {
        return CodeShape::Unknown;
    }
    let prologue = arch::prologue(&beginning);
    let at = usize::from(distance);
    let is_framed = |framed_at| at > framed_at || (at == framed_at && exact);
    if exact && (at == 0 || at == prologue.push_at) {
        CodeShape::AtCall
    } else if exact && prologue.pushed_at == Some(at) {
        CodeShape::Pushed
    } else if prologue.framed_at.is_some_and(is_framed) {
        CodeShape::Framed { function: distance }
    } else {
        CodeShape::Unknown
    }
}

/// The shape of generated code, all of which keeps frame pointers. `start` is where its range begins.
pub(super) fn shape_in_generated(address: u64, exact: bool, start: u64) -> CodeShape {
    let framed = CodeShape::Framed { function: 0 };
    if !exact {
        return framed;
    }
    let (bytes, read) = code_at(address);
    let here = &bytes[..read];
    let mut before = [0; 4];
    let before: &[u8] = match address.checked_sub(4) {
        Some(at) if read_own_memory(at, &mut before) => &before,
        _ => &[],
    };
    if address == start || arch::is_return(here) || arch::is_frame_push(here) {
        CodeShape::AtCall
    } else if address > start && arch::is_frame_set(before, here) {
        CodeShape::Pushed
    } else {
        framed
    }
}
