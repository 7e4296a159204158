//! Last part of step 12: the tables of a thread are printed.

use crate::json::JsonWriter;
use crate::markers::DecodedMarker;
use crate::model::WAITING_TASKS;
use crate::stream::decode::{ProfileSource, SpreadRows, ThreadStreamingContext};
use crate::stream::memory::check_memory;
use crate::stream::resolve::{FrameKind, ResolvedThread, ThreadFrame, waiting_tasks_tid};
use crate::stream::schema::{write_schema, write_table};
use crate::stream::write::marker_rows::{MARKERS, MarkerContext};
use crate::threads::MAIN_THREAD_NAME;
use crate::types::{IDLE_INDEX, TimeStamp};
use crate::util::{ProgressLocation, ProgressLogger};

/// Progress of a thread whose samples are written, from 0 to 1.
const SAMPLES_END: f32 = 0.60;

/// Size of the markers that are written between two checks of the memory, in bytes.
const MARKER_STEP_BYTES: usize = 256 << 10;
/// Memory of new texts, as a multiple of the markers' size: in a typed payload, many may be short.
const MARKER_FACTOR: usize = 16;
/// Number of intervals of contexts that are written between two checks of the memory, and the
/// memory that the fields of one may take, in bytes.
const CONTEXT_STEP: usize = 4096;
const CONTEXT_BYTES: usize = 6 * 96;

/// Fails the job if the memory does not suffice for more texts.
fn check_texts(json: &mut JsonWriter<'_>, thread: &ResolvedThread<'_>, more_bytes: usize) {
    if let Err(error) = check_memory(thread.strings.growth_bytes() + more_bytes) {
        json.fail(error);
    }
}

/// Writes one element of `threads`: the thread with the name of its track. If asked, says where the
/// thread slept throughout, so that the reader can show threads that sleep alike as one track.
pub(crate) fn write_thread<'a>(
    json: &mut JsonWriter<'_>,
    markers: &MarkerContext<'a>,
    (context, name): (&ThreadStreamingContext, &str),
    says_where_asleep: bool,
    mut thread: ResolvedThread<'a>,
    progress: &ProgressLogger,
) {
    let source = markers.source;
    let registration = context.thread.unlocked_const_reader_and_atomic_rw();
    let info = registration.info();
    json.object(|json| {
        let name = match source.is_replaced && name == MAIN_THREAD_NAME {
            true => MAIN_THREAD_BEFORE_EXEC,
            false => name,
        };
        let unregistered = registration.unregistered_at();
        write_head(json, source, name, (info.registered_at, unregistered));
        json.key("samples").object(|json| {
            write_schema(json, SAMPLES);
            let mut probed = (!context.probes.is_empty()).then(|| context.probed_delays(source));
            let rows = progress.sub_logger(0.0, SAMPLES_END, ProgressLocation::Samples);
            json.key("data").array(|json| {
                let samples = &context.samples;
                // The Firefox Profiler ignores the weights of this format.
                let is_spread = markers.process.spreads_rows;
                let mut count = samples.kept_rows(&markers.process.gaps);
                if is_spread {
                    count = count.saturating_add(samples.left_out_ticks);
                }
                let samples = SpreadRows::new(samples.iter(&markers.process.gaps), is_spread);
                for row in rows.watch(samples, count as usize, ProgressLocation::Samples) {
                    if json.failed() {
                        return;
                    }
                    let stack = thread.stack_of(row.stack);
                    let probed_ns = probed.as_mut().and_then(|delay_at| delay_at(row.time_ns));
                    json.row(|json| {
                        json.unsigned(stack.into());
                        json.time_ms(row.time_ns);
                        match row.event.delay_ns().max(probed_ns) {
                            Some(delay_ns) => json.time_ms(delay_ns),
                            None if row.cpu_delta_ns.is_some() => json.null(),
                            None => {}
                        }
                        if let Some(cpu) = row.cpu_delta_ns {
                            json.unsigned(cpu);
                        }
                    });
                }
            });
        });
        json.key("markers").object(|json| {
            write_schema(json, MARKERS);
            let rows = progress.sub_logger(SAMPLES_END, 1.0, ProgressLocation::Markers);
            json.key("data").array(|json| {
                let count = context.markers.len();
                // The first marker asks, too.
                let mut unchecked_bytes = MARKER_STEP_BYTES;
                for block in rows.watch(context.markers.blocks(), count, ProgressLocation::Markers)
                {
                    let entry = source.buffer.entry_at(block);
                    unchecked_bytes += entry.as_ref().map_or(0, |entry| entry.left());
                    if unchecked_bytes > MARKER_STEP_BYTES {
                        let step_bytes = std::mem::take(&mut unchecked_bytes);
                        check_texts(json, &thread, MARKER_FACTOR * step_bytes);
                    }
                    if json.failed() {
                        return;
                    }
                    let marker = entry.and_then(|mut entry| {
                        entry.kind()?;
                        DecodedMarker::read(&mut entry)
                    });
                    if let Some(marker) = marker {
                        markers.write(json, &marker, &mut thread);
                    }
                }
                for intervals in context.contexts.all.chunks(CONTEXT_STEP) {
                    check_texts(json, &thread, intervals.len() * CONTEXT_BYTES);
                    if json.failed() {
                        return;
                    }
                    for interval in intervals {
                        markers.write_context(json, interval, &mut thread);
                    }
                }
            });
        });
        if let Some(stack) = context.asleep_at.filter(|_| says_where_asleep) {
            json.key("asleepAt").unsigned(thread.stack_of(stack).into());
        }
        let tid = registration.tid().to_number().into();
        write_tables(json, source, tid, thread);
    });
}

/// Writes the track of the tasks that wait. The viewer ignores the weights of this format, so a row
/// is repeated as often as its weight says.
pub(crate) fn write_waiting_tasks<'a>(
    json: &mut JsonWriter<'_>,
    markers: &MarkerContext<'a>,
    mut thread: ResolvedThread<'a>,
) {
    let MarkerContext {
        source, process, ..
    } = *markers;
    let (unit_ms, rows) = process.task_waits.equal_rows();
    json.object(|json| {
        write_head(
            json,
            source,
            WAITING_TASKS,
            (source.session.started_at, None),
        );
        json.key("samples").object(|json| {
            json.key("weightType").string("tracing-ms");
            write_schema(json, WAIT_ROWS);
            json.key("data").array(|json| {
                for row in rows {
                    let stack = thread.stack_of(row.stack);
                    for _ in 0..row.weight {
                        if json.failed() {
                            return;
                        }
                        json.array(|json| {
                            json.unsigned(stack.into());
                            json.time_ms(row.time_ns);
                            json.null();
                            json.unsigned(unit_ms);
                        });
                    }
                }
            });
        });
        write_table(json.key("markers"), MARKERS, |json| {
            for interval in process.task_waits.intervals() {
                if json.failed() {
                    return;
                }
                markers.write_wait(json, interval, &mut thread);
            }
        });
        let tid = waiting_tasks_tid(source.process.to_number().into());
        write_tables(json, source, tid, thread);
    });
}

/// Writes the ids of a thread, and its tables, which have what its rows use.
fn write_tables(
    json: &mut JsonWriter<'_>,
    source: &ProfileSource,
    tid: i64,
    thread: ResolvedThread<'_>,
) {
    json.key("pid").signed(source.process.to_number().into());
    json.key("tid").signed(tid);
    write_table(json.key("stackTable"), STACK_TABLE, |json| {
        for &(prefix, frame) in &thread.stacks {
            json.row(|json| {
                match prefix {
                    Some(prefix) => json.unsigned(prefix.into()),
                    None => json.null(),
                }
                json.unsigned(frame.into());
            });
        }
    });
    write_table(json.key("frameTable"), FRAME_TABLE, |json| {
        for frame in &thread.frames {
            json.array(|json| write_frame(json, frame));
        }
    });
    thread.strings.write(json.key("stringTable"));
}

/// Writes the columns of a frame. One without a category ends before its implementation.
fn write_frame(json: &mut JsonWriter<'_>, frame: &ThreadFrame) {
    let (mut is_relevant_for_js, mut window, mut place) = (false, 0, [0; 2]);
    let category = match frame.kind {
        FrameKind::Structure | FrameKind::Function | FrameKind::Inlined => None,
        FrameKind::Waiting(wait) => Some((IDLE_INDEX, wait.subcategory())),
        FrameKind::Label {
            category,
            subcategory,
            relevant_for_js,
        } => {
            is_relevant_for_js = relevant_for_js;
            Some((category, subcategory))
        }
        FrameKind::Script {
            line,
            column,
            category,
            subcategory,
            inner_window_id,
            ..
        } => {
            (is_relevant_for_js, window, place) = (true, inner_window_id, [line, column]);
            Some((category, subcategory))
        }
    };
    json.unsigned(frame.location.0.into());
    json.bool(is_relevant_for_js);
    json.unsigned(window);
    let Some((category, subcategory)) = category else {
        return;
    };
    json.or_null(frame.implementation, |json, name| {
        json.unsigned(name.0.into());
    });
    for number in place {
        let known = Some(number).filter(|number| *number > 0);
        json.or_null(known, |json, number| json.unsigned(number.into()));
    }
    json.unsigned(category.into());
    json.unsigned(subcategory.into());
}

/// Writes an empty main thread. The viewer shows no track and no counters for a process without a
/// main thread. `thread` has no rows.
pub(crate) fn write_placeholder_main_thread(
    json: &mut JsonWriter<'_>,
    source: &ProfileSource,
    thread: ResolvedThread<'_>,
) {
    json.object(|json| {
        let registered = source.process_start.monotonic;
        write_head(json, source, MAIN_THREAD_NAME, (registered, None));
        write_table(json.key("samples"), SAMPLES, |_| {});
        write_table(json.key("markers"), MARKERS, |_| {});
        write_tables(json, source, source.process.to_number().into(), thread);
    });
}

/// Name of the main thread of a program image that `exec` has replaced.
const MAIN_THREAD_BEFORE_EXEC: &str = "main thread before exec";

const SAMPLES: &[&str] = &["stack", "time", "eventDelay", "threadCPUDelta"];
/// Without CPU times, the viewer rates the track by its samples, and shows it.
const WAIT_ROWS: &[&str] = &["stack", "time", "eventDelay", "weight"];
const STACK_TABLE: &[&str] = &["prefix", "frame"];
const FRAME_TABLE: &[&str] = &[
    "location",
    "relevantForJS",
    "innerWindowID",
    "implementation",
    "line",
    "column",
    "category",
    "subcategory",
];

/// Writes the thread's name, and when it was registered and unregistered.
fn write_head(
    json: &mut JsonWriter<'_>,
    source: &ProfileSource,
    name: &str,
    (registered, unregistered): (TimeStamp, Option<TimeStamp>),
) {
    json.key("processType").string(&source.process_type);
    json.key("name").string(name);
    json.key("processName").string(&source.process_name);
    if let Some(etld1) = &source.etld1 {
        json.key("eTLD+1").string(etld1);
    }
    json.key("registerTime")
        .time_ms(source.ns_since_start(registered));
    let unregistered_ns = unregistered.map(|time| source.ns_since_start(time));
    json.key("unregisterTime")
        .or_null(unregistered_ns, JsonWriter::time_ms);
}
