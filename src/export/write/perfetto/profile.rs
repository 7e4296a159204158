//! Writes the packets of a trace.

use std::io::{self, Write};

use crate::export::options::{ExportOptions, SampleWeight};
use crate::export::write::flow_fields::FlowFields;
use crate::export::write::marker_intervals::entry_times;
use crate::export::write::perfetto::events::{ThreadEvents, event_packet};
use crate::export::write::perfetto::messages::{
    Clock, ClockSnapshot, SampleCounter, StackSample, StackSampleDefaults, TraceEventKind,
    TracePacket, TracePacketDefaults, TrackEvent,
};
use crate::export::write::perfetto::packets::Packets;
use crate::export::write::perfetto::tracks::{
    counter_packet, counter_track, process_packet, task_context, thread_packet,
};
use crate::model::{ChargedSample, Counter, ProfileModel, WeightUnit};
use crate::util::{ProgressLocation, ProgressLogger};

const CLOCK_REALTIME: u32 = 1;
/// The clock that times without a clock are on.
const CLOCK_BOOTTIME: u32 = 6;

const UNIT_NANOSECONDS: i32 = 1;
const UNIT_BYTES: i32 = 4;
const SCOPE_GLOBAL: i32 = 1;

/// Writes the chosen threads, with the counters of their processes, as a Perfetto trace.
pub(crate) fn write_perfetto(
    profile: &ProfileModel,
    options: &ExportOptions,
    out: &mut dyn Write,
    progress: &ProgressLogger,
) -> io::Result<()> {
    let mut packets = Packets::new(profile, options, out);
    let threads = options.threads(profile);
    let shift_ns = shift_ns(profile, &threads);
    packets.write(head(profile, options, shift_ns))?;
    let is_shown = |process: usize| {
        let mut threads = threads.iter().map(|index| &profile.threads[*index]);
        threads.any(|thread| thread.process == process)
    };
    for (index, process) in profile.processes.iter().enumerate() {
        if is_shown(index) {
            packets.write(process_packet(process, index))?;
        }
    }
    for (index, counter) in profile.counters.iter().enumerate() {
        if is_shown(counter.process) {
            packets.write(counter_packet(counter, index))?;
            write_counter(&mut packets, counter, index, shift_ns)?;
        }
    }
    let flows = FlowFields::of(profile);
    for (progress, index) in progress.loop_sub_loggers(threads, ProgressLocation::Samples) {
        let thread = &profile.threads[index];
        packets.write(thread_packet(profile, thread, index))?;
        let events = ThreadEvents {
            profile,
            flows: &flows,
            thread,
            index,
            shift_ns,
        };
        events.write(&mut packets)?;
        write_samples(profile, options, &mut packets, index, shift_ns, &progress)?;
    }
    packets.flush()
}

/// Returns what is added to a time, so that none is negative.
fn shift_ns(profile: &ProfileModel, threads: &[usize]) -> i64 {
    let threads = threads.iter().map(|index| &profile.threads[*index]);
    let of_threads = threads.map(|thread| entry_times(thread).0);
    let counters = profile.counters.iter();
    let of_counters = counters.filter_map(|counter| Some(counter.samples.first()?.time_ns));
    let earliest = of_threads.chain(of_counters).fold(0, i64::min);
    earliest.saturating_neg()
}

/// Returns the packet with the clocks, and with what all samples share.
fn head(profile: &ProfileModel, options: &ExportOptions, shift_ns: i64) -> TracePacket {
    let counter = |name: &str| SampleCounter {
        name: name.into(),
        unit: UNIT_NANOSECONDS,
        scope: SCOPE_GLOBAL,
    };
    let mut counters = vec![counter("wall")];
    if profile.meta.has_cpu_deltas {
        counters.push(counter("cpu"));
    }
    if options.weight == SampleWeight::Cpu {
        counters.reverse();
    }
    let primary = counters.remove(0);
    let clock = |clock_id, timestamp: i64| Clock {
        clock_id,
        timestamp: timestamp.max(0).unsigned_abs(),
    };
    TracePacket {
        timestamp: Some(shift_ns.unsigned_abs()),
        clock_snapshot: Some(Box::new(ClockSnapshot {
            clocks: vec![
                clock(CLOCK_BOOTTIME, shift_ns),
                clock(CLOCK_REALTIME, (profile.meta.start_epoch_ms * 1e6) as i64),
            ],
        })),
        trace_packet_defaults: Some(Box::new(TracePacketDefaults {
            stack_sample_defaults: Some(StackSampleDefaults {
                source: "gekkota".into(),
                primary_descriptor: Some(primary),
                follower_descriptors: counters,
            }),
        })),
        ..TracePacket::default()
    }
}

fn write_counter(
    packets: &mut Packets<'_>,
    counter: &Counter,
    index: usize,
    shift_ns: i64,
) -> io::Result<()> {
    let mut sum = 0.0;
    for sample in &counter.samples {
        sum += sample.delta;
        let value = match counter.is_level() {
            true => sum,
            false => sample.delta,
        };
        let event = TrackEvent {
            kind: TraceEventKind::Counter as i32,
            track_uuid: counter_track(index),
            double_counter_value: Some(value),
            ..TrackEvent::default()
        };
        packets.write(event_packet(event, sample.time_ns, shift_ns))?;
    }
    Ok(())
}

fn write_samples(
    profile: &ProfileModel,
    options: &ExportOptions,
    packets: &mut Packets<'_>,
    index: usize,
    shift_ns: i64,
    progress: &ProgressLogger,
) -> io::Result<()> {
    let thread = &profile.threads[index];
    let task_context = task_context(profile, index);
    let (rows, count) = (profile.charged_samples(thread), thread.samples.len());
    for row in progress.watch(rows, count, ProgressLocation::Samples) {
        let mut stack_sample = weights(profile, options, thread.samples.weight_unit, &row);
        let sample = row.sample;
        stack_sample.task_context = Some(task_context);
        stack_sample.callstack_iid = sample.stack.and_then(|stack| packets.stack(stack));
        let time_ns = sample.time_ns.saturating_add(shift_ns);
        packets.write(TracePacket {
            timestamp: Some(time_ns.max(0).unsigned_abs()),
            stack_sample: Some(stack_sample),
            ..TracePacket::default()
        })?;
    }
    Ok(())
}

/// Returns a sample with its weights alone.
fn weights(
    profile: &ProfileModel,
    options: &ExportOptions,
    unit: WeightUnit,
    row: &ChargedSample,
) -> StackSample {
    let weight = row.sample.weight.max(0).unsigned_abs();
    if unit == WeightUnit::Bytes {
        return StackSample {
            primary_descriptor: Some(SampleCounter {
                name: "space".into(),
                unit: UNIT_BYTES,
                scope: SCOPE_GLOBAL,
            }),
            primary_weight: Some(weight),
            ..StackSample::default()
        };
    }
    let wall_ns = match unit {
        WeightUnit::Milliseconds => weight.saturating_mul(1_000_000),
        _ => weight.saturating_mul(profile.meta.interval_ns),
    };
    let cpu_ns = profile.meta.has_cpu_deltas.then_some(row.cpu_ns);
    let (primary, follower) = match (options.weight, cpu_ns) {
        (SampleWeight::Cpu, Some(cpu_ns)) => (cpu_ns, Some(wall_ns)),
        (_, cpu_ns) => (wall_ns, cpu_ns),
    };
    StackSample {
        primary_weight: Some(primary),
        follower_weights: follower.into_iter().collect(),
        ..StackSample::default()
    }
}
