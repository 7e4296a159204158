//! Inputs that the tests and the seeds share: pseudo-random numbers, and chunks like a session's.

use crate::buffer::{BufferSnapshot, ChunkedBuffer, EntryHead, EntryKind};
use crate::capture::EventLoopState;
use crate::fuzzing::samples::context;
use crate::fuzzing::scripted_source::{PROCESS_START, SERIALS, scripted_source};
use crate::markers::{
    MarkerDestination, MarkerEntry, MarkerTiming, NewMarker, NoPayload, TextPayload, Tracing,
    TypedPayload,
};
use crate::sampler::{SampleScript, ScriptedFrame, ScriptedSample, ScriptedStack};
use crate::stream::PlainSamples;
use crate::types::{ProfilerTime, ProfilingCategoryPair, TimeStamp};
use crate::waiting_tasks::WaitRow;

const SESSION: crate::types::Generation = ChunkedBuffer::TEST_SESSION;

/// Returns reproducible pseudo-random numbers.
pub(crate) fn random_numbers(seed: u64) -> impl Iterator<Item = u64> {
    let step = |state: &u64| Some(state.wrapping_add(0x9e37_79b9_7f4a_7c15));
    std::iter::successors(Some(seed), step).map(|state| {
        let mixed = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    })
}

/// Returns reproducible pseudo-random bytes.
pub(crate) fn random_bytes(seed: u64) -> impl Iterator<Item = u8> {
    random_numbers(seed).flat_map(u64::to_le_bytes)
}

/// Returns chunks with all kinds of entries that a session writes.
pub(crate) fn scripted_chunks() -> Vec<Vec<u8>> {
    let buffer = ChunkedBuffer::for_test(1 << 16);
    let mut script = SampleScript::new(&buffer, SESSION, PROCESS_START);
    let label = |text: &str| ScriptedFrame::Label {
        category: 1,
        subcategory: 2,
        text: text.into(),
        dynamic: "µ".into(),
    };
    let native = |address, is_innermost| ScriptedFrame::Native {
        address,
        is_innermost,
    };
    let markers = buffer.take_lane();
    for (index, number) in random_numbers(3).take(24).enumerate() {
        let now = PROCESS_START.plus_ns(index as u64 * 1_000);
        let thread = SERIALS[number as usize % 3];
        let frames = vec![
            native(0x7f00_1000, false),
            label(["a", "b"][number as usize >> 8 & 1]),
            ScriptedFrame::Script {
                function: 1,
                line: 7,
                column: 0,
            },
            native(0x7f00_1000 + (number >> 16 & 7) * 8, number & 1 << 20 == 0),
        ];
        let event_loop = EventLoopState::Running(PROCESS_START);
        let stack = ScriptedStack {
            frames,
            is_truncated: index == 5,
            is_of_other_stack: index == 6,
            event_loop,
            context: context(number >> 40 & 3),
        };
        if number >> 30 & 1 == 0 {
            script.set_stack(thread, &stack);
        }
        let (more, span_ns) = if index % 7 == 3 { (5, 900) } else { (0, 0) };
        let modules = 1 + index as u64 / 20;
        let sample = ScriptedSample {
            thread,
            time: now,
            cpu_delta_ns: Some(300),
            more,
            span_ns,
            first_tick: (index % 2 == 1).then(|| now.since_ns(PROCESS_START)),
            weight: 1 + number % 3,
            modules,
        };
        assert_eq!(script.write(sample), more + 1);
        if index % 8 == 0 {
            put_other_kinds(&script, now);
            assert!(script.write_backtrace(1 + index as u64, now, modules, &stack));
            let wait = WaitRow {
                stack: 1,
                time: now,
                weight_ns: number % 90_000_000,
                interval_ns: if index == 8 { 8_000 } else { 0 },
                context: stack.context,
            };
            assert!(script.write_wait(&wait, modules, &stack));
            let time = ProfilerTime::from_monotonic_ns;
            let mut timing = MarkerTiming::interval(time(now.0), time(now.0 + 9));
            timing.inner_window_id = index as u64;
            let category = ProfilingCategoryPair::Network(None).indices().0;
            let marker = NewMarker {
                name: "name",
                category,
                timing: &timing,
                stack: 1 + index as u64 / 2,
            };
            let destination = MarkerDestination {
                session: SESSION,
                thread,
                now,
                rarity: None,
            };
            let payload = Tracing::from_str("tracing");
            let is_put = match index {
                0 => markers.put(
                    SESSION,
                    now,
                    &MarkerEntry::new(&destination, PROCESS_START, &marker, NoPayload),
                ),
                8 => {
                    let text = TextPayload("text");
                    markers.put(
                        SESSION,
                        now,
                        &MarkerEntry::new(&destination, PROCESS_START, &marker, text),
                    )
                }
                _ => {
                    let typed = TypedPayload::new(&payload).with_number(1);
                    markers.put(
                        SESSION,
                        now,
                        &MarkerEntry::new(&destination, PROCESS_START, &marker, typed),
                    )
                }
            };
            assert!(is_put.is_some());
        }
    }
    buffer
        .snapshot()
        .bytes_of_chunks()
        .map(<[u8]>::to_vec)
        .collect()
}

/// Puts the sampler's other kinds of entries.
fn put_other_kinds(script: &SampleScript<'_>, now: TimeStamp) {
    let ns = now.since_ns(PROCESS_START);
    for (kind, numbers) in [
        (EntryKind::Counter, &[1, ns, 10][..]),
        (EntryKind::Overhead, &[ns, 1, 2, 3, 4]),
        (EntryKind::EventProbe, &[1, ns, 400]),
        (EntryKind::PauseSampling, &[ns]),
        (EntryKind::ResumeSampling, &[ns + 1]),
        (EntryKind::Pause, &[ns + 2]),
        (EntryKind::Resume, &[ns + 3]),
        // Within the next sample, if it has repeats and the number of its tick.
        (EntryKind::TickGap, &[ns + 1500, ns + 1200, ns + 1002]),
    ] {
        let mut entry = EntryHead::new(kind);
        numbers.iter().for_each(|&number| _ = entry.number(number));
        script.lane().put(SESSION, now, &entry).expect("space");
    }
}

/// Decodes chunks.
pub(crate) fn decoded(chunks: &[&[u8]]) -> PlainSamples {
    PlainSamples::decode(&scripted_source(BufferSnapshot::of_bytes(chunks), None))
}
