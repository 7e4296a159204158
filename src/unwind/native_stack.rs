//! The input and output of an unwinder.

use crate::platform::Registers;
use crate::types::{CodeAddress, StackAddress, TimeStamp};

/// A copy of a part of a stack.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StackCopy<'a> {
    /// Stack address of the first byte.
    pub(crate) start: u64,
    pub(crate) bytes: &'a [u8],
}

impl StackCopy<'_> {
    /// Returns the word that was at `address`, if it was copied.
    pub(crate) fn word_at(&self, address: u64) -> Option<u64> {
        let offset = usize::try_from(address.checked_sub(self.start)?).ok()?;
        let word = self.bytes.get(offset..offset.checked_add(8)?)?;
        Some(u64::from_ne_bytes(word.try_into().ok()?))
    }
}

/// A captured stack and the registers to unwind it with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Captured<'a> {
    pub(crate) registers: Registers,
    pub(crate) stack: StackCopy<'a>,
    /// Time at which both were copied.
    pub(crate) time: TimeStamp,
}

/// A native frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NativeFrame {
    /// Address of the next instruction in the innermost frame, and the return address in every
    /// other frame.
    pub(crate) address: CodeAddress,
    /// Stack pointer of the innermost frame; in other frames, the stack pointer at the call.
    pub(crate) stack_address: StackAddress,
}

/// A stack, innermost frame first. Reused from sample to sample to keep its memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct NativeStack {
    pub(crate) frames: Vec<NativeFrame>,
    /// Whether older frames are missing.
    pub(crate) truncated: bool,
    /// Whether frames are missing because other code may have been loaded at their addresses when
    /// the stack was captured. Another capture of the same stack may succeed.
    pub(crate) doubtful: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn word_at_reads_only_copied_words() {
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
