//! Frames and stacks, each once. A stack is a frame on top of another stack, its prefix, which always comes before it.

use std::collections::HashMap;
use std::hash::Hash;

/// A table of unique frames of some kind, and of stacks of them.
#[derive(Debug)]
pub(crate) struct UniqueStacks<F> {
    frame_indices: HashMap<F, u32>,
    frames: Vec<F>,
    stack_indices: HashMap<(Option<u32>, u32), u32>,
    stacks: Vec<(Option<u32>, u32)>,
}

impl<F> Default for UniqueStacks<F> {
    fn default() -> Self {
        Self {
            frame_indices: HashMap::new(),
            frames: Vec::new(),
            stack_indices: HashMap::new(),
            stacks: Vec::new(),
        }
    }
}

impl<F: Hash + Eq + Clone> UniqueStacks<F> {
    /// The stack of `frame` on top of `prefix`.
    #[doc(alias = "AppendFrame")]
    pub(crate) fn append_frame(&mut self, prefix: Option<u32>, frame: &F) -> u32 {
        let frame = match self.frame_indices.get(frame) {
            Some(&known) => known,
            None => {
                let index = self.frames.len() as u32;
                self.frames.push(frame.clone());
                self.frame_indices.insert(frame.clone(), index);
                index
            }
        };
        *self.stack_indices.entry((prefix, frame)).or_insert_with(|| {
            self.stacks.push((prefix, frame));
            self.stacks.len() as u32 - 1
        })
    }

    pub(crate) fn frames(&self) -> &[F] {
        &self.frames
    }

    /// Each stack's prefix and innermost frame.
    pub(crate) fn stacks(&self) -> &[(Option<u32>, u32)] {
        &self.stacks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_stacks_are_one_and_a_prefix_comes_first() {
        let mut stacks = UniqueStacks::default();
        let root = stacks.append_frame(None, &"root");
        let a = stacks.append_frame(Some(root), &"a");
        let b = stacks.append_frame(Some(a), &"b");
        assert_eq!(stacks.append_frame(Some(root), &"a"), a);
        let recursive = stacks.append_frame(Some(b), &"a");
        assert_ne!(recursive, a);
        assert_eq!(stacks.frames(), ["root", "a", "b"]);
        assert_eq!(stacks.stacks(), [(None, 0), (Some(0), 1), (Some(1), 2), (Some(2), 1)]);
    }
}
