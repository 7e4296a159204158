//! Tests the properties on seeds and on reproducible pseudo-random inputs.

use crate::buffer::{BufferSnapshot, ChunkedBuffer, EntryHead, EntryKind};
use crate::capture::EventLoopState;
use crate::fuzzing::decoder::{DecoderCase, check_decoder};
use crate::fuzzing::json_calls::check_json;
use crate::fuzzing::numbers::check_leb128;
use crate::fuzzing::samples::check_samples;
use crate::fuzzing::scripted_source::{PROCESS_START, SERIALS, scripted_source};
use crate::fuzzing::seeds::seeds;
use crate::markers::Tracing;
use crate::markers::{
    MarkerDestination, MarkerEntry, MarkerTiming, NewMarker, NoPayload, TextPayload, TypedPayload,
};
use crate::sampler::{SampleScript, ScriptedFrame, ScriptedSample, ScriptedStack};
use crate::stream::PlainSamples;
use crate::types::{ProfilerTime, ProfilingCategoryPair, TimeStamp};

const SESSION: crate::types::Generation = ChunkedBuffer::TEST_SESSION;

fn random_numbers(seed: u64) -> impl Iterator<Item = u64> {
    let step = |state: &u64| Some(state.wrapping_add(0x9e37_79b9_7f4a_7c15));
    std::iter::successors(Some(seed), step).map(|state| {
        let mixed = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    })
}

pub(crate) fn random_bytes(seed: u64) -> impl Iterator<Item = u8> {
    random_numbers(seed).flat_map(u64::to_le_bytes)
}

/// Runs `check` on the seeds of a target, and on `inputs` pseudo-random inputs of less than
/// `max_bytes` each.
fn try_all(target: &str, check: fn(&[u8]), inputs: u64, max_bytes: u64) {
    let try_one = |name: &str, input: &[u8]| {
        let outcome = std::panic::catch_unwind(|| check(input));
        assert!(
            outcome.is_ok(),
            "property {target} does not hold for {name}"
        );
    };
    seeds(target)
        .iter()
        .for_each(|(name, input)| try_one(name, input));
    for (seed, length) in (0..inputs).zip(random_numbers(1)) {
        let input: Vec<u8> = random_bytes(seed)
            .take((length % max_bytes) as usize)
            .collect();
        try_one(&format!("number {seed}"), &input);
    }
}

#[test]
fn arbitrary_bytes_decode_to_numbers_or_are_rejected() {
    try_all("leb128", check_leb128, 5000, 200);
}

#[test]
fn arbitrary_values_are_written_as_json() {
    try_all("json", check_json, 3000, 1500);
}

#[test]
fn arbitrary_samples_keep_their_stacks_and_times() {
    try_all("samples", check_samples, 1500, 4000);
}

#[test]
fn arbitrary_bytes_become_a_profile() {
    try_all("decoder", check_decoder, 500, 400);
}

/// Uses well-formed entries with arbitrary fields.
#[test]
fn arbitrary_entries_become_a_profile() {
    let mut numbers = random_numbers(7);
    let mut below = |end: u64| numbers.by_ref().next().expect("no end") % end;
    for _ in 0..1000 {
        let mut content = Vec::new();
        for _ in 0..below(40) {
            let mut entry = vec![
                [1, 1, 2, 3, 4, 5, 6, 8, 9, 10, 11, 12][below(12) as usize],
                below(4) as u8,
            ];
            // Small values are more often valid.
            let end = [4, 16, 256][below(3) as usize];
            entry.extend((0..below(24)).map(|_| below(end) as u8));
            content.push(entry.len() as u8);
            content.extend(entry);
        }
        let (flags, cut_ns) = (below(8) as u8, below(1 << 12) as u32);
        check_decoder(&DecoderCase::bytes(
            flags,
            below(5) as u8,
            cut_ns,
            [&content, &[], &[]],
        ));
    }
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
            modules,
        };
        assert_eq!(script.write(sample), more + 1);
        if index % 8 == 0 {
            put_other_kinds(&script, now);
            assert!(script.write_backtrace(1 + index as u64, now, modules, &stack));
            let time = ProfilerTime::from_monotonic_ns;
            let mut timing = MarkerTiming::interval(time(now.0), time(now.0 + 9));
            timing.inner_window_id = index as u64;
            let category = ProfilingCategoryPair::Network(None).indices();
            let marker = NewMarker {
                name: "name",
                category,
                timing: &timing,
                stack: 1 + index as u64 / 2,
            };
            let place = MarkerDestination {
                session: SESSION,
                thread,
                now,
            };
            let payload = Tracing::from_str("tracing");
            let is_put = match index {
                0 => markers.put(
                    SESSION,
                    now,
                    &MarkerEntry::new(&place, PROCESS_START, &marker, NoPayload),
                ),
                8 => {
                    let text = TextPayload("text");
                    markers.put(
                        SESSION,
                        now,
                        &MarkerEntry::new(&place, PROCESS_START, &marker, text),
                    )
                }
                _ => {
                    let typed = TypedPayload::new(&payload).with_number(1);
                    markers.put(
                        SESSION,
                        now,
                        &MarkerEntry::new(&place, PROCESS_START, &marker, typed),
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
    ] {
        let mut entry = EntryHead::new(kind);
        numbers.iter().for_each(|&number| _ = entry.number(number));
        script.lane().put(SESSION, now, &entry).expect("space");
    }
}

pub(crate) fn decoded(chunks: &[&[u8]]) -> PlainSamples {
    PlainSamples::decode(&scripted_source(BufferSnapshot::of_bytes(chunks), None))
}

#[test]
fn truncated_chunk_decodes_up_to_its_end() {
    for chunk in scripted_chunks() {
        let whole = decoded(&[&chunk]);
        assert_eq!(whole.malformed_entries, 0);
        for end in 0..chunk.len() {
            let cut = decoded(&[&chunk[..end]]);
            assert!(cut.malformed_entries <= 1);
            for ((_, cut), (_, whole)) in cut.threads.iter().zip(&whole.threads) {
                assert!(whole.starts_with(cut), "cut at {end}");
            }
            check_decoder(&DecoderCase::bytes(0, 4, 0, [&chunk[..end], &[], &[]]));
        }
    }
}

#[test]
fn chunk_with_a_corrupted_byte_becomes_a_profile() {
    for mut chunk in scripted_chunks() {
        for position in 0..chunk.len() {
            let right = chunk[position];
            for wrong in [
                0,
                right ^ 1,
                right ^ 0x80,
                right.wrapping_add(4),
                0x7f,
                0xff,
            ] {
                chunk[position] = wrong;
                let flags = DecoderCase::IS_CUT | DecoderCase::HAS_CODE;
                check_decoder(&DecoderCase::bytes(flags, 2, 9_000, [&chunk, &[], &[]]));
            }
            chunk[position] = right;
        }
    }
}
