//! Register access on aarch64. Runs in the signal handler.

use std::arch::asm;

use crate::platform::arch::{GENERAL_REGISTERS, Registers};

/// The instruction that makes a system call, and the number of the register that has its result.
pub(crate) const SYSTEM_CALL: [u8; 4] = [0x01, 0x00, 0x00, 0xd4];
pub(crate) const RESULT_REGISTER: usize = 0;

/// Returns the registers of the thread that the signal with this context interrupted.
pub(crate) fn registers_in_handler(context: &libc::ucontext_t) -> Registers {
    let machine = &context.uc_mcontext;
    let mut general = [0; GENERAL_REGISTERS];
    general[..31].copy_from_slice(&machine.regs);
    general[31] = machine.sp;
    Registers {
        pc: machine.pc,
        sp: machine.sp,
        fp: machine.regs[29],
        lr: machine.regs[30],
        general: Some(general),
    }
}

/// Returns the stack pointer of the function that this call is inlined into.
#[inline(always)]
pub(crate) fn current_stack_pointer() -> u64 {
    let sp: u64;
    // SAFETY: reads a register.
    unsafe { asm!("mov {}, sp", out(reg) sp, options(nomem, nostack, preserves_flags)) };
    sp
}

/// Returns the registers at this point of the function that this call is inlined into. They are
/// valid until that function returns.
///
/// Reads `pc`, `sp`, `fp` and `lr` at one point of the code, so that the call frame information for
/// `pc` applies to the others.
#[inline(always)]
pub(crate) fn current_registers() -> Registers {
    let (pc, sp, fp, lr): (u64, u64, u64, u64);
    // SAFETY: reads registers.
    unsafe {
        asm!("adr {pc}, .", "mov {sp}, sp", "mov {fp}, x29", "mov {lr}, x30", pc = out(reg) pc, sp = out(reg) sp,
             fp = out(reg) fp, lr = out(reg) lr, options(nomem, nostack, preserves_flags));
    }
    Registers {
        pc,
        sp,
        fp,
        lr,
        ..Registers::default()
    }
}

/// Returns the thread pointer, the register through which the calling thread finds its
/// thread-locals. It identifies the thread without a system call.
#[inline(always)]
pub(crate) fn thread_pointer() -> u64 {
    let pointer: u64;
    // SAFETY: reads a register.
    unsafe {
        asm!("mrs {}, tpidr_el0", out(reg) pointer, options(nomem, nostack, preserves_flags))
    };
    pointer
}

/// Copies words from the calling thread's stack without calling into the C library. The copy is
/// opaque to the compiler, which does not know what the source holds.
///
/// # Safety
/// - `source` is readable and `target` is writable for `bytes` bytes.
/// - Both are word-aligned, and `bytes` is a multiple of 8.
/// - The two ranges do not overlap.
#[inline(always)]
pub(crate) unsafe fn copy_words_in_handler(source: u64, target: *mut u8, bytes: usize) {
    let end = source + bytes as u64;
    // SAFETY: by this function's contract.
    unsafe {
        asm!(
            "2:", "cmp {source}, {end}", "b.hs 3f", "ldr {word}, [{source}], #8", "str {word}, [{target}], #8", "b 2b",
            "3:",
            source = inout(reg) source => _, target = inout(reg) target => _, end = in(reg) end, word = out(reg) _,
            options(nostack)
        );
    }
}
