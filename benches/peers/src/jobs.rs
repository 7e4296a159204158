//! Real work of many kinds, so that stacks go through many functions of several libraries.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt::Write as _;
use std::io::{Read, Write};

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use regex::Regex;
use serde_json::Value;

/// The text that the jobs work on: this file.
const TEXT: &str = include_str!("jobs.rs");
/// Size of the parts of the text, in bytes: about 50 µs of work.
const PART_BYTES: usize = 1024;

type Job = fn(&Jobs, &str) -> Result<u64, Box<dyn Error>>;

/// What the jobs need.
pub(crate) struct Jobs {
    words: Regex,
    parts: Vec<&'static str>,
}

impl Jobs {
    const ALL: [Job; 8] = [
        Self::search,
        Self::compile_pattern,
        Self::compress,
        Self::parse_json,
        Self::write_json,
        Self::sort,
        Self::count_in_tree,
        Self::format,
    ];

    pub(crate) fn new() -> Result<Self, Box<dyn Error>> {
        let mut parts = Vec::new();
        let mut rest = TEXT;
        while rest.len() > PART_BYTES {
            let (part, after) = rest.split_at(rest.floor_char_boundary(PART_BYTES));
            parts.push(part);
            rest = after;
        }
        Ok(Self {
            words: Regex::new(r"\b[a-z_]{3,}\b")?,
            parts,
        })
    }

    /// Does the job with this number, modulo the number of jobs, on a part of the text.
    pub(crate) fn run(&self, number: u64) -> u64 {
        let count = Self::ALL.len() as u64;
        let part = self.parts[(number / count) as usize % self.parts.len()];
        // A job that fails has done its work nevertheless.
        Self::ALL[(number % count) as usize](self, part).unwrap_or(0)
    }

    fn search(&self, part: &str) -> Result<u64, Box<dyn Error>> {
        Ok(self
            .words
            .find_iter(part)
            .map(|found| found.len() as u64)
            .sum())
    }

    fn compile_pattern(&self, part: &str) -> Result<u64, Box<dyn Error>> {
        let words: Vec<&str> = self
            .words
            .find_iter(part)
            .map(|word| word.as_str())
            .take(3)
            .collect();
        let pattern = Regex::new(&words.join("|"))?;
        Ok(pattern.find_iter(part).count() as u64)
    }

    fn compress(&self, part: &str) -> Result<u64, Box<dyn Error>> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(part.as_bytes())?;
        let compressed = encoder.finish()?;
        let mut text = String::new();
        GzDecoder::new(&*compressed).read_to_string(&mut text)?;
        Ok((compressed.len() + text.len()) as u64)
    }

    fn parse_json(&self, part: &str) -> Result<u64, Box<dyn Error>> {
        let text = format!(r#"{{"a": [1, 2.5, {{"b": null}}], "text": {part:?}, "c": true}}"#);
        let value: Value = serde_json::from_str(&text)?;
        Ok(value.as_object().map_or(0, |object| object.len() as u64))
    }

    fn write_json(&self, part: &str) -> Result<u64, Box<dyn Error>> {
        let lines: Vec<Value> = part.lines().map(Value::from).collect();
        Ok(serde_json::to_string_pretty(&lines)?.len() as u64)
    }

    fn sort(&self, part: &str) -> Result<u64, Box<dyn Error>> {
        let mut words: Vec<String> = part.split_whitespace().map(str::to_owned).collect();
        words.sort();
        words.sort_by_key(|word| word.chars().rev().collect::<String>());
        Ok(words.first().map_or(0, |word| word.len() as u64))
    }

    fn count_in_tree(&self, part: &str) -> Result<u64, Box<dyn Error>> {
        let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
        for word in part.split(|letter: char| !letter.is_alphanumeric()) {
            *counts.entry(word).or_default() += 1;
        }
        Ok(counts.values().max().copied().unwrap_or(0))
    }

    fn format(&self, part: &str) -> Result<u64, Box<dyn Error>> {
        let mut text = String::new();
        for (number, line) in part.lines().enumerate() {
            write!(text, "{number:>6} {:10.3} {line:?}", number as f64 / 7.0)?;
        }
        Ok(text.len() as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_job_succeeds_on_every_part() {
        let jobs = Jobs::new().expect("a valid pattern");
        assert!(jobs.parts.len() > 4);
        for (number, job) in Jobs::ALL.iter().enumerate() {
            for part in &jobs.parts {
                assert!(job(&jobs, part).expect("success") > 0, "job {number}");
            }
        }
        assert_eq!(jobs.run(5), jobs.run(5));
    }
}
