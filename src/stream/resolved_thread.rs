//! Stop 12 of 12: a thread's stacks are made unique by the names of their frames.
//!
//! Two addresses in one function become one frame, and an address in an inlined function one frame for each function
//! that it was inlined into. Only those that the thread's samples ask for are made.

use crate::json::{StringIndex, UniqueStrings};
use crate::stream::decode::{ProcessStreamingContext, ThreadStreamingContext};
use crate::stream::named_frames::{FrameKind, NamedFrames, TRUNCATED};
use crate::stream::unique_stacks::UniqueStacks;

/// A frame as it is printed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct OutFrame {
    pub(super) location: StringIndex,
    pub(super) kind: FrameKind,
}

/// A place in a table that was not filled yet.
const NOT_YET: u32 = u32::MAX;

/// A thread's tables, as far as its rows were printed.
#[derive(Debug)]
pub(crate) struct ResolvedThread<'a> {
    pub(crate) context: &'a ThreadStreamingContext,
    process: &'a ProcessStreamingContext,
    named: &'a NamedFrames,
    pub(super) strings: UniqueStrings,
    /// The location of each string that is one, as the viewer reads it.
    locations: Vec<&'a str>,
    pub(super) stacks: UniqueStacks<OutFrame>,
    /// For each frame of the process, where its frames here begin among `out_frames`, and how many they are.
    frame_map: Vec<(u32, u32)>,
    out_frames: Vec<OutFrame>,
    /// For each stack of the process, the one here.
    stack_map: Vec<u32>,
}

impl<'a> ResolvedThread<'a> {
    pub(crate) fn new(
        process: &'a ProcessStreamingContext,
        context: &'a ThreadStreamingContext,
        named: &'a NamedFrames,
    ) -> Self {
        Self {
            context,
            process,
            named,
            strings: UniqueStrings::default(),
            locations: Vec::new(),
            stacks: UniqueStacks::default(),
            frame_map: vec![(NOT_YET, 0); process.stacks.frames().len()],
            out_frames: Vec::new(),
            stack_map: vec![NOT_YET; process.stacks.stacks().len()],
        }
    }

    /// The stack here of a stack of the process.
    pub(crate) fn stack_of(&mut self, stack: u32) -> u32 {
        let known = self.stack_map[stack as usize];
        if known != NOT_YET {
            return known;
        }
        // Those below it first; a stack's prefix always comes before it.
        let all = self.process.stacks.stacks();
        let mut missing = Vec::new();
        let mut next = Some(stack);
        let mut prefix = loop {
            let Some(stack) = next else { break None };
            if self.stack_map[stack as usize] != NOT_YET {
                break Some(self.stack_map[stack as usize]);
            }
            missing.push(stack);
            next = all[stack as usize].0;
        };
        for stack in missing.into_iter().rev() {
            let (start, count) = self.frames_here(all[stack as usize].1);
            for index in start..start + count {
                prefix = Some(self.stacks.append_frame(prefix, &self.out_frames[index as usize]));
            }
            // Every frame becomes at least one.
            self.stack_map[stack as usize] = prefix.unwrap_or_default();
        }
        self.stack_map[stack as usize]
    }

    /// The frames here of a frame of the process.
    fn frames_here(&mut self, frame: u32) -> (u32, u32) {
        let known = self.frame_map[frame as usize];
        if known.0 != NOT_YET {
            return known;
        }
        let named = self.named;
        let start = self.out_frames.len() as u32;
        for (kind, location) in named.of(frame) {
            let location = self.intern(location);
            self.out_frames.push(OutFrame { location, kind: *kind });
        }
        let here = (start, self.out_frames.len() as u32 - start);
        self.frame_map[frame as usize] = here;
        here
    }

    fn intern(&mut self, location: &'a str) -> StringIndex {
        let index = self.strings.intern(location);
        if index.0 as usize == self.locations.len() {
            self.locations.push(location);
        }
        index
    }

    /// A stack's prefix, and what its innermost frame is and is called.
    pub(crate) fn stack_parts(&self, stack: u32) -> (Option<u32>, FrameKind, &'a str) {
        let (prefix, frame) = self.stacks.stacks()[stack as usize];
        let OutFrame { location, kind } = self.stacks.frames()[frame as usize];
        (prefix, kind, self.locations.get(location.0 as usize).copied().unwrap_or_default())
    }

    /// Whether a stack is without its older end.
    pub(crate) fn is_truncated(&self, mut stack: u32) -> bool {
        loop {
            let (prefix, kind, location) = self.stack_parts(stack);
            match prefix {
                Some(prefix) if kind != FrameKind::Structure => stack = prefix,
                _ => return location == TRUNCATED,
            }
        }
    }
}
