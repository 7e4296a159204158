//! Fuzzes the rescuer: any bytes give a profile or an error.

use std::sync::atomic::Ordering;

use crate::buffer::{AreaOwner, CrashArea};
use crate::fuzzing::read_profile::ReadProfile;
use crate::session::rescue_image;
use crate::stream::{StreamOptions, stream_gecko_json};
use crate::types::{Generation, NameOptions, Symbolicate};
use crate::util::FailureLatch;

/// Meaning of the first byte of the input: a whole file, or the parts of one.
const WHOLE_FILE: u8 = 0;

/// Maximum number of facts of an input.
const MAX_FACTS: usize = 64;

/// The parts of a file: facts, words of the session, and the content of a chunk. A fuzzer could not
/// find the checksums of facts.
#[derive(Debug)]
pub(crate) struct CrashCase<'a> {
    facts: Vec<&'a [u8]>,
    chunk: &'a [u8],
}

impl<'a> CrashCase<'a> {
    fn read(mut input: &'a [u8]) -> Self {
        let mut facts = Vec::new();
        while let Some((length, rest)) = input.split_first_chunk::<2>() {
            input = rest;
            let length = usize::from(u16::from_le_bytes(*length));
            if length == 0 || facts.len() == MAX_FACTS {
                break;
            }
            let (fact, rest) = rest.split_at(length.min(rest.len()));
            facts.push(fact);
            input = rest;
        }
        Self {
            facts,
            chunk: input,
        }
    }

    /// Returns the input for these parts.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn bytes(facts: &[Vec<u8>], chunk: &[u8]) -> Vec<u8> {
        let mut bytes = vec![WHOLE_FILE + 1];
        for fact in facts {
            bytes.extend_from_slice(&(fact.len() as u16).to_le_bytes());
            bytes.extend_from_slice(fact);
        }
        bytes.extend_from_slice(&[0, 0]);
        bytes.extend_from_slice(chunk);
        bytes
    }

    fn image(&self) -> Vec<u8> {
        let owner = AreaOwner {
            process: 0,
            ticks: 0,
        };
        let (memory, layout) = CrashArea::memory_for_test(self.chunk.len());
        let area = CrashArea::begin_with(memory, layout, Generation::from_number(1), owner);
        let area = area.expect("memory");
        self.facts.iter().for_each(|fact| area.add_fact(fact));
        let piece = area.take_piece(self.chunk.len());
        if let Some(piece) = &piece {
            piece.begin(0, Generation::from_number(1), 1);
            let committed = self.chunk.len() as u64;
            piece.committed().store(committed, Ordering::Relaxed);
        }
        let mut image = vec![0; area.bytes() as usize];
        let read = area.read_at(&mut image, 0).expect("memory");
        assert_eq!(read, image.len());
        if let Some(piece) = &piece {
            let at = piece.position_for_test();
            image[at..at + self.chunk.len()].copy_from_slice(self.chunk);
        }
        image
    }
}

/// Checks that any bytes give an error, or a profile whose indices are valid and whose size is bounded
/// by that of the input.
pub fn check_crash_file(input: &[u8]) {
    let Some((&kind, rest)) = input.split_first() else {
        return;
    };
    let image = match kind {
        WHOLE_FILE => rest.to_vec(),
        _ => CrashCase::read(rest).image(),
    };
    let Ok(source) = rescue_image(&image) else {
        return;
    };
    let names = NameOptions {
        symbolicate: Symbolicate::No,
        max_cache_bytes: 0,
        max_threads: None,
    };
    let options = StreamOptions::new(names, None, 1000, None);
    let mut text = Vec::new();
    stream_gecko_json(source, &options, FailureLatch::infallible(), &mut text)
        .expect("a vector never fails");
    ReadProfile::check(&text);
    let max_bytes = (256 << 10) + 4000 * input.len();
    assert!(text.len() <= max_bytes, "{} bytes", text.len());
}
