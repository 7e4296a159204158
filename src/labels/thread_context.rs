//! The request that a thread works on: the words that each of its samples copies.
//!
//! A thread writes only its own context. Its signal handler reads the words in place, so compiler
//! fences order the stores: a handler that interrupts a change finds no context. The sampler reads
//! the context of a blocked thread remotely, as a [`RemoteContext`].
//!
//! Runs in the signal handler: [`ContextCell::read_in_handler`].

use std::sync::atomic::{AtomicU64, Ordering, compiler_fence};

pub(crate) use crate::types::{ContextWords, MAX_CONTEXT_LABELS};

/// Maximum length of a label's key or value, in bytes. A longer text is cut at a character
/// boundary.
pub(super) const MAX_CONTEXT_TEXT_BYTES: usize = 128;
/// Number of words of a context: two of the trace's id, one of the span's, and two with the labels.
const WORDS: usize = 5;

impl ContextWords {
    #[inline(always)]
    pub(super) const fn to_words(self) -> [u64; WORDS] {
        let [a, b, c, d] = self.labels;
        [
            self.trace[0],
            self.trace[1],
            self.span,
            a as u64 | (b as u64) << 32,
            c as u64 | (d as u64) << 32,
        ]
    }

    #[inline(always)]
    const fn from_words([high, low, span, first, second]: [u64; WORDS]) -> Self {
        Self {
            trace: [high, low],
            span,
            labels: [
                first as u32,
                (first >> 32) as u32,
                second as u32,
                (second >> 32) as u32,
            ],
        }
    }
}

/// The context of a thread, which the thread's handler may read at any instruction.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct ContextCell {
    /// 1 if the words are a context, and 0 while they are being changed. As large as a word, to
    /// avoid padding.
    is_set: AtomicU64,
    words: [AtomicU64; WORDS],
}

impl ContextCell {
    pub(crate) const fn new() -> Self {
        Self {
            is_set: AtomicU64::new(0),
            words: [const { AtomicU64::new(0) }; WORDS],
        }
    }

    /// Sets the context, and returns the one before. Called by the thread itself.
    #[inline(always)]
    pub(crate) fn replace(&self, context: ContextWords) -> ContextWords {
        let before = self.read_in_handler();
        self.is_set.store(0, Ordering::Relaxed);
        if !context.is_none() {
            compiler_fence(Ordering::SeqCst);
            let words = context.to_words();
            for (cell, word) in self.words.iter().zip(words) {
                cell.store(word, Ordering::Relaxed);
            }
            compiler_fence(Ordering::SeqCst);
            self.is_set.store(1, Ordering::Relaxed);
        }
        before
    }

    /// Returns the context. Called by the thread itself, also in its signal handler.
    #[inline(always)]
    pub(crate) fn read_in_handler(&self) -> ContextWords {
        if self.is_set.load(Ordering::Relaxed) == 0 {
            return ContextWords::NONE;
        }
        compiler_fence(Ordering::SeqCst);
        ContextWords::from_words(
            self.words
                .each_ref()
                .map(|word| word.load(Ordering::Relaxed)),
        )
    }
}

/// A [`ContextCell`] of another thread, read remotely. Has the layout of that type.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct RemoteContext {
    is_set: u64,
    words: [u64; WORDS],
}

const _: () = assert!(
    size_of::<RemoteContext>() == size_of::<ContextCell>()
        && std::mem::offset_of!(RemoteContext, words) == std::mem::offset_of!(ContextCell, words)
);

impl RemoteContext {
    pub(crate) fn get(&self) -> ContextWords {
        match self.is_set {
            0 => ContextWords::NONE,
            _ => ContextWords::from_words(self.words),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replaced_context_is_read_back() {
        let cell = ContextCell::new();
        assert!(cell.read_in_handler().is_none());
        let context = ContextWords {
            trace: [1, u64::MAX],
            span: 3,
            labels: [4, 5, 6, u32::MAX],
        };
        assert_eq!(cell.replace(context), ContextWords::NONE);
        assert_eq!(cell.read_in_handler(), context);
        let only_label = ContextWords {
            labels: [0, 0, 0, 9],
            ..ContextWords::NONE
        };
        assert_eq!(cell.replace(only_label), context);
        assert_eq!(cell.read_in_handler(), only_label);
        assert_eq!(cell.replace(ContextWords::NONE), only_label);
        assert!(cell.read_in_handler().is_none());
    }
}
