//! Unique frames and stacks. A stack is a frame on top of another stack, its prefix, which always
//! comes before it.

use std::hash::Hash;

use crate::util::{NumberMap, Search, UniqueIndex, map_growth_bytes, pair_key, vec_growth_bytes};

/// A table of unique frames and a table of their unique stacks.
#[derive(Debug)]
pub(crate) struct UniqueStacks<F> {
    frame_index: UniqueIndex,
    frames: Vec<F>,
    /// By the index of the prefix plus one, and the index of the frame.
    stack_indices: NumberMap<u32>,
    stacks: Vec<(Option<u32>, u32)>,
}

impl<F> Default for UniqueStacks<F> {
    fn default() -> Self {
        Self {
            frame_index: UniqueIndex::default(),
            frames: Vec::new(),
            stack_indices: NumberMap::default(),
            stacks: Vec::new(),
        }
    }
}

impl<F> UniqueStacks<F> {
    /// Returns tables with these contents. Do not append to them: a known frame or stack would be
    /// added a second time.
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

    /// Returns the prefix and the innermost frame of each stack.
    pub(crate) fn stacks(&self) -> &[(Option<u32>, u32)] {
        &self.stacks
    }

    /// Returns the frames of a stack by their indices, the innermost one first.
    pub(crate) fn frames_of(&self, stack: Option<u32>) -> impl Iterator<Item = u32> + '_ {
        let stacks = std::iter::successors(stack, |&stack| self.stacks[stack as usize].0);
        stacks.map(|stack| self.stacks[stack as usize].1)
    }

    /// Returns the stack without the frames at its inner end that `is_left_out` accepts. The outermost
    /// frame remains.
    pub(crate) fn without_inner(&self, mut stack: u32, is_left_out: impl Fn(&F) -> bool) -> u32 {
        while let (Some(prefix), frame) = self.stacks[stack as usize]
            && is_left_out(&self.frames[frame as usize])
        {
            stack = prefix;
        }
        stack
    }

    /// Returns how much memory `more` frames and stacks take if the tables grow.
    pub(crate) fn growth_bytes(&self, more: usize) -> usize {
        self.frame_index.growth_bytes(more)
            + vec_growth_bytes(&self.frames, more)
            + map_growth_bytes(&self.stack_indices, more)
            + vec_growth_bytes(&self.stacks, more)
    }
}

impl<F: Hash + Eq + Clone> UniqueStacks<F> {
    /// Returns the index of the frame, and adds the frame if it is new.
    pub(crate) fn intern_frame(&mut self, frame: &F) -> u32 {
        let Self {
            frame_index,
            frames,
            ..
        } = self;
        match frame_index.search(frame, |at| frames[at as usize] == *frame) {
            Search::Found(known) => known,
            Search::Missing(slot) => {
                let index = frames.len() as u32;
                frames.push(frame.clone());
                slot.fill(index);
                index
            }
        }
    }

    /// Returns the stack of a frame on top of `prefix`, and adds the stack if it is new.
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
    fn equal_stacks_are_stored_once_and_after_their_prefix() {
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
