//! What goes into an unwinder and what comes out of it.

use crate::base::{CodeAddress, StackAddress, TimeStamp};
use crate::platform::Registers;

/// The copied part of a stack.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StackCopy<'a> {
    /// Where the first byte was.
    pub(crate) start: u64,
    pub(crate) bytes: &'a [u8],
}

impl StackCopy<'_> {
    /// The word that was at `address`, if it was copied.
    pub(crate) fn word_at(&self, address: u64) -> Option<u64> {
        let offset = usize::try_from(address.checked_sub(self.start)?).ok()?;
        let word = self.bytes.get(offset..offset.checked_add(8)?)?;
        Some(u64::from_ne_bytes(word.try_into().ok()?))
    }
}

/// What is unwound.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Captured<'a> {
    pub(crate) registers: Registers,
    pub(crate) stack: StackCopy<'a>,
    /// When both were copied.
    pub(crate) time: TimeStamp,
}

/// A native frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NativeFrame {
    /// The instruction that was about to run in the innermost frame; the return address in every other.
    pub(crate) address: CodeAddress,
    /// The stack pointer while the frame was the innermost, or at its call.
    pub(crate) stack_address: StackAddress,
}

/// A stack, innermost frame first. Kept from sample to sample for its memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct NativeStack {
    pub(crate) frames: Vec<NativeFrame>,
    /// Whether older frames are missing.
    pub(crate) truncated: bool,
    /// Whether they are since other code may have been there; another capture of the same stack would tell.
    pub(crate) doubtful: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_copied_words_are_read() {
        let bytes: Vec<u8> = [1u64, 2]
            .iter()
            .flat_map(|word| word.to_ne_bytes())
            .collect();
        let stack = StackCopy {
            start: 1000,
            bytes: &bytes,
        };
        assert_eq!(
            (stack.word_at(1000), stack.word_at(1008)),
            (Some(1), Some(2))
        );
        for address in [0, 992, 999, 1009, 1016, u64::MAX] {
            assert_eq!(stack.word_at(address), None);
        }
    }
}
