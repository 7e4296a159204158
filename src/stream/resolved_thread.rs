//! Stop 12 of 12: frames are named, and stacks made unique by their names.
//!
//! Two addresses in one function become one frame, and an address in an inlined function one frame for each function
//! that it was inlined into.

use std::collections::HashMap;
use std::sync::Arc;

use crate::base::{ProgressLocation, ProgressLogger, ProportionValue};
use crate::json::{StringIndex, UniqueStrings};
use crate::stream::decode::{FrameKey, ProcessStreamingContext, ThreadStreamingContext};
use crate::stream::location::{Locations, label_location, script_location};
use crate::stream::source::ProfileSource;
use crate::stream::unique_stacks::UniqueStacks;
use crate::symbols::{AddressNames, CodeAddressService, FrameName, SampledAddress};
use crate::threads::{LABELS_LEFT_OUT, script_function};
use crate::unwind::{CodeMap, LoadedModule};

/// The frame that stands for those that are missing.
const TRUNCATED: &str = "(truncated)";

/// The frame below those of a signal stack, a coroutine's, or another that the thread was not born with.
const OTHER_STACK: &str = "(other stack)";

/// A frame in code that is gone, of which nobody remembers what it was.
const UNKNOWN: &str = "(unloaded library)";

/// A script frame of a function that nobody has named: only a damaged buffer has one.
const UNKNOWN_SCRIPT: &str = "(unknown script)";

const MOST_NAMES: ProportionValue = ProportionValue::percent(90);

/// What a frame is of.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum FrameKind {
    /// Nothing that runs: the root, or what is missing.
    Structure,
    /// The labels and script frames that are missing.
    LabelsLeftOut,
    /// A function, or an address.
    Function,
    /// A function whose code stands in its caller's.
    Inlined,
    Label {
        category: u8,
        subcategory: u8,
        relevant_for_js: bool,
    },
    /// A function of a script; a line or column of 0 is not known.
    Script {
        line: u32,
        column: u32,
    },
}

/// A frame as it is printed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct OutFrame {
    pub(super) location: StringIndex,
    pub(super) kind: FrameKind,
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

/// The names of addresses, and of those in modules that were replaced, by the modules' numbers.
#[derive(Debug, Default)]
pub(crate) struct ProfileNames {
    now: AddressNames,
    replaced: HashMap<usize, AddressNames>,
}

/// Names all addresses of the profile.
pub(crate) fn name_addresses(
    source: &ProfileSource,
    process: &ProcessStreamingContext,
    progress: &ProgressLogger,
) -> ProfileNames {
    let addresses = process.threads.iter().flat_map(ThreadStreamingContext::native_addresses).collect();
    let modules = source.modules.all_as_of_now();
    // Of the others there are few.
    let most = progress.sub_logger(ProportionValue::ZERO, MOST_NAMES, ProgressLocation::Names);
    let now = CodeAddressService::new(&modules, &source.generated_code).resolve_watched(addresses, &most);
    drop(most);
    let rest = progress.sub_logger(MOST_NAMES, ProportionValue::ONE, ProgressLocation::Names);
    let mut in_replaced: HashMap<usize, Vec<SampledAddress>> = HashMap::new();
    for (module, address) in process.threads.iter().flat_map(ThreadStreamingContext::replaced_addresses) {
        in_replaced.entry(module).or_default().push(address);
    }
    let no_code = CodeMap::default();
    let in_replaced = rest.loop_sub_loggers(in_replaced, ProgressLocation::Names);
    let replaced = in_replaced.filter_map(|(progress, (number, addresses))| {
        let image = Arc::clone(source.modules.replaced(number)?);
        let modules = [LoadedModule { image, unloaded: true }];
        Some((number, CodeAddressService::new(&modules, &no_code).resolve_watched(addresses, &progress)))
    });
    ProfileNames { now, replaced: replaced.collect() }
}

impl<'a> ResolvedThread<'a> {
    pub(crate) fn new(
        source: &ProfileSource,
        process: &ProcessStreamingContext,
        context: &'a ThreadStreamingContext,
        names: &ProfileNames,
    ) -> Self {
        let mut resolved = Self {
            context,
            strings: UniqueStrings::default(),
            locations: Vec::new(),
            stacks: UniqueStacks::default(),
            stack_map: Vec::with_capacity(context.stacks.stacks().len()),
        };
        let locations = Locations::new(&process.modules, &source.modules, &source.generated_code);
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
        names: &ProfileNames,
        locations: &Locations<'_>,
    ) -> Vec<OutFrame> {
        let (kind, location) = match frame {
            FrameKey::Root => (FrameKind::Structure, "(root)".to_owned()),
            FrameKey::OtherStack => (FrameKind::Structure, OTHER_STACK.to_owned()),
            FrameKey::Truncated => (FrameKind::Structure, TRUNCATED.to_owned()),
            FrameKey::LabelsLeftOut => (FrameKind::LabelsLeftOut, LABELS_LEFT_OUT.to_owned()),
            &FrameKey::Label { text, category, subcategory, relevant_for_js } => {
                let text = process.label_strings.get(text.0 as usize).map_or("", String::as_str);
                (FrameKind::Label { category, subcategory, relevant_for_js }, label_location(text))
            }
            &FrameKey::Script { function, line, column } => {
                let location = match script_function(function) {
                    Some(function) => script_location(&function.description),
                    None => UNKNOWN_SCRIPT.to_owned(),
                };
                (FrameKind::Script { line, column }, location)
            }
            FrameKey::Unknown => (FrameKind::Function, UNKNOWN.to_owned()),
            FrameKey::Native(address) => match names.now.get(address) {
                None => (FrameKind::Function, locations.unnamed(*address)),
                Some(names) => return self.named_frames(names, |name| locations.named(*address, name)),
            },
            FrameKey::Replaced(module, address) => {
                match names.replaced.get(module).and_then(|names| names.get(address)) {
                    None => (FrameKind::Function, locations.unnamed_in_replaced(*module, *address)),
                    Some(names) => {
                        return self.named_frames(names, |name| locations.named_in_replaced(*module, name));
                    }
                }
            }
        };
        vec![self.out_frame(kind, location)]
    }

    /// A frame for each of the functions at an address, the outermost first.
    fn named_frames(&mut self, names: &[FrameName], locate: impl Fn(&FrameName) -> String) -> Vec<OutFrame> {
        let outermost = names.len() - 1;
        let kind = |index| if index == outermost { FrameKind::Function } else { FrameKind::Inlined };
        let named = names.iter().enumerate().rev();
        named.map(|(index, name)| self.out_frame(kind(index), locate(name))).collect()
    }

    fn out_frame(&mut self, kind: FrameKind, location: String) -> OutFrame {
        OutFrame { location: self.intern(location), kind }
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

    /// A stack's prefix, and what its innermost frame is and is called.
    pub(crate) fn stack_parts(&self, stack: u32) -> (Option<u32>, FrameKind, &str) {
        let (prefix, frame) = self.stacks.stacks()[stack as usize];
        let OutFrame { location, kind } = self.stacks.frames()[frame as usize];
        (prefix, kind, self.locations.get(location.0 as usize).map_or("", String::as_str))
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
