//! Writes Chrome Trace Event JSON, for DevTools' Performance panel, Perfetto and others.
//!
//! A thread becomes up to three tracks, because the events of a track must nest:
//!
//! - its own id: the calls that are estimated from its samples, with the host's tasks and function
//!   calls ([`crate::export::write::formats::profile_calls`]), as `X` events;
//! - `NAME (markers)`: the other markers;
//! - `NAME (samples)`: the samples, as events `Profile` and `ProfileChunk`. Were they on the track
//!   of the calls, DevTools would show each call twice.
//!
//! All times are whole µs, so that rounding keeps events nested.

use std::collections::HashSet;
use std::io;

use crate::export::options::ExportOptions;
use crate::export::write::formats::profile_calls::{CallOrSpan, MarkerSpans, visit_calls};
use crate::export::write::formats::trace_markers::{Flows, MarkerEvents, write_track};
use crate::export::write::formats::v8_profile::{
    Activity, MicroClock, ProfileNodes, Tick, TickRange, Ticks,
};
use crate::json::JsonWriter;
use crate::model::{Counter, ProfileModel, Thread};

/// Samples of a chunk. DevTools passes the samples of a chunk as the arguments of a function, whose
/// number is limited. It takes the end of the profile from the first chunk, so chunks are long.
const CHUNK_SAMPLES: usize = 1 << 15;

/// Writes the threads that the options choose, and the counters.
///
/// # Errors
/// The sink's first failure.
pub(crate) fn write_chrome_trace(
    profile: &ProfileModel,
    options: &ExportOptions,
    out: &mut dyn io::Write,
) -> io::Result<()> {
    let threads = options.threads(profile);
    let mut ids = Ids::default();
    let processes = profile.processes.iter();
    let pids: Vec<u64> = processes.map(|process| ids.take(&process.pid)).collect();
    // A main thread usually has the id of its process.
    let mut ids = Ids::default();
    let chosen = threads.iter().map(|&index| &profile.threads[index]);
    let tids: Vec<u64> = chosen.map(|thread| ids.take(&thread.tid)).collect();
    let mut trace = Trace {
        profile,
        options,
        clock: MicroClock::new(first_ns(profile, &threads)),
        flows: Flows::of(profile),
        tracks: Tracks { ids, count: 0 },
        next_async_id: 1,
    };

    let mut json = JsonWriter::new(out);
    json.object(|json| {
        json.key("displayTimeUnit").string("ms");
        json.key("otherData").object(|json| {
            json.key("product").string(&profile.meta.product);
            json.key("startTime").float(profile.meta.start_epoch_ms);
        });
        json.key("traceEvents").array(|json| {
            for (process, &pid) in profile.processes.iter().zip(&pids) {
                let name = match process.name.as_str() {
                    "" => &profile.meta.product,
                    name => name,
                };
                write_metadata(json, "process_name", (pid, 0), |json| {
                    json.key("name").string(name);
                });
            }
            for counter in &profile.counters {
                write_counter(json, counter, trace.clock, pids[counter.process]);
            }
            for (tid, index) in tids.into_iter().zip(threads) {
                let thread = &profile.threads[index];
                trace.write_thread(json, thread, (pids[thread.process], tid));
            }
            trace.flows.write(json);
        });
    });
    json.finish()
}

/// Returns the first time of all threads and counters, or 0 if that is earlier.
fn first_ns(profile: &ProfileModel, threads: &[usize]) -> i64 {
    let threads = threads.iter().map(|&index| &profile.threads[index]);
    let of_thread = |thread: &Thread| {
        let samples = (!thread.samples.is_empty()).then(|| thread.samples.get(0).time_ns);
        let markers = thread.markers.iter();
        let markers = markers.filter_map(|marker| marker.start_ns.or(marker.end_ns));
        samples.into_iter().chain(markers.min()).min().unwrap_or(0)
    };
    let counters = profile.counters.iter();
    let counters = counters.filter_map(|counter| Some(counter.samples.first()?.time_ns));
    threads
        .map(of_thread)
        .chain(counters)
        .min()
        .unwrap_or(0)
        .min(0)
}

struct Trace<'a> {
    profile: &'a ProfileModel,
    options: &'a ExportOptions,
    clock: MicroClock,
    flows: Flows<'a>,
    tracks: Tracks,
    next_async_id: u64,
}

impl<'a> Trace<'a> {
    fn write_thread(
        &mut self,
        json: &mut JsonWriter<'_>,
        thread: &'a Thread,
        (pid, tid): (u64, u64),
    ) {
        let (profile, options, clock) = (self.profile, self.options, self.clock);
        let mut range = TickRange::default();
        Ticks::new(profile, thread, options).for_each(|tick| range.add(&tick));
        let (start_ns, end_ns) = match (range.count, profile.meta.session_ns) {
            (0, session) => session.unwrap_or_default(),
            _ => (range.first_ns, range.end_ns(profile)),
        };
        let spans = MarkerSpans::of(profile, thread, (start_ns, end_ns));
        let has_markers = spans.host.len() < thread.markers.len();

        self.tracks.begin(json, &thread.name, (pid, tid));
        let mut markers = MarkerEvents {
            profile,
            thread,
            clock,
            track: (pid, tid),
            flows: &mut self.flows,
        };
        let mut nodes = ProfileNodes::new(profile, options);
        let ticks = Ticks::new(profile, thread, options);
        let end = (clock, end_ns);
        visit_calls(&mut nodes, ticks, &spans.host, end, |next| match next {
            CallOrSpan::Span(span) => markers.write_complete(json, &span),
            CallOrSpan::Call(call) => json.object(|json| {
                json.key("name")
                    .string(profile.function_name(call.function));
                json.key("cat").string("call");
                json.key("ph").string("X");
                json.key("ts").signed(call.start_us);
                json.key("dur").signed(call.end_us - call.start_us);
                write_track(json, (pid, tid));
            }),
        });
        if has_markers {
            let name = format!("{} (markers)", thread.name);
            markers.track = self.tracks.begin_new(json, &name, pid);
            markers.write_nested(json, &spans.nested);
            markers.write_crossing(json, &spans.crossing, &mut self.next_async_id);
            markers.write_instants(json);
        }
        if range.count > 0 {
            let name = format!("{} (samples)", thread.name);
            let track = self.tracks.begin_new(json, &name, pid);
            let ticks = Ticks::new(profile, thread, options);
            let start_us = clock.us(range.first_ns);
            let nodes = ProfileNodes::new(profile, options);
            write_samples(json, profile, nodes, ticks, (clock, start_us), track);
        }
    }
}

/// The tracks that have begun. They are shown in the order in which they are written.
struct Tracks {
    ids: Ids,
    count: u64,
}

impl Tracks {
    /// Writes the name of a track.
    fn begin(&mut self, json: &mut JsonWriter<'_>, name: &str, track: (u64, u64)) {
        write_metadata(json, "thread_name", track, |json| {
            json.key("name").string(name);
        });
        write_metadata(json, "thread_sort_index", track, |json| {
            json.key("sort_index").unsigned(self.count);
        });
        self.count += 1;
    }

    /// Writes the name of a track that is no thread, and returns the track.
    fn begin_new(&mut self, json: &mut JsonWriter<'_>, name: &str, pid: u64) -> (u64, u64) {
        let track = (pid, self.ids.make());
        self.begin(json, name, track);
        track
    }
}

/// Numbers for processes and threads. A process of Firefox may have an id that is not a number, and
/// two threads may have had the same id, one after the other.
#[derive(Default)]
struct Ids {
    taken: HashSet<u64>,
    made: u64,
}

impl Ids {
    /// Ids from here on belong to no thread of Linux.
    const FIRST_MADE: u64 = (1 << 22) + 1;

    fn take(&mut self, wanted: &str) -> u64 {
        let wanted = wanted.parse().ok();
        let wanted = wanted.filter(|id| *id < u64::from(u32::MAX) && self.taken.insert(*id));
        wanted.unwrap_or_else(|| self.make())
    }

    fn make(&mut self) -> u64 {
        loop {
            let id = Self::FIRST_MADE + self.made;
            self.made += 1;
            if self.taken.insert(id) {
                return id;
            }
        }
    }
}

fn write_metadata(
    json: &mut JsonWriter<'_>,
    what: &str,
    track: (u64, u64),
    args: impl FnOnce(&mut JsonWriter<'_>),
) {
    json.object(|json| {
        json.key("name").string(what);
        json.key("cat").string("__metadata");
        json.key("ph").string("M");
        json.key("ts").unsigned(0);
        write_track(json, track);
        json.key("args").object(args);
    });
}

/// Writes the samples of a thread as events `Profile` and `ProfileChunk`. `ts` of `Profile` is the
/// start of the profile. DevTools matches chunks to it by process and id, so the id is that of the
/// track.
fn write_samples(
    json: &mut JsonWriter<'_>,
    profile: &ProfileModel,
    mut nodes: ProfileNodes<'_>,
    ticks: impl Iterator<Item = Tick>,
    (clock, start_us): (MicroClock, i64),
    track: (u64, u64),
) {
    write_event(json, "Profile", start_us, track, |json| {
        json.key("startTime").signed(start_us);
    });
    let mut ticks = ticks.peekable();
    let mut chunk = Vec::new();
    let (mut written, mut previous_us) = (nodes.ids().start, start_us);
    while let Some(first) = ticks.peek() {
        let first_us = clock.us(first.time_ns);
        chunk.clear();
        chunk.extend(ticks.by_ref().take(CHUNK_SAMPLES).map(|tick| {
            let time_us = clock.us(tick.time_ns);
            let sample = ChunkSample {
                node: nodes.id_of(tick.activity),
                delta_us: time_us - previous_us,
                line: line_of(profile, tick.activity),
            };
            previous_us = time_us;
            sample
        }));
        write_event(json, "ProfileChunk", first_us, track, |json| {
            json.key("cpuProfile").object(|json| {
                json.key("nodes").array(|json| {
                    for id in written..nodes.ids().end {
                        json.object(|json| {
                            json.key("id").unsigned(id.into());
                            if let Some(parent) = nodes.parent_of(id) {
                                json.key("parent").unsigned(parent.into());
                            }
                            nodes.write_frame(json, id);
                        });
                    }
                    written = nodes.ids().end;
                });
                write_column(json, "samples", &chunk, |sample| sample.node.into());
            });
            write_column(json, "timeDeltas", &chunk, |sample| sample.delta_us);
            write_column(json, "lines", &chunk, |sample| sample.line.into());
        });
    }
}

struct ChunkSample {
    node: u32,
    delta_us: i64,
    /// The line that ran, from 1 on; 0 if it is unknown.
    line: u32,
}

fn line_of(profile: &ProfileModel, activity: Activity) -> u32 {
    match activity {
        Activity::Ran(stack) => profile.frame(profile.stack(stack).1).line.unwrap_or(0),
        Activity::Idle | Activity::Unknown => 0,
    }
}

fn write_column(
    json: &mut JsonWriter<'_>,
    name: &str,
    chunk: &[ChunkSample],
    value: impl Fn(&ChunkSample) -> i64,
) {
    json.key(name).array(|json| {
        for sample in chunk {
            json.signed(value(sample));
        }
    });
}

fn write_event(
    json: &mut JsonWriter<'_>,
    name: &str,
    ts_us: i64,
    track: (u64, u64),
    data: impl FnOnce(&mut JsonWriter<'_>),
) {
    json.object(|json| {
        json.key("name").string(name);
        json.key("cat")
            .string("disabled-by-default-v8.cpu_profiler");
        json.key("ph").string("P");
        json.key("id").string(&format!("{:#x}", track.1));
        json.key("ts").signed(ts_us);
        write_track(json, track);
        json.key("args").object(|json| {
            json.key("data").object(data);
        });
    });
}

/// Writes the values of a counter. A level, such as memory, is the sum of its changes. Other
/// counters, such as CPU time, are shown by how much they change.
fn write_counter(json: &mut JsonWriter<'_>, counter: &Counter, clock: MicroClock, pid: u64) {
    let mut sum = 0.0;
    for sample in &counter.samples {
        sum += sample.delta;
        let value = match counter.is_level() {
            true => sum,
            false => sample.delta,
        };
        json.object(|json| {
            json.key("name").string(&counter.name);
            json.key("cat").string(&counter.category);
            json.key("ph").string("C");
            json.key("ts").signed(clock.us(sample.time_ns));
            write_track(json, (pid, 0));
            json.key("args")
                .object(|json| json.key("value").float(value));
        });
    }
}

#[cfg(test)]
#[path = "chrome_trace_tests.rs"]
mod tests;
