//! Analyzes machine code to find frames where call frame information is missing.
//!
//! Code is read with the kernel's help, because it may have been unmapped. A frame counts only if
//! it is proven: a value that looks like a return address may be left over from an earlier call.

use std::ops::Range;

use crate::platform::read_own_memory;
use crate::unwind::cfi::CodeShape;
use crate::unwind::frame_pointer::instructions::Call;
use crate::unwind::frame_pointer::machine_code_arch as arch;

/// Number of bytes that are read at the address of an instruction.
const CODE_WINDOW_BYTES: usize = 16;

/// Returns whether the instruction calls the function at `function`. `is_linker_owned` tells
/// whether only the dynamic linker writes the word at an address, so that the word, once read,
/// stays valid.
pub(crate) fn is_call_to(
    call: Call,
    function: u64,
    mut is_linker_owned: impl FnMut(u64) -> bool,
) -> bool {
    let slot = match call {
        Call::Direct(callee) if callee == function => return true,
        // The callee may be an entry of a procedure linkage table.
        Call::Direct(callee) => jump_at(callee),
        Call::Through(slot) => Some(slot),
        Call::Indirect => None,
    };
    let mut word = [0; 8];
    slot.is_some_and(|slot| {
        is_linker_owned(slot)
            && read_own_memory(slot, &mut word)
            && u64::from_ne_bytes(word) == function
    })
}

/// Returns the address of the word that holds the target of the jump at `address`.
fn jump_at(address: u64) -> Option<u64> {
    let (bytes, read) = code_at(address);
    arch::jump_through(&bytes[..read], address)
}

/// Returns the call instruction before a return address.
pub(crate) fn call_before(return_address: u64) -> Option<Call> {
    let mut bytes = [0; arch::MAX_CALL_BYTES];
    let start = return_address.checked_sub(bytes.len() as u64)?;
    read_own_memory(start, &mut bytes).then(|| arch::call_ending(&bytes, return_address))?
}

/// Returns the callees of all direct calls in the code. Tries each byte as the start of an
/// instruction, so some of the addresses may be no callees.
pub(crate) fn direct_callees(code: &Range<u64>) -> Vec<u64> {
    // A window ends at each possible end of a call.
    let start = code.start - (arch::MAX_CALL_BYTES - arch::DIRECT_CALL_BYTES) as u64;
    let length = code.end.saturating_sub(start);
    if length > MAX_FUNCTION_BYTES {
        return Vec::new();
    }
    let mut bytes = vec![0; length as usize];
    if !read_own_memory(start, &mut bytes) {
        return Vec::new();
    }
    let ends = (code.start + arch::DIRECT_CALL_BYTES as u64)..=code.end;
    let callee = |(window, end): (&[u8], u64)| match arch::call_ending(window.try_into().ok()?, end)
    {
        Some(Call::Direct(callee)) => Some(callee),
        _ => None,
    };
    bytes
        .windows(arch::MAX_CALL_BYTES)
        .zip(ends)
        .filter_map(callee)
        .collect()
}

/// Returns the function that the code at a return address calls at once, with the returned value as
/// its first argument.
pub(crate) fn call_with_result_at(return_address: u64) -> Option<u64> {
    let (bytes, read) = code_at(return_address);
    arch::call_with_result(&bytes[..read], return_address)
}

/// Reads up to [`CODE_WINDOW_BYTES`] from `address` on, and returns them with their number.
fn code_at(address: u64) -> ([u8; CODE_WINDOW_BYTES], usize) {
    let mut bytes = [0; CODE_WINDOW_BYTES];
    // The code's last page may end within the window, so shorter reads are tried, too.
    let lengths = [CODE_WINDOW_BYTES, 4, 1];
    let read = lengths
        .into_iter()
        .find(|&length| read_own_memory(address, &mut bytes[..length]));
    (bytes, read.unwrap_or(0))
}

/// Maximum length of an analyzed function, in bytes; a longer one counts as having no fixed frame.
const MAX_FUNCTION_BYTES: u64 = 256 << 10;

/// Returns whether a function's frame always has the same size at the same instruction. This holds
/// if the function changes its stack pointer only by constants, and never by a register, as it
/// would for an array of dynamic length. Returns false if this is unknown.
pub(crate) fn has_fixed_frame(function: &Range<u64>) -> bool {
    let length = function.end.saturating_sub(function.start);
    if length > MAX_FUNCTION_BYTES {
        return false;
    }
    let mut code = vec![0; length as usize];
    read_own_memory(function.start, &mut code) && arch::has_fixed_frame(&code)
}

/// Returns the shape of the code at `address` in the function that starts at `function`, if known.
/// `is_pc` means that `address` is the next instruction to run, not a return address.
/// [`is_call_to`] describes `is_linker_owned`.
pub(crate) fn shape_in_function(
    address: u64,
    is_pc: bool,
    function: Option<u64>,
    is_linker_owned: impl FnOnce(u64) -> bool,
) -> CodeShape {
    if is_pc {
        let (bytes, read) = code_at(address);
        let here = &bytes[..read];
        // A jump through a word of the dynamic linker is a linkage table's entry or a tail call.
        // Both leave the return address on top of the stack.
        if arch::is_return(here) || arch::jump_through(here, address).is_some_and(is_linker_owned) {
            return CodeShape::NoFrame;
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
    let is_framed = |framed_at| at > framed_at || (at == framed_at && is_pc);
    if is_pc && (at == 0 || at == prologue.push_at) {
        CodeShape::NoFrame
    } else if is_pc && prologue.pushed_at == Some(at) {
        CodeShape::FramePointerPushed
    } else if prologue.framed_at.is_some_and(is_framed) {
        CodeShape::Framed { function: distance }
    } else {
        CodeShape::Unknown
    }
}

/// Returns the shape of the code at `address` in generated code, which always keeps frame pointers.
/// `start` is the start of its range.
pub(crate) fn shape_in_generated(address: u64, is_pc: bool, start: u64) -> CodeShape {
    let framed = CodeShape::Framed { function: 0 };
    if !is_pc {
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
        CodeShape::NoFrame
    } else if address > start && arch::is_frame_set(before, here) {
        CodeShape::FramePointerPushed
    } else {
        framed
    }
}
