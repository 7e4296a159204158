//! The few instructions of x86_64 that tell where a frame is.

use crate::unwind::machine_code::{Call, Prologue};

/// The longest call has so many bytes that tell it from other instructions.
pub(super) const MAX_CALL_BYTES: usize = 7;

const ENDBR64: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];
const PUSH_RBP: u8 = 0x55;
/// `mov rbp, rsp` in its two codings.
const MOV_RBP_RSP: [[u8; 3]; 2] = [[0x48, 0x89, 0xe5], [0x48, 0x8b, 0xec]];

/// Whether no instruction moves the stack pointer by a register. Looks at every byte as if an instruction began there, so
/// that it may say no where yes is true.
pub(super) fn has_fixed_frame(code: &[u8]) -> bool {
    const RSP: u8 = 4;
    !code.windows(4).any(|bytes| {
        let &[prefix, operation, mode, scale] = bytes else {
            return false;
        };
        // 64 bits wide; the other bits of the prefix make registers the upper eight.
        if prefix & 0xf8 != 0x48 {
            return false;
        }
        let (register, place) = (mode >> 3 & 7, mode & 7);
        let to_rsp = register == RSP && prefix & 4 == 0;
        let at_rsp = mode >> 6 == 3 && place == RSP && prefix & 1 == 0;
        match operation {
            // `mov rsp, rbp` only gives back.
            0x89 => at_rsp && mode != 0xec,
            // add, and, sub, xchg with a register
            0x01 | 0x21 | 0x29 | 0x87 => at_rsp,
            0x03 | 0x23 | 0x2b | 0x8b => to_rsp,
            // and with a number: a stack that is aligned anew
            0x81 | 0x83 => at_rsp && register == 4,
            // `lea` of a distance from `rbp` or `rsp` is fixed.
            0x8d => {
                let from_rbp = place == 5 && matches!(mode >> 6, 1 | 2);
                let from_rsp = place == 4 && scale == 0x24;
                to_rsp && !((from_rbp || from_rsp) && prefix & 3 == 0)
            }
            _ => false,
        }
    })
}

/// The call that ends with these bytes, before `return_address`.
pub(super) fn call_ending(bytes: &[u8; MAX_CALL_BYTES], return_address: u64) -> Option<Call> {
    if let [.., 0xe8, a, b, c, d] = *bytes {
        let distance = i32::from_le_bytes([a, b, c, d]);
        return Some(Call::Direct(
            return_address.wrapping_add_signed(distance.into()),
        ));
    }
    if let [.., 0xff, 0x15, a, b, c, d] = *bytes {
        return Some(Call::Through(
            return_address.wrapping_add_signed(i32::from_le_bytes([a, b, c, d]).into()),
        ));
    }
    // `call` through a register or memory: its second byte says how long the address is.
    let is_call = |code: &[u8]| {
        let [0xff, mode, rest @ ..] = code else {
            return false;
        };
        let (shape, place) = (mode >> 6, mode & 7);
        let has_scale = shape != 3 && place == 4;
        let is_far_base = has_scale && rest.first().is_some_and(|scale| scale & 7 == 5);
        let distance = match shape {
            0 if place == 5 || is_far_base => 4,
            0 | 3 => 0,
            1 => 1,
            _ => 4,
        };
        mode >> 3 & 7 == 2 && code.len() == 2 + usize::from(has_scale) + distance
    };
    (2..=MAX_CALL_BYTES)
        .any(|length| is_call(&bytes[MAX_CALL_BYTES - length..]))
        .then_some(Call::Indirect)
}

/// The word that a jump here goes through, as in a procedure linkage table.
pub(super) fn jump_through(bytes: &[u8], address: u64) -> Option<u64> {
    const BND: [u8; 1] = [0xf2];
    let code = bytes.strip_prefix(&ENDBR64).unwrap_or(bytes);
    let code = code.strip_prefix(&BND).unwrap_or(code);
    let [0xff, 0x25, a, b, c, d, rest @ ..] = code else {
        return None;
    };
    let end = address + (bytes.len() - rest.len()) as u64;
    Some(end.wrapping_add_signed(i32::from_le_bytes([*a, *b, *c, *d]).into()))
}

/// How many bytes of a function's beginning [`prologue`] looks at.
pub(super) const PROLOGUE_BYTES: usize = 8;

/// What a function that begins with these bytes does first.
pub(super) fn prologue(bytes: &[u8; PROLOGUE_BYTES]) -> Prologue {
    let landing = if bytes[..4] == ENDBR64 { 4 } else { 0 };
    let pushes = bytes[landing] == PUSH_RBP;
    let keeps_frame = pushes
        && MOV_RBP_RSP
            .iter()
            .any(|code| bytes[landing + 1..].starts_with(code));
    Prologue {
        push_at: landing,
        pushed_at: pushes.then_some(landing + 1),
        framed_at: keeps_frame.then_some(landing + 4),
    }
}

/// Whether the instruction here is a return.
pub(super) fn is_return(bytes: &[u8]) -> bool {
    matches!(bytes, [0xc3 | 0xc2, ..] | [0xf3, 0xc3, ..])
}

/// Whether the frame pointer is about to be pushed here.
pub(super) fn is_frame_push(bytes: &[u8]) -> bool {
    bytes.strip_prefix(&ENDBR64).unwrap_or(bytes).first() == Some(&PUSH_RBP)
}

/// Whether the frame pointer has just been pushed, by the instruction before, and is about to be set here.
pub(super) fn is_frame_set(before: &[u8], bytes: &[u8]) -> bool {
    before.last() == Some(&PUSH_RBP) && MOV_RBP_RSP.iter().any(|code| bytes.starts_with(code))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stack_pointer_that_moves_by_a_register_is_found() {
        let dynamic: [&[u8]; 7] = [
            &[0x48, 0x29, 0xc4],       // sub rsp, rax
            &[0x4c, 0x29, 0xc4],       // sub rsp, r8
            &[0x48, 0x89, 0xc4],       // mov rsp, rax
            &[0x49, 0x8b, 0xe0],       // mov rsp, r8
            &[0x48, 0x83, 0xe4, 0xe0], // and rsp, -32
            &[0x48, 0x8d, 0x24, 0x04], // lea rsp, [rsp + rax]
            &[0x49, 0x8d, 0x65, 0x10], // lea rsp, [r13 + 16]
        ];
        let fixed: [&[u8]; 8] = [
            &[0x48, 0x83, 0xec, 0x20],       // sub rsp, 32
            &[0x48, 0x81, 0xc4, 0, 1, 0, 0], // add rsp, 256
            &[0x48, 0x89, 0xec],             // mov rsp, rbp
            &[0x48, 0x89, 0xe5],             // mov rbp, rsp
            &[0x48, 0x8d, 0x65, 0xd8],       // lea rsp, [rbp - 40]
            &[0x48, 0x8d, 0x64, 0x24, 0x80], // lea rsp, [rsp - 128]
            &[0x48, 0x8d, 0x44, 0x24, 0x08], // lea rax, [rsp + 8]
            &[0x49, 0x29, 0xc4],             // sub r12, rax
        ];
        let among_others =
            |code: &[u8]| [&[0x55, 0x90][..], code, &[0x90, 0x5d, 0xc3, 0x90]].concat();
        for code in dynamic {
            assert!(!has_fixed_frame(&among_others(code)), "{code:x?}");
        }
        for code in fixed {
            assert!(has_fixed_frame(&among_others(code)), "{code:x?}");
        }
    }
}
