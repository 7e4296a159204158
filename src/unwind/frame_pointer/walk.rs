//! Unwinds code without call frame information by frame pointers, where the frame is proven.
//!
//! In a module, a frame pointer is trusted under two conditions:
//! - The function that contains the frame's address starts by setting up its frame pointer.
//! - The call before the return address names that function, either directly or through a word that
//!   only the dynamic linker writes.
//!
//! So the frame pointer of an older frame, as in code built without frame pointers, is never
//! mistaken for that of the current frame. A call through any other pointer proves nothing, so the
//! stack ends there. Generated code is required to keep frame pointers, so there any call
//! instruction is sufficient.
//!
//! In the few instructions between restoring the caller's frame pointer and the return, the frame
//! pointer is already the caller's. So if the top of the stack looks like a return address, the
//! frame pointer of the innermost frame is not trusted.
//!
//! Code is read with the kernel's help, because it may have been unmapped. A frame counts only if
//! it is proven: a value that looks like a return address may be left over from an earlier call.

use std::ops::Range;

use crate::platform::read_own_memory;
use crate::unwind::frame_pointer::{Call, machine_code_arch as arch};
use crate::unwind::native_stack::{
    HAS_LINK_REGISTER, RETURN_ADDRESS, RegisterFile, StackCopy, strip_pointer_signature,
};
use crate::unwind::rules::CodeShape;

/// The call instruction required before a return address, as proof of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CallProof {
    /// A call that names the function at this address.
    CallTo(u64),
    /// Any call.
    AnyCall,
}

/// Changes `registers` to the caller's and returns the return address, if the frame is proven.
/// `is_code` tells whether an address lies in known code, and `is_linker_owned` whether only the
/// dynamic linker writes a word.
pub(crate) fn follow_frame(
    shape: CodeShape,
    proof: CallProof,
    is_pc: bool,
    registers: &mut RegisterFile,
    stack: StackCopy<'_>,
    mut is_code: impl FnMut(u64) -> bool,
    is_linker_owned: impl FnMut(u64) -> bool,
) -> Option<u64> {
    let sp = registers.sp();
    let mut returns_to = |address: u64| {
        let is_call = is_code(address.wrapping_sub(1));
        if is_call { call_before(address) } else { None }
    };
    let (return_address, fp, callers_sp) = match shape {
        CodeShape::Unknown => return None,
        CodeShape::NoFrame if HAS_LINK_REGISTER => {
            (registers.get(RETURN_ADDRESS)?, registers.fp(), sp)
        }
        CodeShape::NoFrame => (stack.word_at(sp)?, registers.fp(), sp.checked_add(8)?),
        CodeShape::FramePointerPushed => (
            stack.word_at(sp.checked_add(8)?)?,
            Some(stack.word_at(sp)?),
            sp.checked_add(16)?,
        ),
        CodeShape::Framed { .. } => {
            let frame = registers
                .fp()
                .filter(|fp| *fp >= sp && fp.is_multiple_of(8))?;
            if is_pc
                && !HAS_LINK_REGISTER
                && stack
                    .word_at(sp)
                    .is_none_or(|word| returns_to(word).is_some())
            {
                return None;
            }
            let above = frame.checked_add(8)?;
            (
                stack.word_at(above)?,
                Some(stack.word_at(frame)?),
                above.checked_add(8)?,
            )
        }
    };
    let return_address = strip_pointer_signature(return_address);
    let call = returns_to(return_address)?;
    let is_proven = match (shape, proof) {
        (CodeShape::Framed { .. }, CallProof::CallTo(function)) => {
            is_call_to(call, function, is_linker_owned)
        }
        _ => true,
    };
    if !is_proven {
        return None;
    }
    registers.reset_to(callers_sp, fp);
    Some(return_address)
}

/// Number of bytes that are read at the address of an instruction.
const CODE_WINDOW_BYTES: usize = 16;

/// Returns whether the instruction calls the function at `function`. `is_linker_owned` tells
/// whether only the dynamic linker writes the word at an address, so that the word, once read,
/// stays valid.
fn is_call_to(call: Call, function: u64, mut is_linker_owned: impl FnMut(u64) -> bool) -> bool {
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
fn call_before(return_address: u64) -> Option<Call> {
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

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;
    use crate::platform::Registers;

    /// A recursive function with padded epilogue: `endbr64; push rbp; mov rbp, rsp; sub rsp, 16;
    /// nop; call itself; nop; add rsp, 16; pop rbp; nop; ret; nop`.
    const CODE: [u8; 28] = [
        0xf3, 0x0f, 0x1e, 0xfa, 0x55, 0x48, 0x89, 0xe5, 0x48, 0x83, 0xec, 0x10, 0x90, 0xe8, 0xee,
        0xff, 0xff, 0xff, 0x90, 0x48, 0x83, 0xc4, 0x10, 0x5d, 0x90, 0xc3, 0x90, 0x90,
    ];
    const RETURN: u64 = 18;
    /// Offset of each instruction.
    const INSTRUCTIONS: [u64; 11] = [0, 4, 5, 8, 12, 13, 18, 19, 23, 24, 25];
    const TOP: u64 = 0x7000_0000;

    /// A simulated stack and its registers.
    struct Machine {
        words: Vec<u64>,
        sp: u64,
        fp: u64,
    }

    impl Machine {
        fn push(&mut self, word: u64) {
            self.sp -= 8;
            self.words.push(word);
        }

        /// Simulates `depth` frames of the function, the first called with the return address
        /// `caller` and the innermost interrupted at offset `at`.
        fn interrupted_at(at: u64, depth: usize, returns: u64, caller: u64) -> Self {
            let mut machine = Self {
                words: vec![],
                sp: TOP,
                fp: TOP - 8,
            };
            // The caller's frame, to which its frame pointer points.
            machine.push(returns);
            machine.push(0);
            machine.fp = machine.sp;
            for frame in 1..=depth {
                machine.push(if frame == 1 { caller } else { returns });
                let is_innermost = frame == depth;
                let has = |from: u64, to: u64| !is_innermost || (from..to).contains(&at);
                if has(5, 24) {
                    machine.push(machine.fp);
                }
                if has(8, 24) {
                    machine.fp = machine.sp;
                }
                if has(12, 23) {
                    machine.push(7);
                    machine.push(7);
                }
            }
            machine
        }

        fn bytes(&self) -> Vec<u8> {
            self.words
                .iter()
                .rev()
                .flat_map(|word| word.to_ne_bytes())
                .collect()
        }
    }

    /// Unwinds up to the caller and returns the number of frames, or `None` if the stack ends
    /// before.
    fn frames(
        code: &[u8],
        machine: &Machine,
        at: u64,
        caller: u64,
        generated: bool,
    ) -> Option<usize> {
        let start = code.as_ptr() as u64;
        let bytes = machine.bytes();
        let stack = StackCopy {
            start: machine.sp,
            bytes: &bytes,
        };
        let (pc, sp, fp) = (start + at, machine.sp, machine.fp);
        let mut registers = RegisterFile::new(&Registers {
            pc,
            sp,
            fp,
            ..Registers::default()
        });
        let (mut address, mut is_pc) = (pc, true);
        for count in 1..100 {
            let (shape, proof) = match generated {
                true => (
                    shape_in_generated(address, is_pc, start),
                    CallProof::AnyCall,
                ),
                false => (
                    shape_in_function(address, is_pc, Some(start), |_| false),
                    CallProof::CallTo(start),
                ),
            };
            let is_code = |address: u64| {
                (start..start + CODE.len() as u64).contains(&address) || address == caller - 1
            };
            address = follow_frame(shape, proof, is_pc, &mut registers, stack, is_code, |_| {
                false
            })?;
            is_pc = false;
            if address == caller {
                assert_eq!(registers.sp(), TOP - 16, "the caller's stack pointer");
                assert_eq!(registers.fp(), Some(TOP - 16), "the caller's frame pointer");
                return Some(count);
            }
        }
        None
    }

    /// Returns the function with a call to it after its end, and the return address of that call.
    fn code_with_caller() -> (Vec<u8>, u64) {
        let mut code = CODE.to_vec();
        code.extend([0xe8, 0xdf, 0xff, 0xff, 0xff, 0x90]);
        let caller = code.as_ptr() as u64 + 33;
        (code, caller)
    }

    #[test]
    fn unwinding_from_every_instruction_finds_all_frames_or_ends() {
        let (code, caller) = code_with_caller();
        let returns = code.as_ptr() as u64 + RETURN;
        assert_eq!(
            call_before(returns),
            Some(Call::Direct(code.as_ptr() as u64))
        );
        assert_eq!(
            call_before(caller),
            Some(Call::Direct(code.as_ptr() as u64))
        );
        let mut ended = Vec::new();
        for (depth, at) in (1..=4).flat_map(|depth| INSTRUCTIONS.map(|at| (depth, at))) {
            let machine = Machine::interrupted_at(at, depth, returns, caller);
            for generated in [false, true] {
                match frames(&code, &machine, at, caller, generated) {
                    Some(count) => assert_eq!(
                        count, depth,
                        "at {at}, depth {depth}, generated: {generated}"
                    ),
                    None => ended.push(at),
                }
            }
        }
        ended.sort_unstable();
        ended.dedup();
        assert_eq!(
            ended,
            [24],
            "the stack ends only between `pop rbp` and `ret`"
        );
    }

    #[test]
    fn frame_pointer_of_another_function_is_not_trusted() {
        let (code, caller) = code_with_caller();
        let returns = code.as_ptr() as u64 + RETURN;
        let machine = Machine::interrupted_at(18, 2, returns, caller);
        let bytes = machine.bytes();
        let stack = StackCopy {
            start: machine.sp,
            bytes: &bytes,
        };
        let follow = |proof| {
            let registers = Registers {
                sp: machine.sp,
                fp: machine.fp,
                ..Registers::default()
            };
            let framed = CodeShape::Framed { function: 0 };
            follow_frame(
                framed,
                proof,
                true,
                &mut RegisterFile::new(&registers),
                stack,
                |_| true,
                |_| false,
            )
        };
        assert_eq!(
            follow(CallProof::CallTo(code.as_ptr() as u64)),
            Some(returns)
        );
        assert_eq!(follow(CallProof::CallTo(code.as_ptr() as u64 + 4)), None);
    }

    #[test]
    fn call_through_a_word_is_proven_if_the_linker_owns_the_word() {
        // `call [rip + 8]`, `jmp [rip + 2]`, two bytes of padding, and the word.
        let mut code = vec![
            0x90, 0xff, 0x15, 8, 0, 0, 0, 0xff, 0x25, 2, 0, 0, 0, 0x90, 0x90,
        ];
        let function = 0x1234_5678_9abc_u64;
        code.extend(function.to_le_bytes());
        let start = code.as_ptr() as u64;
        let slot = start + 15;
        for call in [
            call_before(start + 7).expect("a call"),
            Call::Direct(start + 7),
        ] {
            assert!(is_call_to(call, function, |word| word == slot), "{call:?}");
            assert!(
                !is_call_to(call, function, |_| false) && !is_call_to(call, function + 1, |_| true),
                "{call:?}"
            );
        }
        assert!(!is_call_to(Call::Indirect, function, |_| true));
    }

    #[test]
    fn shape_at_the_jump_of_a_linkage_table_is_no_frame() {
        let code: [u8; 11] = [0xf3, 0x0f, 0x1e, 0xfa, 0xff, 0x25, 0, 1, 0, 0, 0x90];
        let start = code.as_ptr() as u64;
        for at in [start, start + 4] {
            let slot = start + 10 + 256;
            assert_eq!(
                shape_in_function(at, true, None, |word| word == slot),
                CodeShape::NoFrame
            );
            assert_eq!(
                shape_in_function(at, true, None, |_| false),
                CodeShape::Unknown
            );
            assert_eq!(
                shape_in_function(at, false, None, |_| true),
                CodeShape::Unknown
            );
        }
    }

    #[test]
    fn call_before_recognizes_all_encodings_of_calls() {
        let is_call = |bytes: &[u8]| {
            let mut code = vec![0x90; 16];
            code.extend(bytes);
            call_before(code.as_ptr() as u64 + code.len() as u64)
        };
        for code in [
            &[0xff, 0xd0][..],
            &[0x41, 0xff, 0xd3],
            &[0xff, 0x10],
            &[0xff, 0x50, 0x08],
            &[0xff, 0x14, 0xc8],
            &[0xff, 0x54, 0x24, 0x08],
            &[0xff, 0x90, 1, 2, 3, 4],
            &[0xff, 0x94, 0x24, 1, 2, 3, 4],
            &[0xff, 0x14, 0x25, 1, 2, 3, 4],
        ] {
            assert_eq!(is_call(code), Some(Call::Indirect), "{code:x?}");
        }
        for code in [
            &[0xff, 0xe0][..],
            &[0xc3],
            &[0xff, 0x25, 1, 2, 3, 4],
            &[0xeb, 0xff],
            &[0xff, 0x14],
        ] {
            assert_eq!(is_call(code), None, "{code:x?}");
        }
        assert_eq!(call_before(3), None);
    }
}
