//! Register access on x86_64. Runs in the signal handler.

use std::arch::asm;

use crate::platform::arch::{GENERAL_REGISTERS, Registers};

/// Index of each register in the kernel's `gregs`, ordered by the register numbers that the ABI
/// uses in call frame information.
const GREGS_INDEX: [i32; GENERAL_REGISTERS] = [
    libc::REG_RAX,
    libc::REG_RDX,
    libc::REG_RCX,
    libc::REG_RBX,
    libc::REG_RSI,
    libc::REG_RDI,
    libc::REG_RBP,
    libc::REG_RSP,
    libc::REG_R8,
    libc::REG_R9,
    libc::REG_R10,
    libc::REG_R11,
    libc::REG_R12,
    libc::REG_R13,
    libc::REG_R14,
    libc::REG_R15,
];

/// The instruction that makes a system call, and the number of the register that has its result.
pub(crate) const SYSTEM_CALL: [u8; 2] = [0x0f, 0x05];
pub(crate) const RESULT_REGISTER: usize = 0;

/// Returns the registers of the thread that the signal with this context interrupted.
pub(crate) fn registers_in_handler(context: &libc::ucontext_t) -> Registers {
    let gregs = &context.uc_mcontext.gregs;
    let [fp, sp, pc] =
        [libc::REG_RBP, libc::REG_RSP, libc::REG_RIP].map(|index| gregs[index as usize] as u64);
    let general = GREGS_INDEX.map(|index| gregs[index as usize] as u64);
    Registers {
        pc,
        sp,
        fp,
        lr: 0,
        general: Some(general),
    }
}

/// Returns the stack pointer of the function that this call is inlined into.
#[inline(always)]
pub(crate) fn current_stack_pointer() -> u64 {
    let sp: u64;
    // SAFETY: reads a register.
    unsafe { asm!("mov {}, rsp", out(reg) sp, options(nomem, nostack, preserves_flags)) };
    sp
}

/// Returns the registers at this point of the function that this call is inlined into. They are
/// valid until that function returns.
///
/// Reads `pc`, `sp` and `fp` at one point of the code, so that the call frame information for `pc`
/// applies to the others.
#[inline(always)]
pub(crate) fn current_registers() -> Registers {
    let (pc, sp, fp): (u64, u64, u64);
    // SAFETY: reads registers.
    unsafe {
        asm!("lea {pc}, [rip]", "mov {sp}, rsp", "mov {fp}, rbp",
             pc = out(reg) pc, sp = out(reg) sp, fp = out(reg) fp, options(nomem, nostack, preserves_flags));
    }
    Registers {
        pc,
        sp,
        fp,
        ..Registers::default()
    }
}

/// Returns the thread pointer, the register through which the calling thread finds its
/// thread-locals. It identifies the thread without a system call.
#[inline(always)]
pub(crate) fn thread_pointer() -> u64 {
    let pointer: u64;
    // SAFETY: by the x86_64 ABI, the first word of the thread control block holds its own address.
    unsafe {
        asm!("mov {}, fs:[0]", out(reg) pointer, options(nostack, preserves_flags, readonly))
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
    let (lines, words) = (bytes / 64, bytes % 64 / 8);
    // Uses 16-byte registers: on memory outside the near caches, which is the usual case here,
    // `rep movs` takes 1.5 times as long.
    // SAFETY: by this function's contract. Inline assembly is used so that sanitizers do not report
    // the accesses to other functions' variables.
    unsafe {
        asm!("test {lines}, {lines}",
             "jz 3f",
             "2:",
             "movups {a}, [{source}]",
             "movups {b}, [{source} + 16]",
             "movups {c}, [{source} + 32]",
             "movups {d}, [{source} + 48]",
             "movups [{target}], {a}",
             "movups [{target} + 16], {b}",
             "movups [{target} + 32], {c}",
             "movups [{target} + 48], {d}",
             "add {source}, 64",
             "add {target}, 64",
             "dec {lines}",
             "jnz 2b",
             "3:",
             "test {words}, {words}",
             "jz 5f",
             "4:",
             "mov {lines}, [{source}]",
             "mov [{target}], {lines}",
             "add {source}, 8",
             "add {target}, 8",
             "dec {words}",
             "jnz 4b",
             "5:",
             a = out(xmm_reg) _, b = out(xmm_reg) _, c = out(xmm_reg) _, d = out(xmm_reg) _,
             lines = inout(reg) lines => _, words = inout(reg) words => _,
             source = inout(reg) source => _, target = inout(reg) target => _,
             options(nostack));
    }
}
