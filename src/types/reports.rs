//! What a program can read of a profile and of a running session: explanations of slow requests,
//! summaries of threads, and the state of the buffer.

use std::fmt;
use std::time::Duration;

use crate::types::ProfilerTime;

/// A request, as [`Profile::explain`](crate::Profile::explain) finds it in a profile.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SlowRequest(pub(crate) Wanted);

/// What identifies a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Wanted {
    /// The id of its trace.
    Trace(u128),
    /// The longest interval with this name.
    Marker(String),
    /// A time on a thread with this name or id, in ns since time 0 of the profile.
    Range(String, i64, i64),
    /// A time on a thread, as this process has measured it.
    Between(String, ProfilerTime, ProfilerTime),
    /// An interval on the thread with this id, in ns since time 0 of the profile.
    Interval {
        name: String,
        tid: String,
        start_ns: i64,
        end_ns: i64,
    },
}

impl SlowRequest {
    /// Returns the request whose samples have a context with this trace id:
    /// [`ProfilerContext::with_trace_id`](crate::context::ProfilerContext::with_trace_id). It lasts
    /// from its first sample to its last one, on whatever threads; with a marker that has the id in
    /// a field `trace_id`, such as a span of `tracing`, as long as the marker.
    pub fn of_trace(trace_id: u128) -> Self {
        Self(Wanted::Trace(trace_id))
    }

    /// Returns the request of the longest interval marker with this name. If the marker has the id
    /// of its trace in a field `trace_id`, the request is the part of that trace within the marker,
    /// on whatever threads; otherwise it is the time of the marker's thread. What a
    /// span of `tracing` without such a field waited for while it was not entered is not known.
    pub fn of_marker(name: impl Into<String>) -> Self {
        Self(Wanted::Marker(name.into()))
    }

    /// Returns a time on the thread with this name or id, whatever the thread did in it. The times
    /// are since time 0 of the profile, as those of its samples and markers are: since the start of
    /// the process.
    pub fn in_range(thread: impl Into<String>, start: Duration, end: Duration) -> Self {
        let to_ns = |time: Duration| i64::try_from(time.as_nanos()).unwrap_or(i64::MAX);
        Self(Wanted::Range(thread.into(), to_ns(start), to_ns(end)))
    }

    /// Returns a time on the thread with this name or id, like [`in_range`](Self::in_range), in a
    /// profile that this process has recorded.
    pub fn between(thread: impl Into<String>, start: ProfilerTime, end: ProfilerTime) -> Self {
        Self(Wanted::Between(thread.into(), start, end))
    }
}

/// What a request did with its time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[non_exhaustive]
pub enum TimeKind {
    /// It ran on a processor.
    Cpu,
    /// It could have run, and had no processor.
    WaitForProcessor,
    /// It waited for a lock that another thread held.
    Lock,
    /// It waited for a file descriptor: a connection, a pipe, a poll.
    Io,
    /// It slept, until a time.
    Sleep,
    /// It waited for work of other threads or processes: at a condition variable, parked, for the
    /// end of a thread or a child.
    Work,
    /// It was on no thread: its task was suspended at an `.await`, or waited to be polled.
    Await,
    /// It waited in the kernel, and the place does not tell for what.
    OtherWait,
    /// The profile has no samples of this time.
    Unknown,
}

impl TimeKind {
    /// All kinds, in the order in which a text lists them.
    pub(crate) const ALL: [Self; 9] = [
        Self::Cpu,
        Self::WaitForProcessor,
        Self::Lock,
        Self::Io,
        Self::Sleep,
        Self::Work,
        Self::Await,
        Self::OtherWait,
        Self::Unknown,
    ];
}

impl fmt::Display for TimeKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Cpu => "on CPU",
            Self::WaitForProcessor => "waiting for a processor",
            Self::Lock => "lock",
            Self::Io => "I/O",
            Self::Sleep => "sleep",
            Self::Work => "waiting for other threads",
            Self::Await => "await",
            Self::OtherWait => "other wait",
            Self::Unknown => "not sampled",
        })
    }
}

/// Where the time of a request went: the result of [`Profile::explain`](crate::Profile::explain).
///
/// Its `Display` is a text: the request, where the Firefox Profiler shows it, a line for each kind
/// of time with its share, and below it the stacks in which most of that time passed.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct Explanation {
    /// The name of the request's marker; empty without one.
    pub name: String,
    /// The id of its trace, if it is known.
    pub trace_id: Option<u128>,
    /// The names of the threads that it was on, the one with most of its time first.
    pub threads: Vec<String>,
    /// When it began, since time 0 of the profile.
    pub start: Duration,
    /// Its length.
    pub length: Duration,
    /// Where it is in the Firefox Profiler. `None` if the profile does not say when it began.
    pub viewer_range: Option<ViewerRange>,
    /// The kinds of time that it spent, in the order of [`TimeKind`]. Together they are as long as
    /// the request, or longer if it was on several threads at a time.
    pub parts: Vec<ExplainedPart>,
}

/// A time as the Firefox Profiler counts it: since the recording began.
///
/// Its `Display` is the value that the viewer's address has for it, such as `4920123u81000`: the
/// start and the length in µs. To see this time alone, set `range=4920123u81000` in the address of
/// an open profile, in place of the range that is there. An address without a version `v` also
/// needs `v=5`: without it, the viewer takes the range for one of another form.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub struct ViewerRange {
    /// The start, since the recording began.
    pub start: Duration,
    /// The end, since the recording began.
    pub end: Duration,
}

impl fmt::Display for ViewerRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The start is rounded down and the end up, so that the text covers the whole interval. At
        // least 1 µs.
        let start_us = self.start.as_micros();
        let end_us = self.end.as_nanos().div_ceil(1000);
        write!(f, "{start_us}u{}", end_us.saturating_sub(start_us).max(1))
    }
}

/// The time of one kind that a request spent.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct ExplainedPart {
    /// The kind.
    pub kind: TimeKind,
    /// How long.
    pub time: Duration,
    /// The stacks in which it was spent, the longest time first.
    pub stacks: Vec<ExplainedStack>,
}

/// A stack in which a request spent time.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct ExplainedStack {
    /// The functions of the program's own crates, the innermost first, at most eight. If there is
    /// none, the innermost functions.
    pub functions: Vec<String>,
    /// The function that the first of these called, and the innermost function of all: a lock's
    /// `lock`, and the system call.
    pub inside: Vec<String>,
    /// Whether `functions` are the names of futures that waited, as the feature
    /// [`WAITING_TASKS`](crate::Features::WAITING_TASKS) records them. Where several waited at the same
    /// time, one name has them all.
    pub are_futures: bool,
    /// How long.
    pub time: Duration,
}

impl Explanation {
    /// Returns the time of a kind.
    pub fn time(&self, kind: TimeKind) -> Duration {
        let of_kind = self.parts.iter().filter(|part| part.kind == kind);
        of_kind.map(|part| part.time).sum()
    }

    /// Returns the time of a kind in stacks that contain a function whose name has this part.
    pub fn time_in(&self, kind: TimeKind, function: &str) -> Duration {
        let of_kind = self.parts.iter().filter(|part| part.kind == kind);
        let stacks = of_kind.flat_map(|part| &part.stacks);
        let has_it = |stack: &&ExplainedStack| {
            let mut names = stack.functions.iter().chain(&stack.inside);
            names.any(|name| name.contains(function))
        };
        stacks.filter(has_it).map(|stack| stack.time).sum()
    }
}

/// Maximum number of stacks below a kind in the text.
const MAX_STACKS: usize = 5;
/// Stacks with a smaller share of the request are left out of the text.
const MIN_SHARE: f64 = 0.005;

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self.name.as_str() {
            "" => "The request",
            name => name,
        };
        write!(f, "{name} took {:.1} ms", ms(self.length))?;
        if !self.threads.is_empty() {
            write!(f, " on {}", self.threads.join(", "))?;
        }
        if let Some(trace_id) = self.trace_id {
            write!(f, ", trace {trace_id:032x}")?;
        }
        writeln!(f, ", from {:.6} s on", self.start.as_secs_f64())?;
        if let Some(range) = self.viewer_range {
            let [start, end] = [range.start, range.end].map(|time| time.as_secs_f64());
            writeln!(
                f,
                "in the Firefox Profiler: {start:.3} to {end:.3} s, range={range}"
            )?;
        }
        let length_ms = ms(self.length).max(f64::MIN_POSITIVE);
        for part in &self.parts {
            let share = ms(part.time) / length_ms;
            writeln!(
                f,
                "\n{:<26}{:>10.1} ms {:>6.1} %",
                part.kind,
                ms(part.time),
                share * 100.0
            )?;
            let large = |stack: &&ExplainedStack| ms(stack.time) / length_ms >= MIN_SHARE;
            let has_stacks = part.kind != TimeKind::Unknown;
            let stacks = part.stacks.iter().filter(large).take(MAX_STACKS);
            for stack in stacks.filter(|_| has_stacks) {
                write!(f, "  {:>10.1} ms  ", ms(stack.time))?;
                match part.kind {
                    TimeKind::Await if stack.are_futures => f.write_str("suspended in ")?,
                    TimeKind::Await => f.write_str("suspended after ")?,
                    _ => {}
                }
                f.write_str(&stack.functions.join(" \u{2190} "))?;
                if !stack.inside.is_empty() {
                    write!(f, ", in {}", stack.inside.join(" \u{2192} "))?;
                }
                writeln!(f)?;
            }
        }
        Ok(())
    }
}

/// A summary of one thread's samples in a profile.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ThreadSummary {
    /// The name under which the thread was registered; `GeckoMain` for the main thread.
    pub name: String,
    /// Number of the thread's samples in the profile, including the samples left out while it
    /// waited.
    pub samples: usize,
    /// Time that the samples represent: their number times the interval.
    pub sampled: Duration,
    /// CPU time of the thread in the samples; zero without the feature `cpu`.
    pub cpu: Duration,
    /// Time in which the thread could have run and had no processor. `None` without the feature
    /// `contextswitches`, if the thread has no such marker, or if the kernel does not report it.
    pub waited_for_processor: Option<Duration>,
    /// How often the thread left its processor to wait for something. `None` without the feature
    /// `contextswitches`, or if the thread has no such marker.
    pub voluntary_switches: Option<u64>,
    /// How often the kernel took the processor from the thread; `None` likewise.
    pub involuntary_switches: Option<u64>,
    /// Number of samples whose stack could not be unwound to its root.
    pub truncated_samples: usize,
    /// The functions in the thread's stacks, by self time, the greatest first.
    pub functions: Vec<HotFunction>,
    /// The script functions in the thread's stacks, by self time, the greatest first.
    ///
    /// The self time of a script function is the CPU time while it was the innermost script frame.
    /// So it includes the work of the interpreter for this function. A sample whose innermost
    /// script frames did not fit into the copy of the stack counts towards the self time of no
    /// function.
    pub script_functions: Vec<HotFunction>,
}

/// The time that a thread spent in one function.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct HotFunction {
    /// The function's name, or its address if the name is unknown; `(ran between samples)` for CPU
    /// time at a moment when no sample found the thread running.
    ///
    /// Script functions are named as in the viewer, with the location where they begin:
    /// `name (file:line:column)`.
    pub name: String,
    /// File name of the library or executable that contains the function, if the function's name is
    /// known. `None` for a script function.
    pub library: Option<String>,
    /// CPU time while the function was the innermost one, including functions inlined into it.
    /// Without the feature `cpu`, one interval per sample.
    pub self_time: Duration,
    /// CPU time while the function was anywhere in the stack, counted once per sample.
    pub total_time: Duration,
    /// Number of samples in which the function, or a function inlined into it, was the innermost
    /// one.
    pub self_samples: usize,
    /// Number of samples in which the function was anywhere in the stack.
    pub total_samples: usize,
}

/// Statistics of a duration that the sampler measures on each of its loops, in ns.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct ProfilerStats {
    /// Number of measured durations.
    pub count: u64,
    /// Sum of the durations, in ns.
    pub sum_ns: u64,
    /// Shortest duration, in ns; 0 if none was measured.
    pub min_ns: u64,
    /// Longest duration, in ns; 0 if none was measured.
    pub max_ns: u64,
}

/// Fill level and losses of the running session's buffer, and the sampler's overhead.
///
/// The sampler delays the samples of idle threads, to write equal ones as one entry. These figures
/// do not include such samples until they are written; a profile does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[doc(alias = "ProfilerBufferInfo")]
#[non_exhaustive]
pub struct BufferInfo {
    /// Position of the oldest byte in the buffer. Positions count all bytes that the session has
    /// written, from 1.
    pub range_start: u64,
    /// Position after the newest byte. The buffer holds `range_end - range_start` bytes.
    pub range_end: u64,
    /// Capacity of the buffer, in bytes, as requested at start, or a share of the memory that was left.
    pub capacity_bytes: u64,
    /// Number of entries written since the session began: samples, runs of repeated samples,
    /// markers, counter values and pauses.
    pub put_entries: u64,
    /// Number of entries that were lost. Some were larger than a chunk of the buffer. Others came
    /// from a signal handler or allocator of the application that ran inside the profiler's own
    /// work, or found no memory. A profile counts each kind separately.
    pub dropped_entries: u64,
    /// Number of bytes that were discarded, oldest first, to free space for newer ones.
    pub recycled_bytes: u64,
    /// Times from the beginning of one sampling loop to the beginning of the next.
    pub intervals: ProfilerStats,
    /// Total durations of sampling loops: the sum of the four parts below. These are wall-clock
    /// times, not CPU times. Loops during a pause do not count.
    pub overheads: ProfilerStats,
    /// First part of a loop: updating the lists of modules and threads. Gecko spends this time on
    /// waiting for its lock.
    pub lockings: ProfilerStats,
    /// Last part of a loop: maintaining the buffer.
    pub cleanings: ProfilerStats,
    /// Part of a loop: reading the counters.
    pub counters: ProfilerStats,
    /// Part of a loop: sampling the threads.
    pub threads: ProfilerStats,
}
