//! Tests the properties on seeds and on reproducible pseudo-random inputs.

use crate::fuzzing::crash_files::check_crash_file;
use crate::fuzzing::decoder::{DecoderCase, check_decoder};
use crate::fuzzing::family_messages::check_family_messages;
use crate::fuzzing::inputs::{decoded, random_bytes, random_numbers, scripted_chunks};
use crate::fuzzing::json_calls::check_json;
use crate::fuzzing::numbers::check_leb128;
use crate::fuzzing::profile_files::check_profile_file;
use crate::fuzzing::samples::check_samples;
use crate::fuzzing::seeds::seeds;

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
fn arbitrary_crash_files_are_rescued_or_refused() {
    try_all("crash_file", check_crash_file, 300, 600);
}

/// Uses a valid file with some damaged bytes: facts have valid checksums nevertheless.
#[test]
fn damaged_facts_and_chunks_are_rescued_or_refused() {
    let mut numbers = random_numbers(11);
    let mut below = |end: usize| numbers.by_ref().next().expect("no end") as usize % end;
    for (_, seed) in seeds("crash_file") {
        for _ in 0..300 {
            let mut damaged = seed.clone();
            for _ in 0..=below(3) {
                let at = 1 + below(damaged.len() - 1);
                damaged[at] = [0, 1, 0x7f, 0x80, 0xff, below(256) as u8][below(6)];
            }
            check_crash_file(&damaged);
        }
    }
}

#[test]
fn arbitrary_bytes_become_a_profile() {
    try_all("decoder", check_decoder, 500, 400);
}

#[test]
fn arbitrary_messages_of_a_family_are_read_or_refused() {
    try_all("family_messages", check_family_messages, 3000, 300);
}

#[test]
fn seeds_of_profile_files_are_read_and_written_in_every_format() {
    try_all("profile_file", check_profile_file, 100, 400);
}

/// Uses entries with a valid length and a valid kind, and with arbitrary fields.
#[test]
fn arbitrary_entries_become_a_profile() {
    let mut numbers = random_numbers(7);
    let mut below = |end: u64| numbers.by_ref().next().expect("no end") % end;
    for _ in 0..1000 {
        let mut content = Vec::new();
        for _ in 0..below(40) {
            let mut entry = vec![
                [1, 1, 2, 3, 4, 5, 6, 8, 9, 10, 11, 12, 13][below(13) as usize],
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
