//! Registers of an interrupted thread and of the calling one. Runs in the signal handler.

use crate::platform::arch::registers::Registers;
use crate::platform::arch::registers_arch as arch;
use crate::platform::signal::ArrivalInHandler;

/// Returns the registers of the thread that the signal interrupted.
pub(crate) fn registers_in_handler(arrival: &ArrivalInHandler<'_>) -> Registers {
    arch::from_context_in_handler(arrival.context)
}

/// Returns the stack pointer of the function that this call is inlined into.
#[inline(always)]
pub(crate) fn current_stack_pointer() -> u64 {
    arch::stack_pointer()
}

/// Returns the registers at this point of the function that this call is inlined into. They are
/// valid until that function returns.
#[inline(always)]
pub(crate) fn current_registers() -> Registers {
    arch::current()
}

/// Returns the thread pointer, the register through which the calling thread finds its
/// thread-locals. It identifies the thread without a system call.
#[inline(always)]
pub(crate) fn thread_pointer() -> u64 {
    arch::thread_pointer()
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
    // SAFETY: by this function's contract.
    unsafe { arch::copy_words(source, target, bytes) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copy_words_copies_exactly_the_requested_words() {
        let source: Vec<u64> = (1..=60).collect();
        for length in 0..=source.len() {
            for from in [0, 1] {
                let copied = &source[from.min(source.len() - length)..][..length];
                let mut target = [0u64; 62];
                // SAFETY: both ranges consist of words, are at least `length` words long, and do
                // not overlap.
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
