//! Step 12 of 12: a thread gets its tables, with the frames and stacks that its rows use.

use crate::json::{StringIndex, UniqueStrings};
use crate::stream::resolve::named_stacks::{FrameKind, NamedStacks};

/// A frame in the thread's frame table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ThreadFrame {
    pub(crate) location: StringIndex,
    pub(crate) kind: FrameKind,
    /// The name of a script frame's implementation, unless it is an interpreter.
    pub(crate) implementation: Option<StringIndex>,
}

/// For each frame or stack of the process, its index in the tables of the current thread.
#[derive(Debug, Default)]
struct OwnIndices {
    /// The number of the current thread, from 1 on.
    thread: u32,
    /// The number of the last thread that has the frame or stack, and its index there.
    last: Vec<(u32, u32)>,
}

impl OwnIndices {
    /// Begins the next thread, whose tables are empty.
    fn begin_thread(&mut self, length: usize) {
        self.thread += 1;
        self.last.resize(length, (0, 0));
    }

    fn get(&self, index: u32) -> Option<u32> {
        let (thread, own) = self.last[index as usize];
        (thread == self.thread).then_some(own)
    }

    fn set(&mut self, index: u32, own: u32) {
        self.last[index as usize] = (self.thread, own);
    }
}

/// Maps the frames and stacks in [`NamedStacks`] to those of one thread after another. All threads
/// of a profile share these maps: a thread with few samples then costs little in a process with
/// many stacks.
#[derive(Debug, Default)]
pub(crate) struct ThreadMaps {
    frames: OwnIndices,
    stacks: OwnIndices,
}

/// The tables of a thread, with the frames and stacks of the rows printed so far.
#[derive(Debug)]
pub(crate) struct ResolvedThread<'a> {
    pub(crate) named: &'a NamedStacks,
    pub(crate) strings: UniqueStrings<'a>,
    frames: Vec<ThreadFrame>,
    stacks: Vec<(Option<u32>, u32)>,
    maps: &'a mut ThreadMaps,
    /// Kept between calls to reuse its memory.
    missing: Vec<u32>,
}

impl<'a> ResolvedThread<'a> {
    /// Returns how much memory the tables of a thread take if its rows use all frames and stacks,
    /// without the texts of its markers.
    pub(crate) fn max_bytes(named: &NamedStacks) -> usize {
        // Each table may have just grown, and has a map. A location is stored as text, escaped and
        // in a map.
        const LOCATION_BYTES: usize = 200;
        let frame_bytes = 3 * size_of::<ThreadFrame>() + size_of::<u32>() + LOCATION_BYTES;
        let stack_bytes = 3 * size_of::<(Option<u32>, u32)>() + size_of::<u32>();
        named.frames().len() * frame_bytes + named.stacks().len() * stack_bytes
    }

    /// `maps` are those of the profile's earlier threads.
    pub(crate) fn new(named: &'a NamedStacks, maps: &'a mut ThreadMaps) -> Self {
        maps.frames.begin_thread(named.frames().len());
        maps.stacks.begin_thread(named.stacks().len());
        Self {
            named,
            strings: UniqueStrings::default(),
            frames: Vec::new(),
            stacks: Vec::new(),
            maps,
            missing: Vec::new(),
        }
    }

    /// Returns the index of a stack of the process in this thread's table, and adds the stack if it
    /// is new.
    pub(crate) fn stack_of(&mut self, stack: u32) -> u32 {
        self.own_stack(self.named.stack_of(stack))
    }

    /// Works like [`Self::stack_of`], and returns the index of the part without the profiler's
    /// functions.
    pub(crate) fn stack_outside(&mut self, stack: u32) -> u32 {
        // The table has the whole stack.
        self.stack_of(stack);
        let stack = self.named.stack_of(stack);
        self.own_stack(self.named.without_own_functions(stack))
    }

    fn own_stack(&mut self, stack: u32) -> u32 {
        match self.maps.stacks.get(stack) {
            Some(known) => known,
            None => self.add_stack(stack),
        }
    }

    fn add_stack(&mut self, stack: u32) -> u32 {
        // The prefixes must be added first.
        let mut missing = std::mem::take(&mut self.missing);
        let mut next = Some(stack);
        let mut prefix = loop {
            let Some(stack) = next else { break None };
            if let Some(known) = self.maps.stacks.get(stack) {
                break Some(known);
            }
            missing.push(stack);
            next = self.named.stacks()[stack as usize].0;
        };
        for stack in missing.drain(..).rev() {
            let frame = self.own_frame(self.named.stacks()[stack as usize].1);
            let own = self.stacks.len() as u32;
            self.stacks.push((prefix, frame));
            self.maps.stacks.set(stack, own);
            prefix = Some(own);
        }
        self.missing = missing;
        prefix.unwrap_or_default()
    }

    fn own_frame(&mut self, frame: u32) -> u32 {
        if let Some(known) = self.maps.frames.get(frame) {
            return known;
        }
        let named = self.named.frames()[frame as usize];
        let location = self.strings.intern_shared(self.named.location(named));
        let implementation = match named.kind {
            FrameKind::Script { implementation, .. } => implementation.name(),
            _ => None,
        };
        let implementation = implementation.map(|name| self.strings.intern_shared(name));
        let own = self.frames.len() as u32;
        self.frames.push(ThreadFrame {
            location,
            kind: named.kind,
            implementation,
        });
        self.maps.frames.set(frame, own);
        own
    }

    pub(crate) fn frames(&self) -> &[ThreadFrame] {
        &self.frames
    }

    /// Returns the prefix and the innermost frame of each stack. A prefix comes before its stacks.
    pub(crate) fn stacks(&self) -> &[(Option<u32>, u32)] {
        &self.stacks
    }
}
