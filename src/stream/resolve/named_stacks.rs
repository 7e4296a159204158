//! First part of step 12: frames are named, and stacks are deduplicated by their names, once for
//! all threads. Then each thread gets its tables, with the frames and stacks that its rows use.

use crate::json::{StringIndex, UniqueStrings};
use crate::model::{LABELS_LEFT_OUT, OTHER_STACK, ROOT, TRUNCATED, UNLOADED, UniqueStacks};
use crate::stream::decode::{FrameKey, ProcessStreamingContext, ProfileSource};
use crate::stream::resolve::names::{Locations, ProfileNames, label_location, script_location};
use crate::symbols::{AddressName, FrameName, SampledAddress, UnreadFile};
use crate::types::{NameOptions, ScriptDescription, ScriptImplementation, Wait};
use crate::util::{ProgressLogger, TextTable};

/// A script frame of an unregistered function; only a damaged buffer has one.
pub(crate) const UNKNOWN_SCRIPT: &str = "(unknown script)";

/// The kind of a printed frame.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum FrameKind {
    /// Not code: the root, or a placeholder for missing frames.
    Structure,
    /// A function, or an address.
    Function,
    /// A function that was inlined into its caller.
    Inlined,
    /// The function in which a thread waits.
    Waiting(Wait),
    Label {
        category: u8,
        subcategory: u8,
        relevant_for_js: bool,
    },
    /// A script function. A line or column of 0 is unknown.
    Script {
        line: u32,
        column: u32,
        category: u8,
        subcategory: u8,
        implementation: ScriptImplementation,
        inner_window_id: u64,
    },
}

/// A frame as it is printed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct NamedFrame {
    pub(crate) kind: FrameKind,
    /// Index of the frame's location.
    pub(crate) location: u32,
}

impl NamedFrame {
    fn new((kind, location): (FrameKind, String), locations: &mut TextTable) -> Self {
        let location = locations.intern(&location);
        Self { kind, location }
    }
}

/// The frames and stacks of all threads, by the names of their frames.
///
/// Two addresses in one function become one frame. An address in an inlined function becomes one
/// frame for that function, and one for each function that it was inlined into.
#[derive(Debug)]
pub(crate) struct NamedStacks {
    locations: TextTable,
    stacks: UniqueStacks<NamedFrame>,
    /// For each stack of the process, the index of the named stack. `None` if the indices are
    /// equal.
    map: Option<Vec<u32>>,
    /// The files of modules that provided no names.
    pub(crate) unread_files: Vec<UnreadFile>,
    /// Number of addresses without a name because the memory did not suffice to look them up.
    pub(crate) unnamed_for_memory: u64,
}

/// Returns whether a function is the profiler's own, or drops a value of the profiler.
pub(crate) fn is_own_function(name: &str) -> bool {
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
    OWN.iter().any(|own| name.starts_with(own))
}

impl NamedStacks {
    /// Names addresses after their functions. `symbolicate` is how much is looked up, and how much
    /// memory may hold names for later profiles.
    pub(crate) fn with_names(
        source: &ProfileSource,
        process: &ProcessStreamingContext,
        options: NameOptions,
        progress: &ProgressLogger,
    ) -> Self {
        let names = ProfileNames::look_up(source, process, options, None, progress);
        let texts = Locations::new(source, &process.modules);
        let mut locations = TextTable::default();
        let mut stacks = UniqueStacks::default();
        let mut named = |frame| -> Vec<u32> {
            let frames = named_frame(frame, process, &names, &texts).into_iter();
            let named = frames.map(|frame| NamedFrame::new(frame, &mut locations));
            named.map(|frame| stacks.intern_frame(&frame)).collect()
        };
        let frames: Vec<_> = process.stacks.frames().iter().map(&mut named).collect();
        let mut map: Vec<u32> = Vec::with_capacity(process.stacks.stacks().len());
        for &(prefix, frame) in process.stacks.stacks() {
            let mut stack = prefix.map(|prefix| map[prefix as usize]);
            for &frame in &frames[frame as usize] {
                let frame = match stacks.frames()[frame as usize].kind {
                    FrameKind::Waiting(wait) => {
                        let callers = stacks.frames_of(stack);
                        let callers = callers
                            .map(|frame| locations.get(stacks.frames()[frame as usize].location));
                        let waiting = NamedFrame {
                            kind: FrameKind::Waiting(wait.in_functions(callers)),
                            ..stacks.frames()[frame as usize]
                        };
                        stacks.intern_frame(&waiting)
                    }
                    _ => frame,
                };
                stack = Some(stacks.append_frame(stack, frame));
            }
            // Every frame becomes at least one named frame.
            map.push(stack.unwrap_or_default());
        }
        Self {
            locations,
            stacks,
            map: Some(map),
            unread_files: names.unread_files,
            unnamed_for_memory: names.unnamed_for_memory,
        }
    }

    /// Leaves addresses unnamed, so many of them for lack of memory. Every frame and every stack keeps
    /// its index.
    pub(crate) fn without_names(
        source: &ProfileSource,
        process: &ProcessStreamingContext,
        unnamed_for_memory: u64,
    ) -> Self {
        let no_names = ProfileNames::default();
        let texts = Locations::new(source, &process.modules);
        let mut locations = TextTable::default();
        let frames = process.stacks.frames().iter().filter_map(|frame| {
            let frames = named_frame(frame, process, &no_names, &texts);
            let one = frames.into_iter().next()?;
            Some(NamedFrame::new(one, &mut locations))
        });
        let frames = frames.collect();
        let stacks = UniqueStacks::complete(frames, process.stacks.stacks().to_vec());
        Self {
            locations,
            stacks,
            map: None,
            unread_files: Vec::new(),
            unnamed_for_memory,
        }
    }

    /// Returns the named stack of a stack of the process.
    pub(crate) fn stack_of(&self, stack: u32) -> u32 {
        self.map.as_ref().map_or(stack, |map| map[stack as usize])
    }

    /// Returns the stack without the profiler's functions at its inner end: functions that were
    /// inlined into the caller, and functions that drop a guard.
    fn without_own_functions(&self, stack: u32) -> u32 {
        self.stacks.without_inner(stack, |frame| {
            let is_function = matches!(
                frame.kind,
                FrameKind::Function | FrameKind::Inlined | FrameKind::Waiting(_)
            );
            is_function && is_own_function(self.location(*frame))
        })
    }

    /// Returns the texts of the labels in a stack of the process, outermost first.
    pub(crate) fn labels_of(&self, stack: u32) -> String {
        let frames = self.stacks.frames_of(Some(self.stack_of(stack)));
        let frames = frames.map(|frame| self.frames()[frame as usize]);
        let labels = frames.filter(|frame| matches!(frame.kind, FrameKind::Label { .. }));
        let mut labels: Vec<_> = labels.map(|label| self.location(label)).collect();
        labels.reverse();
        labels.join(" → ")
    }

    /// Returns the prefix and the innermost frame of each stack.
    pub(crate) fn stacks(&self) -> &[(Option<u32>, u32)] {
        self.stacks.stacks()
    }

    pub(crate) fn frames(&self) -> &[NamedFrame] {
        self.stacks.frames()
    }

    /// Returns the location of a frame, as the viewer parses it.
    pub(crate) fn location(&self, frame: NamedFrame) -> &str {
        self.locations.get(frame.location)
    }
}

/// Returns the named frames for a sampled frame, outermost first.
fn named_frame(
    frame: &FrameKey,
    process: &ProcessStreamingContext,
    names: &ProfileNames,
    locations: &Locations<'_>,
) -> Vec<(FrameKind, String)> {
    let one = |kind, location| vec![(kind, location)];
    match frame {
        FrameKey::Root => one(FrameKind::Structure, ROOT.to_owned()),
        FrameKey::OtherStack => one(FrameKind::Structure, OTHER_STACK.to_owned()),
        FrameKey::Truncated => one(FrameKind::Structure, TRUNCATED.to_owned()),
        FrameKey::NoStack(reason) => one(FrameKind::Structure, reason.text()),
        FrameKey::LabelsLeftOut => one(FrameKind::Structure, LABELS_LEFT_OUT.to_owned()),
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
            let unknown = ScriptDescription::new("", "", 0, 0);
            let (location, description) = match locations.script(function) {
                Some(description) => (script_location(&description), description),
                None => (UNKNOWN_SCRIPT.to_owned(), unknown),
            };
            one(script_kind(&description, (line, column)), location)
        }
        FrameKey::Unknown => one(FrameKind::Function, UNLOADED.to_owned()),
        &FrameKey::Waiting(address, wait) => {
            let native = FrameKey::Native(address);
            let mut frames = named_frame(&native, process, names, locations);
            if let Some((kind, _)) = frames.last_mut()
                && matches!(kind, FrameKind::Function | FrameKind::Inlined)
            {
                *kind = FrameKind::Waiting(wait);
            }
            frames
        }
        FrameKey::Native(address) => {
            if let Some(function) = locations.script_at(address.lookup_address()) {
                let place = (function.line, function.column);
                return one(script_kind(&function, place), script_location(&function));
            }
            match names.now(*address) {
                None => one(FrameKind::Function, unnamed(*address)),
                Some(names) => functions(names, locations.library_of(address.lookup_address())),
            }
        }
        FrameKey::Replaced(module, address) => {
            let image = locations.replaced(*module);
            match (names.in_replaced(*module, *address), image) {
                (None, None) => one(FrameKind::Function, unnamed(*address)),
                (None, Some((library, bias))) => {
                    // The address alone would be looked up in the module that has taken its place.
                    let relative = address.lookup_address().wrapping_sub(bias);
                    let location = format!("{library}+{relative:#x} (in {library})");
                    one(FrameKind::Function, location)
                }
                (Some(names), image) => {
                    let library = image.as_ref().map(|(library, _)| library.as_str());
                    functions(names, library)
                }
            }
        }
    }
}

fn script_kind(description: &ScriptDescription<'_>, (line, column): (u32, u32)) -> FrameKind {
    let (category, subcategory) = description.category_indices();
    FrameKind::Script {
        line,
        column,
        category,
        subcategory,
        implementation: description.implementation,
        inner_window_id: description.inner_window_id,
    }
}

/// Returns the location of an address without a name. The viewer reads the address of a caller's
/// frame as a return address, which is correct.
fn unnamed(address: SampledAddress) -> String {
    format!("{:#x}", address.address.get())
}

/// Returns a frame for each function at an address, outermost first: `name (in library)`.
fn functions(names: &AddressName, library: Option<&str>) -> Vec<(FrameKind, String)> {
    let outermost = names.functions.len() - 1;
    let named = |(index, FrameName { function, .. }): (usize, &FrameName)| {
        let kind = match index == outermost {
            true => FrameKind::Function,
            false => FrameKind::Inlined,
        };
        let location = match library {
            Some(library) => format!("{function} (in {library})"),
            None => function.clone(),
        };
        (kind, location)
    };
    let frames = names.functions.iter().enumerate().rev();
    frames.map(named).collect()
}

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
    pub(crate) frames: Vec<ThreadFrame>,
    /// The prefix and the innermost frame of each stack. A prefix comes before its stacks.
    pub(crate) stacks: Vec<(Option<u32>, u32)>,
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
}
