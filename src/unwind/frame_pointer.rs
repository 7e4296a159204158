//! Frames of code without call frame information, where they are proven.
//!
//! In a module, a frame pointer is believed when the call that the return address follows names the very function that the
//! address lies in, by its address or by a word that the dynamic linker alone writes, and that function begins by setting
//! its frame pointer up. So a frame pointer that belongs to an older frame, as in code built without frame pointers, is
//! never mistaken for this one's; calls through pointers are not followed. Generated code promises to keep frame pointers;
//! there, any call will do.
//!
//! In the few instructions between a function's giving its frame pointer back and its return, the frame pointer is its
//! caller's. So where a return address is on top of the stack, or what looks like one, the frame pointer of the innermost
//! frame is not believed.

use crate::unwind::machine_code::call_before;
use crate::unwind::native_stack::StackCopy;
use crate::unwind::register_file::{
    HAS_LINK_REGISTER, RETURN_ADDRESS, RegisterFile, without_signature,
};
use crate::unwind::rule::CodeShape;

/// Who may have made the call that a frame pointer leads to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Believe {
    /// One that names this function.
    CallTo(u64),
    /// Any.
    AnyCall,
}

/// Goes to the caller; gives where it goes on. `is_code` says whether an address lies in known code, `is_linked` whether a
/// word is the dynamic linker's own.
pub(super) fn follow_frame(
    shape: CodeShape,
    believe: Believe,
    exact: bool,
    registers: &mut RegisterFile,
    stack: StackCopy<'_>,
    mut is_code: impl FnMut(u64) -> bool,
    is_linked: impl FnMut(u64) -> bool,
) -> Option<u64> {
    let sp = registers.sp();
    let mut returns_to = |address: u64| {
        let is_call = is_code(address.wrapping_sub(1));
        if is_call { call_before(address) } else { None }
    };
    let (return_address, fp, callers_sp) = match shape {
        CodeShape::Unknown => return None,
        CodeShape::AtCall if HAS_LINK_REGISTER => {
            (registers.get(RETURN_ADDRESS)?, registers.fp(), sp)
        }
        CodeShape::AtCall => (stack.word_at(sp)?, registers.fp(), sp.checked_add(8)?),
        CodeShape::Pushed => (
            stack.word_at(sp.checked_add(8)?)?,
            Some(stack.word_at(sp)?),
            sp.checked_add(16)?,
        ),
        CodeShape::Framed { .. } => {
            let frame = registers
                .fp()
                .filter(|fp| *fp >= sp && fp.is_multiple_of(8))?;
            if exact
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
    let return_address = without_signature(return_address);
    let call = returns_to(return_address)?;
    let is_proven = match (shape, believe) {
        (CodeShape::Framed { .. }, Believe::CallTo(function)) => call.is_to(function, is_linked),
        _ => true,
    };
    if !is_proven {
        return None;
    }
    registers.forget_but(callers_sp, fp);
    Some(return_address)
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;
    use crate::platform::Registers;
    use crate::unwind::machine_code::{Call, shape_in_function, shape_in_generated};

    /// A function that calls itself, and its end is drawn out: `endbr64; push rbp; mov rbp, rsp; sub rsp, 16; nop;
    /// call itself; nop; add rsp, 16; pop rbp; nop; ret; nop`.
    const CODE: [u8; 28] = [
        0xf3, 0x0f, 0x1e, 0xfa, 0x55, 0x48, 0x89, 0xe5, 0x48, 0x83, 0xec, 0x10, 0x90, 0xe8, 0xee,
        0xff, 0xff, 0xff, 0x90, 0x48, 0x83, 0xc4, 0x10, 0x5d, 0x90, 0xc3, 0x90, 0x90,
    ];
    const RETURN: u64 = 18;
    /// Where each instruction begins.
    const INSTRUCTIONS: [u64; 11] = [0, 4, 5, 8, 12, 13, 18, 19, 23, 24, 25];
    const TOP: u64 = 0x7000_0000;

    /// The stack of `depth` frames of the function, which a call at `caller` began, with the innermost at `at`; and the
    /// registers there.
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

        fn stopped_at(at: u64, depth: usize, returns: u64, caller: u64) -> Self {
            let mut machine = Self {
                words: vec![],
                sp: TOP,
                fp: TOP - 8,
            };
            // The caller's own frame, to which its frame pointer leads.
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

    /// Follows frames from there on until the caller; gives how many there were, or `None` when they ended before.
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
        let (mut address, mut exact) = (pc, true);
        for count in 1..100 {
            let (shape, believe) = match generated {
                true => (shape_in_generated(address, exact, start), Believe::AnyCall),
                false => (
                    shape_in_function(address, exact, Some(start), |_| false),
                    Believe::CallTo(start),
                ),
            };
            let is_code = |address: u64| {
                (start..start + CODE.len() as u64).contains(&address) || address == caller - 1
            };
            address = follow_frame(
                shape,
                believe,
                exact,
                &mut registers,
                stack,
                is_code,
                |_| false,
            )?;
            exact = false;
            if address == caller {
                assert_eq!(registers.sp(), TOP - 16, "the caller's stack pointer");
                assert_eq!(registers.fp(), Some(TOP - 16), "the caller's frame pointer");
                return Some(count);
            }
        }
        None
    }

    /// The function, and behind it a call of it by another.
    fn code_with_caller() -> (Vec<u8>, u64) {
        let mut code = CODE.to_vec();
        code.extend([0xe8, 0xdf, 0xff, 0xff, 0xff, 0x90]);
        let caller = code.as_ptr() as u64 + 33;
        (code, caller)
    }

    #[test]
    fn at_every_instruction_frames_are_all_there_or_the_stack_ends() {
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
            let machine = Machine::stopped_at(at, depth, returns, caller);
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
            "between giving the frame pointer back and the return it is not known"
        );
    }

    #[test]
    fn a_frame_pointer_of_another_function_is_not_believed() {
        let (code, caller) = code_with_caller();
        let returns = code.as_ptr() as u64 + RETURN;
        let machine = Machine::stopped_at(18, 2, returns, caller);
        let bytes = machine.bytes();
        let stack = StackCopy {
            start: machine.sp,
            bytes: &bytes,
        };
        let follow = |believe| {
            let registers = Registers {
                sp: machine.sp,
                fp: machine.fp,
                ..Registers::default()
            };
            let framed = CodeShape::Framed { function: 0 };
            follow_frame(
                framed,
                believe,
                true,
                &mut RegisterFile::new(&registers),
                stack,
                |_| true,
                |_| false,
            )
        };
        assert_eq!(follow(Believe::CallTo(code.as_ptr() as u64)), Some(returns));
        assert_eq!(follow(Believe::CallTo(code.as_ptr() as u64 + 4)), None);
    }

    #[test]
    fn a_call_through_a_word_counts_if_the_linker_wrote_it() {
        // `call [rip + 8]`, and behind it, `jmp [rip + 2]`, two bytes, and the word.
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
            assert!(call.is_to(function, |word| word == slot), "{call:?}");
            assert!(
                !call.is_to(function, |_| false) && !call.is_to(function + 1, |_| true),
                "{call:?}"
            );
        }
        assert!(!Call::Indirect.is_to(function, |_| true));
    }

    #[test]
    fn a_linkage_tables_jump_leaves_the_return_address_where_it_is() {
        let code: [u8; 11] = [0xf3, 0x0f, 0x1e, 0xfa, 0xff, 0x25, 0, 1, 0, 0, 0x90];
        let start = code.as_ptr() as u64;
        for at in [start, start + 4] {
            let slot = start + 10 + 256;
            assert_eq!(
                shape_in_function(at, true, None, |word| word == slot),
                CodeShape::AtCall
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
    fn calls_are_told_by_their_bytes() {
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
