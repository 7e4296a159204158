//! Tells from a thread's registers whether a signal interrupted a system call of the thread.

use nix::errno::Errno;

use crate::platform::arch::{RESULT_REGISTER, Registers, SYSTEM_CALL};
use crate::platform::memory::read_own_memory;

/// Returns whether the thread waited in a system call when a signal interrupted it with these
/// registers. Either the call returns `EINTR`, or the thread makes it once more.
///
/// Also returns true if the registers are unknown. Cost: at most that of [`read_own_memory`].
pub(crate) fn is_interrupted_wait(registers: &Registers) -> bool {
    let Some(general) = registers.general else {
        return true;
    };
    let interrupted = -i64::from(Errno::EINTR as i32);
    if general[RESULT_REGISTER].cast_signed() == interrupted {
        return true;
    }
    let mut instruction = [0; SYSTEM_CALL.len()];
    read_own_memory(registers.pc, &mut instruction) && instruction == SYSTEM_CALL
}

/// Returns whether a signal with these registers was handled at the end of a system call, so that the
/// thread was in the kernel. Cost: at most that of [`read_own_memory`].
pub(crate) fn is_after_system_call(registers: &Registers) -> bool {
    let mut instruction = [0; SYSTEM_CALL.len()];
    let before = registers.pc.wrapping_sub(SYSTEM_CALL.len() as u64);
    read_own_memory(before, &mut instruction) && instruction == SYSTEM_CALL
}
