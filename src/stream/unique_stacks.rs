//! Frames and stacks, each once. A stack is a frame on top of another stack, its prefix, which always comes before it.

use std::collections::HashMap;
use std::hash::Hash;

use crate::base::{NumberMap, pair_key};

/// A table of unique frames of some kind, and of stacks of them.
#[derive(Debug)]
pub(crate) struct UniqueStacks<F> {
    frame_indices: HashMap<F, u32>,
    frames: Vec<F>,
    /// By the stack's prefix, counted from 1, and its frame.
    stack_indices: NumberMap<u32>,
    stacks: Vec<(Option<u32>, u32)>,
}

impl<F> Default for UniqueStacks<F> {
    fn default() -> Self {
        Self {
            frame_indices: HashMap::new(),
            frames: Vec::new(),
            stack_indices: NumberMap::default(),
            stacks: Vec::new(),
        }
    }
}

impl<F> UniqueStacks<F> {
    /// Tables that are made already. What is appended to them would not be known.
    pub(crate) fn complete(frames: Vec<F>, stacks: Vec<(Option<u32>, u32)>) -> Self {
        Self {
            frames,
            stacks,
            ..Self::default()
        }
    }

    pub(crate) fn frames(&self) -> &[F] {
        &self.frames
    }

    /// Each stack's prefix and innermost frame.
    pub(crate) fn stacks(&self) -> &[(Option<u32>, u32)] {
        &self.stacks
    }
}

impl<F: Hash + Eq + Clone> UniqueStacks<F> {
    /// The frame's place in the table.
    pub(crate) fn intern_frame(&mut self, frame: &F) -> u32 {
        if let Some(&known) = self.frame_indices.get(frame) {
            return known;
        }
        let index = self.frames.len() as u32;
        self.frames.push(frame.clone());
        self.frame_indices.insert(frame.clone(), index);
        index
    }

    /// The stack of a frame of the table on top of `prefix`.
    #[doc(alias = "AppendFrame")]
    pub(crate) fn append_frame(&mut self, prefix: Option<u32>, frame: u32) -> u32 {
        let key = pair_key(prefix.map_or(0, |prefix| prefix + 1), frame);
        *self.stack_indices.entry(key).or_insert_with(|| {
            self.stacks.push((prefix, frame));
            self.stacks.len() as u32 - 1
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_stacks_are_one_and_a_prefix_comes_first() {
        let mut stacks = UniqueStacks::default();
        let mut append = |prefix, frame| {
            let frame = stacks.intern_frame(&frame);
            stacks.append_frame(prefix, frame)
        };
        let root = append(None, "root");
        let a = append(Some(root), "a");
        let b = append(Some(a), "b");
        assert_eq!(append(Some(root), "a"), a);
        let recursive = append(Some(b), "a");
        assert_ne!(recursive, a);
        assert_eq!(stacks.frames(), ["root", "a", "b"]);
        assert_eq!(
            stacks.stacks(),
            [(None, 0), (Some(0), 1), (Some(1), 2), (Some(2), 1)]
        );
    }
}
