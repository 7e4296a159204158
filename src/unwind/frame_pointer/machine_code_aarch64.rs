//! Decodes the few aarch64 instructions that locate a frame. Each has four bytes.

use crate::unwind::frame_pointer::{Call, Prologue};

pub(crate) const MAX_CALL_BYTES: usize = 4;
pub(crate) const DIRECT_CALL_BYTES: usize = 4;

/// Always returns false: not analyzed on this architecture.
pub(crate) fn has_fixed_frame(_: &[u8]) -> bool {
    false
}

/// Returns the call instruction that ends with these bytes, before `return_address`.
pub(crate) fn call_ending(bytes: &[u8; MAX_CALL_BYTES], return_address: u64) -> Option<Call> {
    let code = u32::from_le_bytes(*bytes);
    if code >> 26 == 0b100101 {
        // `bl`: a signed distance in words, of 26 bits.
        let distance = i64::from((code << 6) as i32 >> 6) * 4;
        return Some(Call::Direct(
            (return_address - 4).wrapping_add_signed(distance),
        ));
    }
    // `blr`, and its variants that authenticate a signed pointer.
    (code & 0xfeff_f000 == 0xd63f_0000).then_some(Call::Indirect)
}

/// Returns the callee, if the code at `address` passes the value of the last call, which is still
/// in the register of the first argument, to another function.
pub(crate) fn call_with_result(bytes: &[u8], address: u64) -> Option<u64> {
    match call_ending(bytes.first_chunk()?, address + 4)? {
        Call::Direct(callee) => Some(callee),
        _ => None,
    }
}

/// Always returns `None`: an entry of a linkage table has several instructions and is not analyzed.
pub(crate) fn jump_through(_: &[u8], _: u64) -> Option<u64> {
    None
}

pub(crate) const PROLOGUE_BYTES: usize = 8;

/// Analyzes a function's prologue. On this architecture only the state at the first instruction is
/// known.
pub(crate) fn prologue(_: &[u8; PROLOGUE_BYTES]) -> Prologue {
    Prologue {
        push_at: 0,
        pushed_at: None,
        framed_at: None,
    }
}

fn code_at(bytes: &[u8]) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.first_chunk()?))
}

/// Returns whether the instruction is a return through the link register.
pub(crate) fn is_return(bytes: &[u8]) -> bool {
    code_at(bytes) == Some(0xd65f_03c0)
}

/// Returns whether the instruction pushes the frame pointer: `stp x29, x30, [sp, #-n]!`.
pub(crate) fn is_frame_push(bytes: &[u8]) -> bool {
    code_at(bytes).is_some_and(|code| code & 0xffc0_7fff == 0xa980_7bfd)
}

/// Returns whether the instruction before pushed the frame pointer and this one sets it.
pub(crate) fn is_frame_set(before: &[u8], bytes: &[u8]) -> bool {
    const MOV_X29_SP: u32 = 0x9100_03fd;
    before
        .last_chunk::<4>()
        .is_some_and(|push| is_frame_push(push))
        && code_at(bytes) == Some(MOV_X29_SP)
}
