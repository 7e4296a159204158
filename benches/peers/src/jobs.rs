//! Real work of many kinds, so that stacks go through many functions of several libraries.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{Read, Write};

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use regex::Regex;
use serde_json::{Value, json};

use crate::study::Fallible;

/// The text that the jobs work on: a file of this program.
const TEXT: &str = include_str!("kernels.rs");
/// Size of the parts of the text, in bytes: about 50 µs of work.
const PART_BYTES: usize = 1024;

/// Works on a part of the text.
type Job = fn(&str) -> Fallible<usize>;

const JOBS: [Job; 4] = [search, compress, write_and_parse, sort_and_count];

/// Does the job with this number, modulo the number of jobs, on a part of the text.
pub(crate) fn run(number: u64) -> usize {
    let count = JOBS.len() as u64;
    let parts = TEXT.len() / PART_BYTES;
    let start = (number / count) as usize % parts * PART_BYTES;
    let part = &TEXT[TEXT.floor_char_boundary(start)..TEXT.floor_char_boundary(start + PART_BYTES)];
    // A job that fails has done its work nevertheless.
    JOBS[(number % count) as usize](part).unwrap_or(0)
}

fn search(part: &str) -> Fallible<usize> {
    let words = Regex::new(r"\b[a-z_]{3,}\b")?;
    let first = words.find_iter(part).map(|word| word.as_str()).take(3);
    let pattern = Regex::new(&first.collect::<Vec<_>>().join("|"))?;
    Ok(pattern.find_iter(part).count())
}

fn compress(part: &str) -> Fallible<usize> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(part.as_bytes())?;
    let compressed = encoder.finish()?;
    let mut text = String::new();
    GzDecoder::new(&*compressed).read_to_string(&mut text)?;
    Ok(compressed.len() + text.len())
}

fn write_and_parse(part: &str) -> Fallible<usize> {
    let lines: Vec<&str> = part.lines().collect();
    let text = serde_json::to_string_pretty(&json!({ "lines": lines, "numbers": [1, 2.5, null] }))?;
    let value: Value = serde_json::from_str(&text)?;
    Ok(value.as_object().map_or(0, |object| object.len()))
}

fn sort_and_count(part: &str) -> Fallible<usize> {
    let mut words: Vec<String> = part.split_whitespace().map(str::to_owned).collect();
    words.sort_by_key(|word| word.chars().rev().collect::<String>());
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for word in &words {
        *counts.entry(word).or_default() += 1;
    }
    let mut text = String::new();
    for (word, count) in counts {
        write!(text, "{count:>6} {:10.3} {word:?}", count as f64 / 7.0)?;
    }
    Ok(text.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_job_succeeds_on_every_part() {
        let numbers = 0..(JOBS.len() * TEXT.len() / PART_BYTES) as u64;
        assert!(numbers.end > 16);
        for number in numbers {
            assert!(run(number) > 0, "job {number}");
        }
        assert_eq!(run(5), run(5));
    }
}
