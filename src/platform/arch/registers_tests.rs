//! Tests of the register access of each machine.

use crate::platform::arch::copy_words_in_handler;

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
