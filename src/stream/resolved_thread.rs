//! Stop 12 of 12, its first half: frames are named, and stacks made unique by their names.
//!
//! Two addresses in one function become one frame, and an address in an inlined function one frame for each function
//! that it was inlined into.

use crate::json::{StringIndex, UniqueStrings};
use crate::stream::decode::{FrameKey, ProcessStreamingContext, ThreadStreamingContext};
use crate::stream::location::{Locations, label_location};
use crate::stream::source::ProfileSource;
use crate::stream::unique_stacks::UniqueStacks;
use crate::symbols::{AddressNames, CodeAddressService};

/// A frame as it is printed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct OutFrame {
    pub(super) location: StringIndex,
    /// Labels have one.
    pub(super) category: Option<(u8, u8)>,
}

/// A thread's tables, ready to print.
#[derive(Debug)]
pub(crate) struct ResolvedThread<'a> {
    pub(crate) context: &'a ThreadStreamingContext,
    pub(super) strings: UniqueStrings,
    /// The location of each string index, as the viewer reads it.
    locations: Vec<String>,
    pub(super) stacks: UniqueStacks<OutFrame>,
    /// For each stack of the context, the one here.
    stack_map: Vec<u32>,
}

/// Names all addresses of the profile.
pub(crate) fn name_addresses(source: &ProfileSource, process: &ProcessStreamingContext) -> AddressNames {
    let addresses = process.threads.iter().flat_map(ThreadStreamingContext::native_addresses).collect();
    CodeAddressService::new(&source.modules).resolve(addresses)
}

impl<'a> ResolvedThread<'a> {
    pub(crate) fn new(
        source: &ProfileSource,
        process: &ProcessStreamingContext,
        context: &'a ThreadStreamingContext,
        names: &AddressNames,
    ) -> Self {
        let mut resolved = Self {
            context,
            strings: UniqueStrings::default(),
            locations: Vec::new(),
            stacks: UniqueStacks::default(),
            stack_map: Vec::with_capacity(context.stacks.stacks().len()),
        };
        let locations = Locations::new(&source.modules);
        let frames: Vec<Vec<OutFrame>> = context
            .stacks
            .frames()
            .iter()
            .map(|frame| resolved.out_frames(frame, process, names, &locations))
            .collect();
        for &(prefix, frame) in context.stacks.stacks() {
            let mut stack = prefix.map(|prefix| resolved.stack_map[prefix as usize]);
            for out in &frames[frame as usize] {
                stack = Some(resolved.stacks.append_frame(stack, *out));
            }
            // Every frame becomes at least one.
            resolved.stack_map.push(stack.unwrap_or_default());
        }
        resolved
    }

    /// The frames that a sampled one stands for, oldest first.
    fn out_frames(
        &mut self,
        frame: &FrameKey,
        process: &ProcessStreamingContext,
        names: &AddressNames,
        locations: &Locations<'_>,
    ) -> Vec<OutFrame> {
        let mut native = |location: String| OutFrame { location: self.intern(location), category: None };
        match frame {
            FrameKey::Root => vec![native("(root)".to_owned())],
            FrameKey::Truncated => vec![native("(truncated)".to_owned())],
            FrameKey::Native(address) => match names.get(address) {
                None => vec![native(locations.unnamed(*address))],
                Some(names) => names.iter().rev().map(|name| native(locations.named(*address, name))).collect(),
            },
            FrameKey::Label { text, category, subcategory } => {
                let text = process.label_strings.get(text.0 as usize).map_or("", String::as_str);
                let location = self.intern(label_location(text));
                vec![OutFrame { location, category: Some((*category, *subcategory)) }]
            }
        }
    }

    fn intern(&mut self, location: String) -> StringIndex {
        let index = self.strings.intern(&location);
        if index.0 as usize == self.locations.len() {
            self.locations.push(location);
        }
        index
    }

    /// The stack here of a stack of the context.
    pub(crate) fn stack_of(&self, stack: u32) -> u32 {
        self.stack_map[stack as usize]
    }

    pub(crate) fn stack_count(&self) -> usize {
        self.stacks.stacks().len()
    }

    /// A stack's prefix, and the location of its innermost frame.
    pub(crate) fn stack_parts(&self, stack: u32) -> (Option<u32>, &str) {
        let (prefix, frame) = self.stacks.stacks()[stack as usize];
        let location = self.stacks.frames()[frame as usize].location;
        (prefix, self.locations.get(location.0 as usize).map_or("", String::as_str))
    }

    /// Whether a stack's innermost frame is a label.
    pub(crate) fn is_label(&self, stack: u32) -> bool {
        let (_, frame) = self.stacks.stacks()[stack as usize];
        self.stacks.frames()[frame as usize].category.is_some()
    }
}
