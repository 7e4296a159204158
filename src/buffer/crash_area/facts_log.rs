//! The facts: what a rescuer must know that is not in the chunks. This file knows records of bytes,
//! not their meaning.
//!
//! ```text
//! record = length:u32 checksum:u32 bytes, up to a multiple of 8
//! ```
//!
//! Any thread appends without a lock: it reserves space, writes the bytes, and then the first word.
//! A thread that dies in between leaves a gap. The reader finds the next record behind it by its
//! checksum.
//!
//! When a half is nearly full, its owner writes all facts that still matter into the other half.
//! Until that is done, the reader has the first half. Afterwards both halves have valid facts, and
//! a fact of the growing half replaces one of the other.

use std::sync::atomic::Ordering;

use crate::buffer::crash_area::layout::{HeadWord, Layout};
use crate::util::{SharedMemory, WORD_BYTES};

/// Maximum length of a record, in bytes. The owner cuts longer facts.
pub(crate) const MAX_RECORD_BYTES: usize = 60 << 10;

/// Bytes of records that the reader checks in total, as a multiple of the size of a half.
const CHECK_FACTOR: usize = 8;

/// Appends records to a half of the facts.
#[derive(Clone, Copy)]
pub(super) struct FactsWriter<'a> {
    pub(super) memory: &'a SharedMemory,
    pub(super) layout: Layout,
    pub(super) half: usize,
}

impl FactsWriter<'_> {
    /// Empties the half.
    pub(super) fn begin(self) {
        let used = self.memory.word(HeadWord::UsedFacts.at(self.half));
        used.store(0, Ordering::Release);
        let epoch = self.memory.word(HeadWord::FactsEpoch.at(self.half));
        epoch.fetch_add(1, Ordering::AcqRel);
    }

    /// Returns how many bytes are used.
    pub(super) fn used(self) -> usize {
        let used = self.memory.word(HeadWord::UsedFacts.at(self.half));
        used.load(Ordering::Relaxed) as usize
    }

    /// Appends a record. Returns false if the half has no space for it.
    pub(super) fn append(self, bytes: &[u8]) -> bool {
        if bytes.is_empty() || bytes.len() > MAX_RECORD_BYTES {
            return false;
        }
        let needed = WORD_BYTES + bytes.len().next_multiple_of(WORD_BYTES);
        let used = self.memory.word(HeadWord::UsedFacts.at(self.half));
        let size = self.layout.facts_bytes as u64;
        let grown = |used: u64| Some(used + needed as u64).filter(|&end| end <= size);
        let Ok(at) = used.fetch_update(Ordering::AcqRel, Ordering::Acquire, grown) else {
            return false;
        };
        let position = self.layout.facts(self.half).start + at as usize;
        if !self.memory.reserve(position, needed) {
            return false;
        }
        // A record of an earlier epoch may lie here.
        self.memory.word(position).store(0, Ordering::Release);
        for (index, part) in bytes.chunks(WORD_BYTES).enumerate() {
            let mut word = [0; WORD_BYTES];
            word[..part.len()].copy_from_slice(part);
            let target = self.memory.word(position + (index + 1) * WORD_BYTES);
            target.store(u64::from_le_bytes(word), Ordering::Relaxed);
        }
        let epoch = self.memory.word(HeadWord::FactsEpoch.at(self.half));
        let checksum = checksum(bytes, epoch.load(Ordering::Acquire));
        let first = u64::from(checksum) << 32 | bytes.len() as u64;
        self.memory.word(position).store(first, Ordering::Release);
        true
    }
}

fn checksum(bytes: &[u8], epoch: u64) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&epoch.to_le_bytes());
    hasher.update(&(bytes.len() as u64).to_le_bytes());
    hasher.update(bytes);
    hasher.finalize()
}

/// Calls `take` with each record of a half, whose used bytes these are. Returns how many words
/// belong to no record.
pub(super) fn read_records<'a>(half: &'a [u8], epoch: u64, mut take: impl FnMut(&'a [u8])) -> u64 {
    let mut budget = half.len().saturating_mul(CHECK_FACTOR);
    let (mut rest, mut skipped) = (half, 0);
    while let Some((first, after)) = rest.split_first_chunk::<WORD_BYTES>() {
        let first = u64::from_le_bytes(*first);
        let (length, expected) = (first as u32 as usize, (first >> 32) as u32);
        let record = after.get(..length).filter(|record| {
            let is_possible = !record.is_empty() && length <= MAX_RECORD_BYTES && length <= budget;
            if is_possible {
                budget -= length;
            }
            is_possible && checksum(record, epoch) == expected
        });
        match record {
            Some(record) => {
                take(record);
                let end = length.next_multiple_of(WORD_BYTES);
                rest = after.get(end..).unwrap_or_default();
            }
            None => {
                skipped += 1;
                rest = after;
            }
        }
    }
    skipped
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn area() -> (SharedMemory, Layout) {
        let layout = Layout::new(1 << 16, 1).expect("a layout");
        (SharedMemory::for_test(layout.file_bytes()), layout)
    }

    fn bytes_of(memory: &SharedMemory, layout: Layout, half: usize) -> (Vec<u8>, u64) {
        let start = layout.facts(half).start;
        let word = |at| memory.word(at).load(Ordering::Relaxed);
        let used = word(HeadWord::UsedFacts.at(half)) as usize;
        let words = (0..used).step_by(WORD_BYTES);
        let bytes = words.flat_map(|at| word(start + at).to_le_bytes());
        (bytes.collect(), word(HeadWord::FactsEpoch.at(half)))
    }

    fn records((bytes, epoch): &(Vec<u8>, u64)) -> (Vec<Vec<u8>>, u64) {
        let mut all = Vec::new();
        let skipped = read_records(bytes, *epoch, |record| all.push(record.to_vec()));
        (all, skipped)
    }

    #[test]
    fn records_of_any_length_are_read_back_until_the_half_is_full() {
        let (memory, layout) = area();
        let writer = FactsWriter {
            memory: &memory,
            layout,
            half: 1,
        };
        let mut expected = Vec::new();
        for length in (1..).step_by(37) {
            let record = vec![length as u8; length];
            if !writer.append(&record) {
                break;
            }
            expected.push(record);
        }
        assert!(expected.len() > 30);
        assert!(!writer.append(&[]) && !writer.append(&[0; MAX_RECORD_BYTES + 1]));
        assert_eq!(records(&bytes_of(&memory, layout, 1)), (expected, 0));
        assert_eq!(records(&bytes_of(&memory, layout, 0)), (vec![], 0));
        // An emptied half has none of its old records.
        writer.begin();
        assert_eq!(writer.used(), 0);
        assert!(writer.append(b"new"));
        assert_eq!(
            records(&bytes_of(&memory, layout, 1)),
            (vec![b"new".to_vec()], 0)
        );
    }

    #[test]
    fn record_behind_a_gap_is_found() {
        let (memory, layout) = area();
        let writer = FactsWriter {
            memory: &memory,
            layout,
            half: 0,
        };
        assert!(
            writer.append(b"first")
                && writer.append(b"damaged, and long")
                && writer.append(b"last")
        );
        let (mut bytes, epoch) = bytes_of(&memory, layout, 0);
        bytes[16..24].fill(0);
        let expected = vec![b"first".to_vec(), b"last".to_vec()];
        assert_eq!(records(&(bytes.clone(), epoch)), (expected, 4));
        // In another epoch none of them is valid.
        assert_eq!(records(&(bytes, epoch + 1)).0.len(), 0);
    }
}
