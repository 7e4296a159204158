//! Stop 12 of 12: a thread gets its tables, of the frames and stacks that its samples ask for.

use crate::json::{StringIndex, UniqueStrings};
use crate::stream::decode::ThreadStreamingContext;
use crate::stream::named_stacks::{FrameKind, NamedStacks, TRUNCATED};

/// A frame as it is printed.
#[derive(Clone, Copy, Debug)]
pub(super) struct OutFrame {
    pub(super) location: StringIndex,
    pub(super) kind: FrameKind,
    /// The one of the process.
    named: u32,
}

/// A thread's tables, as far as its rows were printed.
#[derive(Debug)]
pub(crate) struct ResolvedThread<'a> {
    pub(crate) context: &'a ThreadStreamingContext,
    named: &'a NamedStacks,
    pub(super) strings: UniqueStrings,
    frames: Vec<OutFrame>,
    stacks: Vec<(Option<u32>, u32)>,
    /// For each frame of the process, one more than its place here; 0 for one that is not here.
    frame_map: Vec<u32>,
    /// The same for its stacks.
    stack_map: Vec<u32>,
    /// Kept for its memory.
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

    /// The stack here of a stack of the process.
    pub(crate) fn stack_of(&mut self, stack: u32) -> u32 {
        let stack = self.named.stack_of(stack);
        match self.stack_map[stack as usize] {
            0 => self.add_stack(stack),
            known => known - 1,
        }
    }

    /// A stack here without the profiler's own functions at its inner end: those that its caller has inlined, and what drops a
    /// guard.
    pub(super) fn without_own_functions(&self, mut stack: u32) -> u32 {
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
        // Those below it first.
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
            let frame = self.frame_here(self.named.stacks()[stack as usize].1);
            self.stacks.push((prefix, frame));
            let place = self.stacks.len() as u32;
            self.stack_map[stack as usize] = place;
            prefix = Some(place - 1);
        }
        self.missing = missing;
        prefix.unwrap_or_default()
    }

    fn frame_here(&mut self, frame: u32) -> u32 {
        if let Some(known) = self.frame_map[frame as usize].checked_sub(1) {
            return known;
        }
        let named = self.named.frames()[frame as usize];
        let location = self.strings.intern(self.named.location(named));
        self.frames.push(OutFrame {
            location,
            kind: named.kind,
            named: frame,
        });
        self.frame_map[frame as usize] = self.frames.len() as u32;
        self.frames.len() as u32 - 1
    }

    pub(super) fn frames(&self) -> &[OutFrame] {
        &self.frames
    }

    /// Each stack's prefix, which comes before it, and innermost frame.
    pub(super) fn stacks(&self) -> &[(Option<u32>, u32)] {
        &self.stacks
    }

    /// A stack's prefix, and what its innermost frame is and is called.
    pub(crate) fn stack_parts(&self, stack: u32) -> (Option<u32>, FrameKind, &'a str) {
        let (prefix, frame) = self.stacks[stack as usize];
        let OutFrame { kind, named, .. } = self.frames[frame as usize];
        (
            prefix,
            kind,
            self.named.location(self.named.frames()[named as usize]),
        )
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
