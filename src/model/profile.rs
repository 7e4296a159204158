//! The profile as a whole, and its processes with their pauses, threads, counters and modules.

use std::borrow::Cow;
use std::collections::HashMap;

use crate::model::markers::Markers;
use crate::model::samples::{Samples, WeightUnit, hull};
use crate::model::stacks::{
    Frame, FrameId, Function, FunctionId, FunctionKind, ModuleId, NativeSymbol, ROOT, SourceText,
    StackId, TextId, UniqueStacks,
};
use crate::types::RAN_BETWEEN_SAMPLES;
use crate::util::{TextTable, UniqueList};

/// Name of the track that shows where async tasks wait. This track does not belong to a thread.
pub(crate) const WAITING_TASKS: &str = "Waiting tasks";

/// Name of the counter of a process's CPU time. The viewer shows a counter of this name by default,
/// and hides one named [`HIDDEN_PROCESS_CPU_NAME`].
pub(crate) const PROCESS_CPU_NAME: &str = "Process CPU";

/// Name of the same counter in profiles of Firefox.
const HIDDEN_PROCESS_CPU_NAME: &str = "processCPU";

/// Category of that counter.
pub(crate) const PROCESS_CPU_CATEGORY: &str = "CPU";

/// A profile, of one process or of several.
#[derive(Debug)]
pub(crate) struct ProfileModel {
    pub(crate) meta: Meta,
    pub(crate) categories: Vec<Category>,
    pub(crate) marker_schemas: Vec<MarkerSchema>,
    /// In a process, the modules with a place are sorted by address. One whose place is unknown, or
    /// was taken by another one, has an empty range and may stand anywhere.
    pub(crate) modules: Vec<Module>,
    /// The first one is the process that wrote the profile.
    pub(crate) processes: Vec<Process>,
    pub(crate) threads: Vec<Thread>,
    pub(crate) counters: Vec<Counter>,
    pub(crate) native_symbols: Vec<NativeSymbol>,
    /// The contents of source files, by the text that is the file's path.
    pub(crate) sources: HashMap<TextId, SourceText>,
    texts: TextTable,
    functions: UniqueList<Function>,
    stacks: UniqueStacks<Frame>,
}

/// Facts about the whole profile.
#[derive(Clone, Debug, Default)]
pub(crate) struct Meta {
    /// Name of the program.
    pub(crate) product: String,
    /// Time 0 of the profile, in ms since the Unix epoch.
    pub(crate) start_epoch_ms: f64,
    /// Interval of the sampler, in ns.
    pub(crate) interval_ns: u64,
    /// Start and end of the session, in ns since the profile's start.
    pub(crate) session_ns: Option<(i64, i64)>,
    /// Whether addresses have got their names.
    pub(crate) is_symbolicated: bool,
    /// Whether samples have the CPU time since the thread's previous sample.
    pub(crate) has_cpu_deltas: bool,
    /// The fields of `meta` as the file or the session has them: their keys, and their values in JSON.
    /// The processed format copies those that the model has no field for.
    pub(crate) other: Vec<(String, String)>,
}

/// A category of frames and markers.
#[derive(Clone, Debug)]
pub(crate) struct Category {
    pub(crate) name: String,
    /// A color of the Firefox Profiler, such as `lightblue`.
    pub(crate) color: String,
    /// Names of the subcategories; at least one.
    pub(crate) subcategories: Vec<String>,
}

/// The description of a marker type.
#[derive(Clone, Debug)]
pub(crate) struct MarkerSchema {
    pub(crate) name: String,
    /// The whole description, as JSON of the processed format, or of Gecko's.
    pub(crate) json: String,
}

/// An executable, a library, or generated code, at its addresses in a process.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Module {
    pub(crate) process: usize,
    /// First address, and the address after the last one. Frames have addresses relative to the
    /// first one plus `offset`.
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// What is added to an address relative to `start`; 0 in profiles of gekkota.
    pub(crate) offset: u64,
    /// File name.
    pub(crate) name: String,
    pub(crate) path: String,
    pub(crate) debug_name: String,
    pub(crate) debug_path: String,
    /// The build id as symbol servers write it; empty if unknown.
    pub(crate) breakpad_id: String,
    /// The whole build id as lower-case hexadecimal digits.
    pub(crate) code_id: Option<String>,
    pub(crate) arch: Option<String>,
}

/// A process of the profile.
#[derive(Clone, Debug, Default)]
pub(crate) struct Process {
    /// The process id. Firefox's own files may have an id with a suffix.
    pub(crate) pid: String,
    pub(crate) name: String,
    /// Type of the process, such as `default` or `tab`.
    pub(crate) kind: String,
    /// Start and end of the process, as far as they are known.
    pub(crate) started_ns: Option<i64>,
    pub(crate) ended_ns: Option<i64>,
    pub(crate) paused_ranges: Vec<PausedRange>,
    /// The array `pages` of both Firefox formats, as JSON. Empty without this array.
    pub(crate) pages: String,
    /// The object `profilingLog` of both Firefox formats, as JSON. Empty without this object.
    pub(crate) log: String,
}

/// A time without samples, or without samples and markers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct PausedRange {
    /// `None` if it lies outside of what was recorded.
    pub(crate) start_ns: Option<i64>,
    /// `None` if it lies outside of what was recorded, or while the pause lasts.
    pub(crate) end_ns: Option<i64>,
    pub(crate) reason: Cow<'static, str>,
}

/// A thread of a process.
#[derive(Debug, Default)]
pub(crate) struct Thread {
    /// Index in [`ProfileModel::processes`].
    pub(crate) process: usize,
    pub(crate) name: String,
    pub(crate) tid: String,
    /// Whether it is the main thread of its process.
    pub(crate) is_main: bool,
    pub(crate) registered_ns: Option<i64>,
    pub(crate) unregistered_ns: Option<i64>,
    /// The stack at which the thread slept, if it slept throughout the profile, at one place.
    pub(crate) asleep_at: Option<StackId>,
    pub(crate) samples: Samples,
    pub(crate) markers: Markers,
}

/// A counter of a process.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counter {
    /// Index in `ProfileModel::processes`.
    pub(crate) process: usize,
    pub(crate) name: String,
    /// Category of the counter, such as `Memory` or `CPU`: it selects the track in the viewer.
    pub(crate) category: String,
    pub(crate) description: String,
    /// How the application wants the counter to be shown; `None` if the category tells it.
    pub(crate) graph: Option<CounterGraph>,
    pub(crate) samples: Vec<CounterSample>,
}

/// How a counter of the application is shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct CounterGraph {
    /// Whether the graph shows the value, and not its growth.
    pub(crate) is_level: bool,
    /// Whether the value is in bytes, and not a number of things.
    pub(crate) is_bytes: bool,
    /// The viewer's name of the color.
    pub(crate) color: &'static str,
}

/// A value of a counter.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct CounterSample {
    pub(crate) time_ns: i64,
    /// The change since the previous value.
    pub(crate) delta: f64,
    /// Number of operations that made the change, if the counter counts them.
    pub(crate) operations: Option<u64>,
}

impl Default for ProfileModel {
    /// Returns a profile with one stack, [`Self::RAN_BETWEEN_SAMPLES`].
    fn default() -> Self {
        let mut profile = Self {
            meta: Meta::default(),
            categories: Vec::new(),
            marker_schemas: Vec::new(),
            modules: Vec::new(),
            processes: Vec::new(),
            threads: Vec::new(),
            counters: Vec::new(),
            native_symbols: Vec::new(),
            sources: HashMap::new(),
            texts: TextTable::default(),
            functions: UniqueList::default(),
            stacks: UniqueStacks::default(),
        };
        let mut stack = None;
        for name in [ROOT, RAN_BETWEEN_SAMPLES] {
            let name = profile.intern(name);
            let function = Function::new(name, FunctionKind::Structure);
            let function = profile.intern_function(function);
            let frame = profile.intern_frame(&Frame::new(function));
            stack = Some(profile.append_frame(stack, frame));
        }
        debug_assert_eq!(stack, Some(Self::RAN_BETWEEN_SAMPLES));
        profile
    }
}

impl ProfileModel {
    /// The stack of CPU time that belongs to no sample. Every profile has it.
    pub(crate) const RAN_BETWEEN_SAMPLES: StackId = StackId(1);

    /// Returns the memory of the samples and markers, about, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        const SAMPLE_BYTES: usize = 24;
        const MARKER_BYTES: usize = 80;
        let of_thread = |thread: &Thread| {
            SAMPLE_BYTES * thread.samples.len() + MARKER_BYTES * thread.markers.len()
        };
        self.threads.iter().map(of_thread).sum()
    }

    /// Returns the id of a text, and adds the text if it is new. Equal texts have the same id.
    pub(crate) fn intern(&mut self, text: &str) -> TextId {
        TextId(self.texts.intern(text))
    }

    pub(crate) fn text(&self, id: TextId) -> &str {
        self.texts.get(id.0)
    }

    /// Returns the id of a function, and adds the function if it is new.
    pub(crate) fn intern_function(&mut self, function: Function) -> FunctionId {
        FunctionId(self.functions.index(&function))
    }

    pub(crate) fn function(&self, id: FunctionId) -> &Function {
        &self.functions.elements[id.0 as usize]
    }

    pub(crate) fn functions(&self) -> &[Function] {
        &self.functions.elements
    }

    /// Returns the id of a frame, and adds the frame if it is new.
    pub(crate) fn intern_frame(&mut self, frame: &Frame) -> FrameId {
        FrameId(self.stacks.intern_frame(frame))
    }

    pub(crate) fn frame(&self, id: FrameId) -> &Frame {
        &self.stacks.frames()[id.0 as usize]
    }

    pub(crate) fn frames(&self) -> &[Frame] {
        self.stacks.frames()
    }

    /// Returns the stack of a frame on top of `prefix`, and adds the stack if it is new. Without a
    /// prefix, the frame is the outermost one.
    pub(crate) fn append_frame(&mut self, prefix: Option<StackId>, frame: FrameId) -> StackId {
        let prefix = prefix.map(|prefix| prefix.0);
        StackId(self.stacks.append_frame(prefix, frame.0))
    }

    /// Returns the number of stacks. Their ids are the numbers below it.
    pub(crate) fn stack_count(&self) -> usize {
        self.stacks.stacks().len()
    }

    /// Returns the prefix and the innermost frame of a stack.
    pub(crate) fn stack(&self, id: StackId) -> (Option<StackId>, FrameId) {
        let (prefix, frame) = self.stacks.stacks()[id.0 as usize];
        (prefix.map(StackId), FrameId(frame))
    }

    /// Returns the frames of a stack, the innermost one first.
    pub(crate) fn stack_frames(
        &self,
        stack: Option<StackId>,
    ) -> impl Iterator<Item = FrameId> + '_ {
        let frames = self.stacks.frames_of(stack.map(|stack| stack.0));
        frames.map(FrameId)
    }

    /// Returns the stack without the frames at its inner end that `is_left_out` accepts. The outermost
    /// frame remains.
    pub(crate) fn without_inner(
        &self,
        stack: StackId,
        is_left_out: impl Fn(&Frame) -> bool,
    ) -> StackId {
        StackId(self.stacks.without_inner(stack.0, is_left_out))
    }

    pub(crate) fn function_name(&self, id: FunctionId) -> &str {
        self.text(self.function(id).name)
    }

    /// Returns whether a function is the root, which all stacks of a thread share and which is not
    /// code.
    pub(crate) fn is_root(&self, id: FunctionId) -> bool {
        let function = self.function(id);
        function.kind == FunctionKind::Structure && self.text(function.name) == ROOT
    }

    pub(crate) fn module(&self, id: ModuleId) -> &Module {
        &self.modules[id.0 as usize]
    }

    pub(crate) fn process_of(&self, thread: &Thread) -> &Process {
        &self.processes[thread.process]
    }

    /// Returns the subcategory of a stack's innermost frame if the category is `Idle`. A sample of
    /// such a stack shows a thread that waited.
    pub(crate) fn idle_kind(&self, stack: StackId) -> Option<&str> {
        let (_, frame) = self.stack(stack);
        let pair = self.frame(frame).category?;
        let category = self.categories.get(usize::from(pair.category))?;
        let kind = category.subcategories.get(usize::from(pair.subcategory));
        (category.name == "Idle").then(|| kind.map_or("", String::as_str))
    }

    /// Returns whether a sample of this stack shows a thread that waited.
    pub(crate) fn is_idle_stack(&self, stack: StackId) -> bool {
        self.idle_kind(stack).is_some()
    }
}

impl Thread {
    /// Returns whether this is the track of the tasks that wait. Its rows are neither samples of a
    /// thread nor CPU time.
    pub(crate) fn is_waiting_tasks(&self) -> bool {
        self.name == WAITING_TASKS
            && !self.is_main
            && self.samples.weight_unit == WeightUnit::Milliseconds
    }

    /// Returns the times of the first and the last sample or marker; `None` if there is none.
    pub(crate) fn range_ns(&self) -> Option<(i64, i64)> {
        let of_markers = self.markers.iter();
        let of_markers = of_markers.flat_map(|marker| [marker.start_ns, marker.end_ns]);
        let of_markers = of_markers.flatten().map(|time_ns| (time_ns, time_ns));
        self.samples
            .range_ns()
            .into_iter()
            .chain(of_markers)
            .reduce(hull)
    }
}

impl Process {
    /// Returns for how long the process was paused between two times, in ns.
    pub(crate) fn paused_ns(&self, begin_ns: i64, end_ns: i64) -> u64 {
        let pauses = self.paused_ranges.iter();
        let within = pauses.map(|pause| pause.ns_within(begin_ns, end_ns));
        within.fold(0, u64::saturating_add)
    }
}

impl PausedRange {
    /// Returns how much of the pause lies between two times, in ns.
    fn ns_within(&self, begin_ns: i64, end_ns: i64) -> u64 {
        let from = self.start_ns.unwrap_or(begin_ns).max(begin_ns);
        let to = self.end_ns.unwrap_or(end_ns).min(end_ns);
        to.saturating_sub(from).max(0).unsigned_abs()
    }
}

impl Counter {
    /// Returns whether the values add up to what a graph shows, and not each for itself.
    #[cfg(feature = "formats")]
    pub(crate) fn is_level(&self) -> bool {
        let is_memory = self.category == "Memory";
        self.graph.map_or(is_memory, |graph| graph.is_level)
    }

    /// Returns whether the counter is the CPU time of its process, in a profile of gekkota or of
    /// Firefox.
    pub(crate) fn is_process_cpu(&self) -> bool {
        let names = [PROCESS_CPU_NAME, HIDDEN_PROCESS_CPU_NAME];
        self.category == PROCESS_CPU_CATEGORY && names.contains(&self.name.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_functions_and_stacks_are_held_once() {
        let mut profile = ProfileModel::default();
        let name = profile.intern("work");
        assert_eq!(profile.intern("work"), name);
        let function = Function::new(name, FunctionKind::Native);
        let id = profile.intern_function(function.clone());
        assert_eq!(profile.intern_function(function), id);
        let (outer, inner) = (
            Frame::new(id),
            Frame {
                address: Some(7),
                ..Frame::new(id)
            },
        );
        let outer = profile.intern_frame(&outer);
        let inner = profile.intern_frame(&inner);
        let root = profile.append_frame(None, outer);
        let leaf = profile.append_frame(Some(root), inner);
        assert_eq!(profile.append_frame(Some(root), inner), leaf);
        assert_eq!(profile.stack_count(), 4);
        let frames: Vec<_> = profile.stack_frames(Some(leaf)).collect();
        assert_eq!(frames, [inner, outer]);
        assert_eq!(profile.function_name(id), "work");
    }

    #[test]
    fn part_of_a_pause_within_two_times_is_counted() {
        let pause = |start_ns, end_ns| PausedRange {
            start_ns,
            end_ns,
            reason: "paused".into(),
        };
        let process = Process {
            paused_ranges: vec![
                pause(Some(1_000_000), Some(3_500_000)),
                pause(Some(9_000_000), None),
            ],
            ..Process::default()
        };
        let within = |begin_ms: i64, end_ms: i64| {
            process.paused_ns(begin_ms * 1_000_000, end_ms * 1_000_000) / 100_000
        };
        assert_eq!(within(0, 5), 25);
        assert_eq!(within(2, 3), 10);
        assert_eq!(within(4, 8), 0);
        assert_eq!(within(0, 12), 55);
    }
}
