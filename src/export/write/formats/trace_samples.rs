//! The samples of a thread as events `Profile` and `ProfileChunk` of a trace.

use crate::export::write::formats::profile_nodes::{
    FIXED_NODES, ProfileNodes, ROOT, id_of_call, parent_id,
};
use crate::export::write::formats::ticks::{Activity, MicroClock, Tick};
use crate::export::write::formats::trace_events::write_track;
use crate::json::JsonWriter;
use crate::model::{NodeId, ProfileModel};

/// Samples of a chunk. DevTools passes the samples of a chunk as the arguments of a function, whose
/// number is limited. It takes the end of the profile from the first chunk, so chunks are long.
const CHUNK_SAMPLES: usize = 1 << 15;

/// Writes the samples of a thread. `ts` of `Profile` is the start of the profile. DevTools matches
/// chunks to it by process and id, so the id is that of the track.
pub(super) fn write_samples(
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
    let (mut written, mut previous_us) = (0, start_us);
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
                    if written == 0 {
                        write_fixed_nodes(json);
                    }
                    write_new_nodes(json, &mut nodes, &mut written);
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

fn write_fixed_nodes(json: &mut JsonWriter<'_>) {
    for (id, name) in FIXED_NODES {
        json.object(|json| {
            json.key("id").unsigned(id.into());
            if id != ROOT {
                json.key("parent").unsigned(ROOT.into());
            }
            ProfileNodes::write_fixed_frame(json, name);
        });
    }
}

/// Writes the nodes after the first `written` ones. A parent is never written after its children.
fn write_new_nodes(json: &mut JsonWriter<'_>, nodes: &mut ProfileNodes<'_>, written: &mut u32) {
    while (*written as usize) < nodes.calls.nodes().len() {
        let node = NodeId(*written);
        let call = nodes.calls.get(node).clone();
        json.object(|json| {
            json.key("id").unsigned(id_of_call(node).into());
            json.key("parent").unsigned(parent_id(&call).into());
            nodes.write_frame(json, call.function);
        });
        *written += 1;
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
