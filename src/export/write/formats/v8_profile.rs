//! A thread as the formats of V8 have it: its samples as ticks, each of which counts for one
//! interval, and the nodes of its calls.

use std::collections::HashMap;
use std::ops::Range;

use crate::export::options::ExportOptions;
use crate::export::run_loops::folded_runtime;
use crate::json::JsonWriter;
use crate::model::{
    CallNodes, ChargedSamples, Function, FunctionId, NodeId, ProfileModel, RowTicks, Sample,
    Samples, StackId, Thread,
};

/// What a thread did at a tick.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Activity {
    /// It waited.
    Idle,
    /// The sample has no stack.
    Unknown,
    Ran(StackId),
}

/// A moment of a thread. It counts as one interval.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Tick {
    pub(crate) time_ns: i64,
    pub(crate) activity: Activity,
}

/// The ticks of a thread, by time.
///
/// A sample is one tick. If its weight is a number of samples, it is as many ticks, evenly spread
/// over the time until the next sample, but not more than fit there.
///
/// A sample is idle if its stack is idle, or if the thread used no CPU time since the previous
/// sample. [`SampleWeight::Cpu`](crate::export::options::SampleWeight::Cpu) makes more ticks idle:
/// the others then count as much time as the CPU time of their innermost function. CPU time that
/// belongs to no sample is one tick.
pub(crate) struct Ticks<'a> {
    profile: &'a ProfileModel,
    samples: &'a Samples,
    counts_cpu: bool,
    rows: ChargedSamples<'a>,
    /// The last row's ticks, and how many of them were given.
    ticks: RowTicks,
    given: u64,
    activity: Activity,
    /// The part of an interval for which the thread ran in each of these ticks; `None` if they
    /// count in full.
    ran: Option<f64>,
    /// Whether a stack is idle, as far as that was asked.
    idle_stacks: Vec<Option<bool>>,
    /// CPU time that no tick has counted yet, in ticks, by the innermost function.
    cpu_ticks: HashMap<Option<FunctionId>, f64>,
}

impl<'a> Ticks<'a> {
    pub(crate) fn new(
        profile: &'a ProfileModel,
        thread: &'a Thread,
        options: &ExportOptions,
    ) -> Self {
        Self {
            profile,
            samples: &thread.samples,
            counts_cpu: options.counts_cpu(profile),
            rows: options.rows(profile, thread),
            ticks: RowTicks::single(0),
            given: 1,
            activity: Activity::Unknown,
            ran: None,
            idle_stacks: vec![None; profile.stack_count()],
            cpu_ticks: HashMap::new(),
        }
    }

    fn activity_of(&mut self, sample: &Sample) -> Activity {
        if sample.cpu_delta_ns == Some(0) {
            return Activity::Idle;
        }
        let Some(stack) = sample.stack else {
            return Activity::Unknown;
        };
        let is_idle = &mut self.idle_stacks[stack.0 as usize];
        match *is_idle.get_or_insert_with(|| self.profile.is_idle_stack(stack)) {
            true => Activity::Idle,
            false => Activity::Ran(stack),
        }
    }

    /// Begins the next row.
    fn begin_row(&mut self) -> Option<()> {
        let row = self.rows.next()?;
        let mut ticks = row.ticks(self.samples);
        let length_ns = ticks.time_ns(ticks.count) - ticks.time_ns(0);
        let interval_ns = self.profile.meta.interval_ns.max(1);
        let fitting = length_ns.unsigned_abs().div_ceil(interval_ns).max(1);
        ticks.count = ticks.count.min(fitting);
        let is_sample = row.index.is_some();
        let ran = row.cpu_ns as f64 / (interval_ns as f64 * ticks.count as f64);
        self.ran = (self.counts_cpu && is_sample).then_some(ran);
        self.activity = self.activity_of(&row.sample);
        (self.ticks, self.given) = (ticks, 0);
        Some(())
    }

    /// Adds the CPU time of a tick to its function's. Returns whether the tick is due for it.
    fn is_due(&mut self, ran: f64) -> bool {
        let leaf = match self.activity {
            Activity::Ran(stack) => {
                let (_, frame) = self.profile.stack(stack);
                Some(self.profile.frame(frame).function)
            }
            Activity::Idle | Activity::Unknown => None,
        };
        let due = self.cpu_ticks.entry(leaf).or_default();
        *due += ran;
        let is_due = *due >= 0.5;
        if is_due {
            *due -= 1.0;
        }
        is_due
    }
}

impl Iterator for Ticks<'_> {
    type Item = Tick;

    fn next(&mut self) -> Option<Tick> {
        if self.given == self.ticks.count {
            self.begin_row()?;
        }
        let time_ns = self.ticks.time_ns(self.given);
        self.given += 1;
        let activity = match (self.activity, self.ran) {
            (Activity::Ran(_) | Activity::Unknown, Some(ran)) if !self.is_due(ran) => {
                Activity::Idle
            }
            (activity, _) => activity,
        };
        Some(Tick { time_ns, activity })
    }
}

/// The number of a thread's ticks, and their first and last time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct TickRange {
    pub(crate) count: u64,
    pub(crate) first_ns: i64,
    pub(crate) last_ns: i64,
}

impl TickRange {
    pub(crate) fn add(&mut self, tick: &Tick) {
        if self.count == 0 {
            self.first_ns = tick.time_ns;
        }
        self.count += 1;
        self.last_ns = tick.time_ns;
    }

    /// Returns the end of the last tick: it is as long as the others are on average.
    pub(crate) fn end_ns(&self, profile: &ProfileModel) -> i64 {
        let mean_ns = match self.count {
            0 => 0,
            1 => profile.meta.interval_ns.min(i64::MAX as u64) as i64,
            count => (self.last_ns - self.first_ns) / (count - 1) as i64,
        };
        self.last_ns.saturating_add(mean_ns)
    }
}

/// Converts times to whole µs from an origin.
///
/// The origin is the profile's start, or the first time if that is earlier: DevTools leaves out
/// what has a negative time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MicroClock {
    origin_ns: i64,
}

impl MicroClock {
    pub(crate) fn new(first_ns: i64) -> Self {
        Self {
            origin_ns: first_ns.min(0),
        }
    }

    /// Rounds down, so that times keep their order.
    pub(crate) fn us(&self, ns: i64) -> i64 {
        ns.saturating_sub(self.origin_ns).div_euclid(1000)
    }
}

/// Ids of the nodes that are not functions.
const ROOT: u32 = 1;
const IDLE: u32 = 3;
pub(crate) const PROGRAM: u32 = 4;
/// Id of the first function's node.
const FIRST_CALL: u32 = 5;

/// The names of the nodes that are always there, in the order of their ids. DevTools knows them by
/// their names.
///
/// DevTools takes the first `(program)` for V8's own node. It replaces a single sample of that node
/// by the sample before, if the stack after it begins with the same function. So the samples
/// without a stack belong to a second node.
const FIXED_NODES: [&str; 4] = ["(root)", "(program)", "(idle)", "(program)"];

/// The nodes of one thread in V8's CPU profiles, which `.cpuprofile` files and traces contain. Ids
/// are given in the order of first use, a caller's before those of the functions that it calls.
pub(crate) struct ProfileNodes<'a> {
    profile: &'a ProfileModel,
    folds_runtime: bool,
    pub(crate) calls: CallNodes,
    /// The id of each stack's node; 0 if the stack was not looked up.
    known: Vec<u32>,
    /// The ids of scripts, by URL.
    scripts: HashMap<&'a str, usize>,
}

impl<'a> ProfileNodes<'a> {
    pub(crate) fn new(profile: &'a ProfileModel, options: &ExportOptions) -> Self {
        Self {
            profile,
            folds_runtime: options.folds_runtime,
            calls: CallNodes::new(profile),
            known: vec![0; profile.stack_count()],
            scripts: HashMap::new(),
        }
    }

    /// Returns the id of the node for a tick, and adds the node if it is new.
    pub(crate) fn id_of(&mut self, activity: Activity) -> u32 {
        match activity {
            Activity::Idle => IDLE,
            Activity::Unknown => PROGRAM,
            Activity::Ran(stack) => match self.known[stack.0 as usize] {
                0 => self.add(stack),
                known => known,
            },
        }
    }

    #[cold]
    fn add(&mut self, stack: StackId) -> u32 {
        let end = folded_runtime(self.profile, self.folds_runtime, Some(stack));
        let node = self.calls.add_inside(self.profile, stack, end);
        let id = node.map_or(PROGRAM, id_of_call);
        self.known[stack.0 as usize] = id;
        id
    }

    /// Returns the call node for a tick; `None` if the tick shows no function.
    pub(crate) fn node_of(&mut self, activity: Activity) -> Option<NodeId> {
        call_of_id(self.id_of(activity))
    }

    /// Returns the ids of all nodes so far. A parent's comes before those of its children.
    pub(crate) fn ids(&self) -> Range<u32> {
        ROOT..FIRST_CALL + self.calls.nodes().len() as u32
    }

    /// Returns the id of the node that calls this one; `None` for the root.
    pub(crate) fn parent_of(&self, id: u32) -> Option<u32> {
        let caller = call_of_id(id).and_then(|call| self.calls.get(call).parent);
        (id != ROOT).then(|| caller.map_or(ROOT, id_of_call))
    }

    /// Returns the function of a node that is one.
    fn function_of(&self, id: u32) -> Option<&'a Function> {
        let call = self.calls.get(call_of_id(id)?);
        Some(self.profile.function(call.function))
    }

    pub(crate) fn name_of(&self, id: u32) -> &'a str {
        match self.function_of(id) {
            Some(function) => self.profile.text(function.name),
            None => FIXED_NODES[(id - ROOT) as usize],
        }
    }

    /// Returns the URL of a node's script: the source file, or the module if the file is unknown.
    /// An empty text for none.
    pub(crate) fn url_of(&self, id: u32) -> &'a str {
        let url = |function: &'a Function| match (function.file, function.module) {
            (Some(file), _) => Some(self.profile.text(file)),
            (None, module) => Some(self.profile.module(module?).path.as_str()),
        };
        self.function_of(id).and_then(url).unwrap_or_default()
    }

    /// Writes the `callFrame` of a node. Lines and columns count from 0 here; a node that is not a
    /// function has none.
    pub(crate) fn write_frame(&mut self, json: &mut JsonWriter<'_>, id: u32) {
        let (name, url) = (self.name_of(id), self.url_of(id));
        let (line, column) = match self.function_of(id) {
            Some(function) => (function.line, function.column),
            None => (None, None),
        };
        let scripts = self.scripts.len();
        let script = match url {
            "" => 0,
            url => *self.scripts.entry(url).or_insert(scripts + 1),
        };
        let from_zero = |number: Option<u32>| number.map_or(-1, |number| i64::from(number) - 1);
        json.key("callFrame").object(|json| {
            json.key("functionName").string(name);
            json.key("scriptId").string(&script.to_string());
            json.key("url").string(url);
            json.key("lineNumber").signed(from_zero(line));
            json.key("columnNumber").signed(from_zero(column));
        });
    }
}

/// Returns the id of a call node in the file.
fn id_of_call(node: NodeId) -> u32 {
    node.0 + FIRST_CALL
}

/// Returns the call node of an id; `None` for a node that is not a function.
fn call_of_id(id: u32) -> Option<NodeId> {
    id.checked_sub(FIRST_CALL).map(NodeId)
}

#[cfg(test)]
#[path = "v8_profile_tests.rs"]
mod tests;
