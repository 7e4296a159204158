//! The registers of a stopped thread. Runs in the signal handler.

use crate::platform::registers_arch as arch;
use crate::platform::signal::ArrivalInHandler;

/// How many registers the machine's call frame information numbers from 0 on, which are those for whole numbers.
pub(crate) const GENERAL_REGISTERS: usize = arch::GENERAL_REGISTERS;

/// What an unwinder starts from.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct Registers {
    /// The instruction that was about to run.
    pub(crate) pc: u64,
    pub(crate) sp: u64,
    pub(crate) fp: u64,
    /// The return address of a function that has not saved it yet; 0 on machines that have no such register.
    pub(crate) lr: u64,
    /// All registers for whole numbers, by their numbers in call frame information, if they are known.
    pub(crate) general: Option<[u64; GENERAL_REGISTERS]>,
}

/// Whether they are of the same place: what else a thread calculates there does not count.
impl PartialEq for Registers {
    fn eq(&self, other: &Self) -> bool {
        (self.pc, self.sp, self.fp, self.lr) == (other.pc, other.sp, other.fp, other.lr)
    }
}

impl Eq for Registers {}

impl Registers {
    /// The registers of the thread that a request has stopped.
    pub(crate) fn of_arrival_in_handler(arrival: &ArrivalInHandler<'_>) -> Self {
        arch::from_context(arrival.context)
    }
}

/// The stack pointer of the function that this is inlined into.
#[inline(always)]
pub(crate) fn current_stack_pointer() -> u64 {
    arch::stack_pointer()
}

/// The registers at this place of the function that this is inlined into. They hold until it returns.
#[inline(always)]
pub(crate) fn current_registers() -> Registers {
    arch::current()
}

/// The register by which the calling thread finds its thread-locals: a name for the thread that costs no system call.
#[inline(always)]
pub(crate) fn thread_pointer() -> u64 {
    arch::thread_pointer()
}

/// Copies words of this thread's own stack, of which the compiler knows nothing, without calling into the C library.
///
/// # Safety
/// - `source` is readable and `target` writable for `bytes` bytes, both are word aligned, `bytes` is a multiple of 8, and
///   the two do not overlap.
#[inline(always)]
pub(crate) unsafe fn copy_words_in_handler(source: u64, target: *mut u8, bytes: usize) {
    // SAFETY: by this function's contract.
    unsafe { arch::copy_words(source, target, bytes) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_copied_whatever_their_number_and_no_others() {
        let source: Vec<u64> = (1..=60).collect();
        for length in 0..=source.len() {
            for from in [0, 1] {
                let copied = &source[from.min(source.len() - length)..][..length];
                let mut target = [0u64; 62];
                // SAFETY: both are words, as many as are asked for, and do not overlap.
                unsafe {
                    copy_words_in_handler(
                        copied.as_ptr().addr() as u64,
                        target[1..].as_mut_ptr().cast(),
                        length * 8,
                    );
                }
                assert_eq!((&target[1..=length], target[0]), (copied, 0));
                assert!(
                    target[length + 1..].iter().all(|word| *word == 0),
                    "{length}"
                );
            }
        }
    }
}
