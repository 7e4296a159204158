//! Tells from a thread's registers whether a signal interrupted a wait of the thread.

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
