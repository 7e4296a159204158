//! Registers of x86_64. Runs in the signal handler.

use std::arch::asm;

use crate::platform::registers::Registers;

/// The instruction `syscall`.
pub(super) const KERNEL_CALL: [u8; 2] = [0x0f, 0x05];

pub(super) fn from_context(context: &libc::ucontext_t) -> Registers {
    let gregs = &context.uc_mcontext.gregs;
    let [fp, sp, pc] =
        [libc::REG_RBP, libc::REG_RSP, libc::REG_RIP].map(|index| gregs[index as usize] as u64);
    Registers { pc, sp, fp, lr: 0 }
}

#[inline(always)]
pub(super) fn stack_pointer() -> u64 {
    let sp: u64;
    // SAFETY: reads a register.
    unsafe { asm!("mov {}, rsp", out(reg) sp, options(nomem, nostack, preserves_flags)) };
    sp
}

#[inline(always)]
pub(super) fn thread_pointer() -> u64 {
    let pointer: u64;
    // SAFETY: the x86_64 ABI keeps the thread control block's own address at its beginning.
    unsafe { asm!("mov {}, fs:[0]", out(reg) pointer, options(nostack, preserves_flags, readonly)) };
    pointer
}

/// # Safety
/// - As `platform::copy_words_in_handler`.
#[inline(always)]
pub(super) unsafe fn copy_words(source: u64, target: *mut u8, bytes: usize) {
    // SAFETY: by this function's contract; the ABI keeps the direction flag clear. One instruction, which no sanitizer
    // mistakes for an access to another function's variables.
    unsafe {
        asm!("rep movsb", inout("rcx") bytes => _, inout("rsi") source => _, inout("rdi") target => _,
             options(nostack, preserves_flags));
    }
}
