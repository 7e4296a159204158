//! Decodes the few x86_64 instructions that locate a frame.

use crate::unwind::frame_pointer::{Call, Prologue};

/// Maximum number of bytes needed to recognize a call instruction.
pub(crate) const MAX_CALL_BYTES: usize = 7;
/// Length of a direct call.
pub(crate) const DIRECT_CALL_BYTES: usize = 5;

const ENDBR64: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];
const PUSH_RBP: u8 = 0x55;
/// The two encodings of `mov rbp, rsp`.
const MOV_RBP_RSP: [[u8; 3]; 2] = [[0x48, 0x89, 0xe5], [0x48, 0x8b, 0xec]];

/// Returns whether no instruction changes the stack pointer by a register. Tries each byte as the
/// start of an instruction, so it may return false for a function with a fixed frame.
pub(crate) fn has_fixed_frame(code: &[u8]) -> bool {
    const RSP: u8 = 4;
    !code.windows(4).any(|bytes| {
        let &[rex, opcode, modrm, sib] = bytes else {
            return false;
        };
        // A REX prefix with W, for 64-bit operands; its other bits select registers 8 to 15.
        if rex & 0xf8 != 0x48 {
            return false;
        }
        let (register, rm) = (modrm >> 3 & 7, modrm & 7);
        let to_rsp = register == RSP && rex & 4 == 0;
        let at_rsp = modrm >> 6 == 3 && rm == RSP && rex & 1 == 0;
        match opcode {
            // `mov rsp, rbp` only frees the frame.
            0x89 => at_rsp && modrm != 0xec,
            // `add`, `and`, `sub`, `xchg` with a register.
            0x01 | 0x21 | 0x29 | 0x87 => at_rsp,
            0x03 | 0x23 | 0x2b | 0x8b => to_rsp,
            // `and` with a constant aligns the stack.
            0x81 | 0x83 => at_rsp && register == 4,
            // `lea` of a constant offset from `rbp` or `rsp` is fixed.
            0x8d => {
                let from_rbp = rm == 5 && matches!(modrm >> 6, 1 | 2);
                let from_rsp = rm == 4 && sib == 0x24;
                to_rsp && !((from_rbp || from_rsp) && rex & 3 == 0)
            }
            _ => false,
        }
    })
}

/// Returns the call instruction that ends with these bytes, before `return_address`.
pub(crate) fn call_ending(bytes: &[u8; MAX_CALL_BYTES], return_address: u64) -> Option<Call> {
    let [.., a, b, c, d] = *bytes;
    let target = return_address.wrapping_add_signed(i32::from_le_bytes([a, b, c, d]).into());
    match bytes {
        [.., 0xe8, _, _, _, _] => return Some(Call::Direct(target)),
        [.., 0xff, 0x15, _, _, _, _] => return Some(Call::Through(target)),
        _ => {}
    }
    // A call through a register or memory: the ModRM byte determines the length of the operand.
    let is_call = |code: &[u8]| {
        let [0xff, modrm, rest @ ..] = code else {
            return false;
        };
        let (mode, rm) = (modrm >> 6, modrm & 7);
        let has_sib = mode != 3 && rm == 4;
        let is_far_base = has_sib && rest.first().is_some_and(|sib| sib & 7 == 5);
        let distance = match mode {
            0 if rm == 5 || is_far_base => 4,
            0 | 3 => 0,
            1 => 1,
            _ => 4,
        };
        modrm >> 3 & 7 == 2 && code.len() == 2 + usize::from(has_sib) + distance
    };
    (2..=MAX_CALL_BYTES)
        .any(|length| is_call(&bytes[MAX_CALL_BYTES - length..]))
        .then_some(Call::Indirect)
}

/// Returns the callee, if the code at `address` passes the value of the last call to another
/// function: `mov rdi, rax` or `mov edi, eax`, then a call.
pub(crate) fn call_with_result(bytes: &[u8], address: u64) -> Option<u64> {
    let moved = bytes
        .strip_prefix(&[0x48, 0x89, 0xc7])
        .or_else(|| bytes.strip_prefix(&[0x89, 0xc7]))?;
    at_distance(bytes, address, moved.strip_prefix(&[0xe8])?)
}

/// Returns the address of the word that holds the target of an indirect jump, as in a procedure
/// linkage table.
pub(crate) fn jump_through(bytes: &[u8], address: u64) -> Option<u64> {
    const BND: [u8; 1] = [0xf2];
    let code = bytes.strip_prefix(&ENDBR64).unwrap_or(bytes);
    let code = code.strip_prefix(&BND).unwrap_or(code);
    at_distance(bytes, address, code.strip_prefix(&[0xff, 0x25])?)
}

/// Returns the address at the distance that `operand` begins with, counted from the end of the
/// distance. The code at `address` is `bytes`, which end with `operand`.
fn at_distance(bytes: &[u8], address: u64, operand: &[u8]) -> Option<u64> {
    let (distance, rest) = operand.split_first_chunk()?;
    let end = address + (bytes.len() - rest.len()) as u64;
    Some(end.wrapping_add_signed(i32::from_le_bytes(*distance).into()))
}

/// Number of bytes from a function's start that [`prologue`] reads.
pub(crate) const PROLOGUE_BYTES: usize = 8;

/// Analyzes the prologue of a function that starts with these bytes.
pub(crate) fn prologue(bytes: &[u8; PROLOGUE_BYTES]) -> Prologue {
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

/// Returns whether the instruction is a return.
pub(crate) fn is_return(bytes: &[u8]) -> bool {
    matches!(bytes, [0xc3 | 0xc2, ..] | [0xf3, 0xc3, ..])
}

/// Returns whether the instruction pushes the frame pointer.
pub(crate) fn is_frame_push(bytes: &[u8]) -> bool {
    bytes.strip_prefix(&ENDBR64).unwrap_or(bytes).first() == Some(&PUSH_RBP)
}

/// Returns whether the instruction before pushed the frame pointer and this one sets it.
pub(crate) fn is_frame_set(before: &[u8], bytes: &[u8]) -> bool {
    before.last() == Some(&PUSH_RBP) && MOV_RBP_RSP.iter().any(|code| bytes.starts_with(code))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn call_with_result_needs_the_move_and_the_call() {
        let code = [0x48, 0x89, 0xc7, 0xe8, 0x10, 0, 0, 0, 0x90];
        assert_eq!(call_with_result(&code, 0x1000), Some(0x1018));
        assert_eq!(call_with_result(&code[1..], 0x1000), Some(0x1017));
        assert_eq!(call_with_result(&code[..7], 0x1000), None);
        assert_eq!(call_with_result(&code[3..], 0x1000), None);
    }

    #[test]
    fn has_fixed_frame_is_false_if_a_register_changes_the_stack_pointer() {
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
