//! The first part of stop 12: frames are named, and stacks made unique by their names, once for all threads.

use std::collections::HashMap;
use std::sync::Arc;

use crate::base::{ProgressLocation, ProgressLogger, ProportionValue};
use crate::stream::chunk_stacks::FrameKey;
use crate::stream::decode::ProcessStreamingContext;
use crate::stream::location::{Locations, label_location, script_location};
use crate::stream::source::ProfileSource;
use crate::stream::text_table::TextTable;
use crate::stream::unique_stacks::UniqueStacks;
use crate::symbols::{AddressNames, CodeAddressService, FrameName, SampledAddress};
use crate::threads::{LABELS_LEFT_OUT, script_function};
use crate::unwind::{CodeMap, LoadedModule};

/// The frame that stands for those that are missing.
pub(super) const TRUNCATED: &str = "(truncated)";

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
    Script { line: u32, column: u32 },
}

/// A frame as it is printed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct NamedFrame {
    pub(super) kind: FrameKind,
    /// Its place among the locations.
    pub(super) location: u32,
}

/// The process's frames and stacks by the names of their frames, of all threads.
///
/// Two addresses in one function become one frame, and an address in an inlined function one frame for each function that it
/// was inlined into.
#[derive(Debug)]
pub(crate) struct NamedStacks {
    locations: TextTable,
    stacks: UniqueStacks<NamedFrame>,
    /// For each stack of the process, the one here; `None` where each is the one of its own number.
    map: Option<Vec<u32>>,
}

impl NamedStacks {
    /// Gives addresses the names of their functions.
    pub(crate) fn with_names(
        source: &ProfileSource,
        process: &ProcessStreamingContext,
        progress: &ProgressLogger,
    ) -> Self {
        let names = name_addresses(source, process, progress);
        let words = Locations::new(&process.modules, &source.modules, &source.generated_code);
        let mut locations = TextTable::default();
        let mut stacks = UniqueStacks::default();
        let mut named = |frame| -> Vec<u32> {
            let frames = named_frame(frame, process, &names, &words).into_iter();
            let mut frame = |(kind, text)| NamedFrame {
                kind,
                location: locations.intern(text),
            };
            frames
                .map(|named| stacks.intern_frame(&frame(named)))
                .collect()
        };
        let frames: Vec<_> = process.stacks.frames().iter().map(&mut named).collect();
        let mut map: Vec<u32> = Vec::with_capacity(process.stacks.stacks().len());
        for &(prefix, frame) in process.stacks.stacks() {
            let mut stack = prefix.map(|prefix| map[prefix as usize]);
            for &frame in &frames[frame as usize] {
                stack = Some(stacks.append_frame(stack, frame));
            }
            // Every frame becomes at least one.
            map.push(stack.unwrap_or_default());
        }
        Self {
            locations,
            stacks,
            map: Some(map),
        }
    }

    /// Leaves addresses as they are, and so each frame and each stack.
    pub(crate) fn without_names(source: &ProfileSource, process: &ProcessStreamingContext) -> Self {
        let no_names = ProfileNames::default();
        let words = Locations::new(&process.modules, &source.modules, &source.generated_code);
        let mut locations = TextTable::default();
        let mut one = |frame| {
            let frames = named_frame(frame, process, &no_names, &words);
            let mut frame = |(kind, text)| NamedFrame {
                kind,
                location: locations.intern(text),
            };
            frames.into_iter().next().map(&mut frame)
        };
        let frames = process
            .stacks
            .frames()
            .iter()
            .filter_map(&mut one)
            .collect();
        let stacks = UniqueStacks::complete(frames, process.stacks.stacks().to_vec());
        Self {
            locations,
            stacks,
            map: None,
        }
    }

    /// The stack here of a stack of the process.
    pub(super) fn stack_of(&self, stack: u32) -> u32 {
        self.map.as_ref().map_or(stack, |map| map[stack as usize])
    }

    /// Each stack's prefix and innermost frame.
    pub(super) fn stacks(&self) -> &[(Option<u32>, u32)] {
        self.stacks.stacks()
    }

    pub(super) fn frames(&self) -> &[NamedFrame] {
        self.stacks.frames()
    }

    /// A frame's location, as the viewer reads it.
    pub(super) fn location(&self, frame: NamedFrame) -> &str {
        self.locations.get(frame.location)
    }
}

/// The names of addresses, and of those in modules that were replaced, by the modules' numbers.
#[derive(Debug, Default)]
struct ProfileNames {
    now: AddressNames,
    replaced: HashMap<usize, AddressNames>,
}

fn name_addresses(
    source: &ProfileSource,
    process: &ProcessStreamingContext,
    progress: &ProgressLogger,
) -> ProfileNames {
    let mut addresses = Vec::new();
    let mut in_replaced: HashMap<usize, Vec<SampledAddress>> = HashMap::new();
    for frame in process.stacks.frames() {
        match frame {
            FrameKey::Native(address) => addresses.push(*address),
            FrameKey::Replaced(module, address) => {
                in_replaced.entry(*module).or_default().push(*address)
            }
            _ => {}
        }
    }
    let modules = source.modules.all_as_of_now();
    // Of the others there are few.
    let most = progress.sub_logger(ProportionValue::ZERO, MOST_NAMES, ProgressLocation::Names);
    let now =
        CodeAddressService::new(&modules, &source.generated_code).resolve_watched(addresses, &most);
    drop(most);
    let rest = progress.sub_logger(MOST_NAMES, ProportionValue::ONE, ProgressLocation::Names);
    let no_code = CodeMap::default();
    let in_replaced = rest.loop_sub_loggers(in_replaced, ProgressLocation::Names);
    let replaced = in_replaced.filter_map(|(progress, (number, addresses))| {
        let image = Arc::clone(source.modules.replaced(number)?);
        let modules = [LoadedModule {
            image,
            unloaded: true,
        }];
        Some((
            number,
            CodeAddressService::new(&modules, &no_code).resolve_watched(addresses, &progress),
        ))
    });
    ProfileNames {
        now,
        replaced: replaced.collect(),
    }
}

/// The frames that a sampled one stands for, the outermost first.
fn named_frame(
    frame: &FrameKey,
    process: &ProcessStreamingContext,
    names: &ProfileNames,
    locations: &Locations<'_>,
) -> Vec<(FrameKind, String)> {
    let one = |kind, location| vec![(kind, location)];
    match frame {
        FrameKey::Root => one(FrameKind::Structure, "(root)".to_owned()),
        FrameKey::OtherStack => one(FrameKind::Structure, OTHER_STACK.to_owned()),
        FrameKey::Truncated => one(FrameKind::Structure, TRUNCATED.to_owned()),
        FrameKey::LabelsLeftOut => one(FrameKind::LabelsLeftOut, LABELS_LEFT_OUT.to_owned()),
        &FrameKey::Label {
            text,
            category,
            subcategory,
            relevant_for_js,
        } => {
            let text = process.label_texts.get(text);
            one(
                FrameKind::Label {
                    category,
                    subcategory,
                    relevant_for_js,
                },
                label_location(text),
            )
        }
        &FrameKey::Script {
            function,
            line,
            column,
        } => {
            let location = match script_function(function) {
                Some(function) => script_location(&function.description),
                None => UNKNOWN_SCRIPT.to_owned(),
            };
            one(FrameKind::Script { line, column }, location)
        }
        FrameKey::Unknown => one(FrameKind::Function, UNKNOWN.to_owned()),
        FrameKey::Native(address) => match names.now.get(address) {
            None => one(FrameKind::Function, locations.unnamed(*address)),
            Some(names) => functions(names, |name| locations.named(*address, name)),
        },
        FrameKey::Replaced(module, address) => {
            match names
                .replaced
                .get(module)
                .and_then(|names| names.get(address))
            {
                None => one(
                    FrameKind::Function,
                    locations.unnamed_in_replaced(*module, *address),
                ),
                Some(names) => functions(names, |name| locations.named_in_replaced(*module, name)),
            }
        }
    }
}

/// A frame for each of the functions at an address, the outermost first.
fn functions(
    names: &[FrameName],
    locate: impl Fn(&FrameName) -> String,
) -> Vec<(FrameKind, String)> {
    let outermost = names.len() - 1;
    let kind = |index| {
        if index == outermost {
            FrameKind::Function
        } else {
            FrameKind::Inlined
        }
    };
    names
        .iter()
        .enumerate()
        .rev()
        .map(|(index, name)| (kind(index), locate(name)))
        .collect()
}
