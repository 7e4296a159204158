//! Decodes arbitrary bytes as the content of a buffer.

use crate::buffer::BufferSnapshot;
use crate::fuzzing::read_profile::ReadProfile;
use crate::fuzzing::scripted_source::{PROCESS_START, kept_ns_since, scripted_source};
use crate::markers::MarkerType;
use crate::markers::Tracing;
use crate::model::WAITING_TASKS;
use crate::stream::{StreamOptions, max_wait_rows, stream_gecko_json};
use crate::types::{NameOptions, ProfilerTime, Symbolicate};
use crate::unwind::NamedCode;
use crate::util::FailureLatch;

const HEADER_BYTES: usize = 10;
const MAX_ROWS: [u64; 5] = [0, 1, 10, 100, 1000];

/// A fuzzer's input: a header, then the content of three chunks.
#[derive(Debug)]
pub(crate) struct DecoderCase<'a> {
    flags: u8,
    max_rows: u8,
    cut_ns: u32,
    /// Lengths of the first two chunks, each modulo the number of remaining bytes plus one.
    lengths: [u16; 2],
    content: &'a [u8],
}

impl<'a> DecoderCase<'a> {
    /// The profile starts at `cut_ns`.
    pub(crate) const IS_CUT: u8 = 1;
    /// The cut is due to the session's duration limit, not to an explicit start of the profile.
    pub(crate) const BY_DURATION: u8 = 2;
    /// Some of the addresses lie in generated code.
    pub(crate) const HAS_CODE: u8 = 4;

    fn read(input: &'a [u8]) -> Self {
        let (given, content) = input.split_at(input.len().min(HEADER_BYTES));
        let mut header = [0; HEADER_BYTES];
        header[..given.len()].copy_from_slice(given);
        let [flags, max_rows, a, b, c, d, e, f, g, h] = header;
        let lengths = [u16::from_le_bytes([e, f]), u16::from_le_bytes([g, h])];
        Self {
            flags,
            max_rows,
            cut_ns: u32::from_le_bytes([a, b, c, d]),
            lengths,
            content,
        }
    }

    /// Returns the input for chunks with the given content.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn bytes(flags: u8, max_rows: u8, cut_ns: u32, chunks: [&[u8]; 3]) -> Vec<u8> {
        let mut bytes = vec![flags, max_rows];
        bytes.extend_from_slice(&cut_ns.to_le_bytes());
        chunks[..2]
            .iter()
            .for_each(|chunk| bytes.extend_from_slice(&(chunk.len() as u16).to_le_bytes()));
        chunks
            .iter()
            .for_each(|chunk| bytes.extend_from_slice(chunk));
        bytes
    }

    fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    fn max_rows(&self) -> u64 {
        MAX_ROWS[usize::from(self.max_rows) % MAX_ROWS.len()]
    }

    fn chunks(&self) -> Vec<&'a [u8]> {
        let mut rest = self.content;
        let mut chunks = Vec::new();
        for length in self.lengths {
            let (chunk, after) = rest.split_at(usize::from(length) % (rest.len() + 1));
            chunks.push(chunk);
            rest = after;
        }
        chunks.push(rest);
        chunks.retain(|chunk| !chunk.is_empty());
        chunks
    }

    /// Writes the profile as JSON.
    fn written(&self, is_cut: bool) -> Vec<u8> {
        let is_cut_by = |duration: bool| is_cut && self.has(Self::BY_DURATION) == duration;
        let cut_ns = u64::from(self.cut_ns);
        let buffer = BufferSnapshot::of_bytes(&self.chunks());
        let mut source = scripted_source(buffer, is_cut_by(true).then(|| kept_ns_since(cut_ns)));
        if self.has(Self::HAS_CODE) {
            source.generated_code = NamedCode::of_range(0x1000..u64::MAX / 2);
        }
        let since = ProfilerTime::from_monotonic_ns(PROCESS_START.plus_ns(cut_ns).0);
        let names = NameOptions {
            symbolicate: Symbolicate::No,
            max_cache_bytes: 0,
            max_threads: None,
        };
        let since = is_cut_by(false).then_some(since);
        let options = StreamOptions::new(names, since, self.max_rows(), None);
        let mut text = Vec::new();
        stream_gecko_json(source, &options, FailureLatch::infallible(), &mut text)
            .expect("a vector never fails");
        text
    }
}

/// Checks that any bytes become a profile whose indices are valid, and whose size is bounded by
/// that of the input.
pub fn check_decoder(input: &[u8]) {
    // Registers the first marker type, whose number the seeds contain.
    MarkerType::number_of::<Tracing>();
    let case = DecoderCase::read(input);
    let mut whole = check_text(&case, false);
    if !case.has(DecoderCase::IS_CUT) {
        return;
    }
    let cut = check_text(&case, true);
    assert_eq!(cut.malformed_entries, whole.malformed_entries);
    let cut_ns = f64::from(case.cut_ns);
    assert!(
        cut.threads
            .values()
            .flatten()
            .all(|&time_ns| time_ns > cut_ns - 0.5),
        "{cut:?}"
    );
    // A row that is repeated for ticks that were left out is not repeated beyond the cut.
    if whole.left_out_rows == 0 && whole.left_out_ticks == 0 {
        // A row of the waiting tasks represents a share of all their time.
        whole.threads.remove(WAITING_TASKS);
        for (name, times) in whole.threads {
            let expected: Vec<f64> = times
                .into_iter()
                .filter(|&time_ns| time_ns > cut_ns - 0.5)
                .collect();
            let left = cut.threads.get(&name).map_or(0, Vec::len);
            assert_eq!(left, expected.len(), "of {name}");
        }
    }
}

fn check_text(case: &DecoderCase<'_>, is_cut: bool) -> ReadProfile {
    let text = case.written(is_cut);
    let read = ReadProfile::check(&text);
    let (waits, samples): (Vec<_>, Vec<_>) = read
        .threads
        .iter()
        .partition(|(name, _)| *name == WAITING_TASKS);
    let count = |threads: &[(&String, &Vec<f64>)]| -> u64 {
        threads.iter().map(|(_, times)| times.len() as u64).sum()
    };
    let (rows, wait_rows) = (count(&samples), count(&waits));
    let max_wait_rows = max_wait_rows(case.max_rows());
    assert!(wait_rows <= max_wait_rows, "{wait_rows} rows of waits");
    // A sample that keeps one row has at least three bytes. One with repeats has at least six, and keeps
    // at least three rows: its own, and those of its first and its last repeat.
    let max_rows = case.max_rows().max(2 * case.content.len() as u64 / 3);
    assert!(rows <= max_rows, "{rows} rows");
    let max_bytes =
        (64 << 10) + 1000 * (case.content.len() + max_rows as usize) + 200 * wait_rows as usize;
    assert!(text.len() <= max_bytes, "{} bytes", text.len());
    read
}
