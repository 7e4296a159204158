//! Step 12 of 12: a thread gets its tables, with the frames and stacks that its rows use.

use crate::json::{StringIndex, UniqueStrings};
use crate::stream::decode::ThreadStreamingContext;
use crate::stream::resolve::named_stacks::{FrameKind, NamedStacks, TRUNCATED};

/// A frame in the thread's frame table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ThreadFrame {
    pub(crate) location: StringIndex,
    pub(crate) kind: FrameKind,
    /// The name of a script frame's implementation, unless it is an interpreter.
    pub(crate) implementation: Option<StringIndex>,
    /// Index of the frame in [`NamedStacks`].
    named: u32,
}

/// The tables of a thread, with the frames and stacks of the rows printed so far.
#[derive(Debug)]
pub(crate) struct ResolvedThread<'a> {
    pub(crate) context: &'a ThreadStreamingContext,
    named: &'a NamedStacks,
    pub(crate) strings: UniqueStrings,
    frames: Vec<ThreadFrame>,
    stacks: Vec<(Option<u32>, u32)>,
    /// For each frame in `named`, its index in `frames` plus one; 0 if no printed row has used it.
    frame_map: Vec<u32>,
    /// For each stack in `named`, its index in `stacks` plus one; 0 if no printed row has used it.
    stack_map: Vec<u32>,
    /// Kept between calls to reuse its memory.
    missing: Vec<u32>,
}

impl<'a> ResolvedThread<'a> {
    pub(crate) fn new(context: &'a ThreadStreamingContext, named: &'a NamedStacks) -> Self {
        Self {
            context,
            named,
            strings: UniqueStrings::default(),
            frames: Vec::new(),
            stacks: Vec::new(),
            frame_map: vec![0; named.frames().len()],
            stack_map: vec![0; named.stacks().len()],
            missing: Vec::new(),
        }
    }

    /// Returns the index of a stack of the process in this thread's table, and adds the stack if it
    /// is new.
    pub(crate) fn stack_of(&mut self, stack: u32) -> u32 {
        let stack = self.named.stack_of(stack);
        match self.stack_map[stack as usize] {
            0 => self.add_stack(stack),
            known => known - 1,
        }
    }

    /// Returns the stack without the profiler's functions at its inner end: functions that were
    /// inlined into the caller, and functions that drop a guard.
    pub(crate) fn without_own_functions(&self, mut stack: u32) -> u32 {
        const OWN: [&str; 4] = [
            concat!(env!("CARGO_CRATE_NAME"), "::"),
            concat!("<", env!("CARGO_CRATE_NAME"), "::"),
            concat!("core::ptr::drop_in_place<", env!("CARGO_CRATE_NAME"), "::"),
            concat!(
                "core::ptr::drop_in_place<core::option::Option<",
                env!("CARGO_CRATE_NAME"),
                "::"
            ),
        ];
        loop {
            let (prefix, kind, location) = self.stack_parts(stack);
            let is_function = matches!(kind, FrameKind::Function | FrameKind::Inlined);
            match prefix {
                Some(prefix) if is_function && OWN.iter().any(|own| location.starts_with(own)) => {
                    stack = prefix
                }
                _ => return stack,
            }
        }
    }

    fn add_stack(&mut self, stack: u32) -> u32 {
        // The prefixes must be added first.
        let mut missing = std::mem::take(&mut self.missing);
        let mut next = Some(stack);
        let mut prefix = loop {
            let Some(stack) = next else { break None };
            if let Some(known) = self.stack_map[stack as usize].checked_sub(1) {
                break Some(known);
            }
            missing.push(stack);
            next = self.named.stacks()[stack as usize].0;
        };
        for stack in missing.drain(..).rev() {
            let frame = self.own_frame(self.named.stacks()[stack as usize].1);
            self.stacks.push((prefix, frame));
            let number = self.stacks.len() as u32;
            self.stack_map[stack as usize] = number;
            prefix = Some(number - 1);
        }
        self.missing = missing;
        prefix.unwrap_or_default()
    }

    fn own_frame(&mut self, frame: u32) -> u32 {
        if let Some(known) = self.frame_map[frame as usize].checked_sub(1) {
            return known;
        }
        let named = self.named.frames()[frame as usize];
        let location = self.strings.intern(self.named.location(named));
        let implementation = match named.kind {
            FrameKind::Script { implementation, .. } => implementation.name(),
            _ => None,
        };
        let implementation = implementation.map(|name| self.strings.intern(name));
        self.frames.push(ThreadFrame {
            location,
            kind: named.kind,
            implementation,
            named: frame,
        });
        self.frame_map[frame as usize] = self.frames.len() as u32;
        self.frames.len() as u32 - 1
    }

    pub(crate) fn frames(&self) -> &[ThreadFrame] {
        &self.frames
    }

    /// Returns the prefix and the innermost frame of each stack. A prefix comes before its stacks.
    pub(crate) fn stacks(&self) -> &[(Option<u32>, u32)] {
        &self.stacks
    }

    /// Returns the prefix of a stack, and the kind and location of its innermost frame.
    pub(crate) fn stack_parts(&self, stack: u32) -> (Option<u32>, FrameKind, &'a str) {
        let (prefix, frame) = self.stacks[stack as usize];
        let ThreadFrame { kind, named, .. } = self.frames[frame as usize];
        (
            prefix,
            kind,
            self.named.location(self.named.frames()[named as usize]),
        )
    }

    /// Returns whether the outer end of a stack is missing.
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
