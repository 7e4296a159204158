//! The unwinder's view of generated code: the registered ranges, and `/tmp/perf-PID.map`, in which
//! language runtimes list their generated code for `perf`.
//!
//! Each line of that file is `START SIZE name`, with hexadecimal numbers. Runtimes append lines
//! while they run, so each poll reads only new lines, up to a limit.

use std::io::{Read, Seek, SeekFrom};
use std::path::PathBuf;
use std::sync::Arc;

use crate::platform::{current_process_id, monotonic_now, open_own_file, process_start};
use crate::types::TimeStamp;
use crate::unwind::code_map::{CodeMap, GeneratedCode};
use crate::unwind::code_ranges::registered_code_at;

/// The registered ranges, which each lookup reads under their lock, and the perf map, which lookups
/// of addresses outside of all modules also read.
#[derive(Debug)]
pub(crate) struct KnownCode {
    perf_map: PerfMap,
    perf_map_changed: bool,
}

impl KnownCode {
    pub(crate) fn new() -> Self {
        let path = format!("/tmp/perf-{}.map", current_process_id().to_number());
        Self {
            perf_map: PerfMap::at(path.into()),
            perf_map_changed: false,
        }
    }

    /// Limits the size of the perf map in memory, in bytes.
    pub(crate) fn limit_perf_map(&mut self, max_bytes: u64) {
        self.perf_map.max_code_bytes = max_bytes;
    }

    /// Returns the size of the perf map in memory, and how much of its file is left out because a
    /// maximum is reached, in bytes.
    pub(crate) fn perf_map_bytes(&self) -> (u64, u64) {
        (self.perf_map.code_bytes, self.perf_map.left_out_bytes)
    }

    /// Returns the generated code at an address. `may_poll` allows reading the perf map.
    pub(crate) fn find(&mut self, address: u64, may_poll: bool) -> Option<Arc<GeneratedCode>> {
        let registered = registered_code_at(address).filter(|code| code.is_live());
        if registered.is_some() {
            return registered;
        }
        let is_listed = self.perf_map.code.find(address).is_some();
        if !is_listed && may_poll {
            self.perf_map_changed |= self.perf_map.poll(monotonic_now());
        }
        self.perf_map.code.find(address).cloned()
    }

    /// Returns the code that the perf map lists, if it grew since the last call.
    pub(crate) fn changed_perf_map(&mut self) -> Option<CodeMap> {
        std::mem::take(&mut self.perf_map_changed).then(|| self.perf_map.code.clone())
    }
}

/// Generated code with its names, as of one moment. Samples of a session may lie in it.
#[derive(Clone, Default, Debug)]
pub(crate) struct NamedCode {
    registered: CodeMap,
    perf_map: CodeMap,
}

impl NamedCode {
    /// Creates a map with one range.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn of_range(range: std::ops::Range<u64>) -> Self {
        Self::new(CodeMap::of_range(range), CodeMap::default())
    }

    /// Creates the map of a process that has ended, from ranges with their names and the numbers of
    /// their script functions. A later range covers the earlier ones that it overlaps.
    pub(crate) fn of_past_process(
        ranges: impl Iterator<Item = (std::ops::Range<u64>, String, Option<u32>)>,
    ) -> Self {
        let mut registered = CodeMap::default();
        for (range, name, script) in ranges {
            drop(registered.put(GeneratedCode::new(range, &name, script)));
        }
        Self::new(registered, CodeMap::default())
    }

    pub(crate) fn new(registered: CodeMap, perf_map: CodeMap) -> Self {
        Self {
            registered,
            perf_map,
        }
    }

    /// Returns the code at an address. Registered ranges cover those of the perf map.
    pub(crate) fn find(&self, address: u64) -> Option<&GeneratedCode> {
        let registered = self.registered.find(address);
        let found = registered.or_else(|| self.perf_map.find(address));
        found.map(|code| &**code)
    }
}

/// Minimum time between two polls of the file, in ns.
const POLL_INTERVAL_NS: u64 = 100_000_000;
/// Minimum time between two polls while the file has more lines, in ns.
const BACKLOG_INTERVAL_NS: u64 = 10_000_000;
/// Maximum number of bytes read by one poll: about 500 lines, which take the sampler about 1 ms.
const MAX_BYTES_PER_POLL: u64 = 32 << 10;
/// Maximum number of bytes read in total.
const MAX_BYTES: u64 = 64 << 20;
/// Maximum error of the process's begin and of a file's time, in ms.
const CLOCK_TOLERANCE_MS: f64 = 1000.0;

/// The generated code that the file has listed so far.
#[derive(Debug)]
struct PerfMap {
    path: PathBuf,
    code: CodeMap,
    /// Size of the code in memory, in bytes, and its maximum. Lines beyond it are not read.
    code_bytes: u64,
    max_code_bytes: u64,
    /// Number of bytes read, up to the end of a line.
    read_bytes: u64,
    /// Number of bytes of the file that are not read, because a maximum is reached.
    left_out_bytes: u64,
    next_poll: TimeStamp,
    /// Begin of the process, in ms since 1970, once it was needed. A file from before lists the
    /// code of an earlier process with the same number, as in a container.
    begin_ms: Option<f64>,
}

impl PerfMap {
    fn at(path: PathBuf) -> Self {
        Self {
            path,
            code: CodeMap::default(),
            code_bytes: 0,
            max_code_bytes: u64::MAX,
            read_bytes: 0,
            left_out_bytes: 0,
            next_poll: TimeStamp(0),
            begin_ms: None,
        }
    }

    /// Reads new lines, unless the last poll was less than [`POLL_INTERVAL_NS`] ago. Returns true
    /// if there was a valid one.
    fn poll(&mut self, now: TimeStamp) -> bool {
        if now < self.next_poll {
            return false;
        }
        self.next_poll = now.plus_ns(POLL_INTERVAL_NS);
        let before = self.read_bytes;
        let has_read_line = self.read_more().is_some_and(|lines| lines > 0);
        // The last line of a part is rarely complete.
        if self.read_bytes.saturating_sub(before) > MAX_BYTES_PER_POLL / 2 {
            self.next_poll = now.plus_ns(BACKLOG_INTERVAL_NS);
        }
        has_read_line
    }

    /// Reads the next part of the file and returns the number of valid lines.
    fn read_more(&mut self) -> Option<u64> {
        let mut own = open_own_file(&self.path)?;
        let bytes = own.bytes;
        let begin_ms = self.begin_ms.get_or_insert_with(|| match process_start() {
            start if start.is_known => start.epoch_ms - CLOCK_TOLERANCE_MS,
            _ => f64::MIN,
        });
        if own.modified_ms < *begin_ms {
            return None;
        }
        if bytes < self.read_bytes {
            // The file was truncated or replaced.
            self.read_bytes = 0;
            self.code = CodeMap::default();
            self.code_bytes = 0;
        }
        let is_full = self.read_bytes >= MAX_BYTES || self.code_bytes >= self.max_code_bytes;
        self.left_out_bytes = if is_full { bytes - self.read_bytes } else { 0 };
        if bytes == self.read_bytes || is_full {
            return None;
        }
        own.file.seek(SeekFrom::Start(self.read_bytes)).ok()?;
        let mut text = Vec::new();
        let mut part = own.file.take(MAX_BYTES_PER_POLL);
        part.read_to_end(&mut text).ok()?;
        let Some(end) = text.iter().rposition(|&byte| byte == b'\n') else {
            // Skip a line that is longer than one poll; an incomplete line is read again later.
            self.read_bytes += if text.len() as u64 == MAX_BYTES_PER_POLL {
                MAX_BYTES_PER_POLL
            } else {
                0
            };
            return None;
        };
        self.read_bytes += end as u64 + 1;
        let mut lines = 0;
        for (start, size, name) in text[..end]
            .split(|&byte| byte == b'\n')
            .filter_map(parse_line)
        {
            lines += 1;
            let code = GeneratedCode::new(start..start + size, &name, None);
            self.code_bytes += code.map_bytes();
            drop(self.code.put(code));
        }
        Some(lines)
    }
}

/// Returns start, size and name, or `None` for an invalid line.
fn parse_line(line: &[u8]) -> Option<(u64, u64, String)> {
    let line = String::from_utf8_lossy(line);
    let mut fields = line.trim_end().splitn(3, ' ');
    let mut number = || u64::from_str_radix(fields.next()?.trim_start_matches("0x"), 16).ok();
    let (start, size) = (number()?, number()?);
    let name = fields
        .next()
        .map(str::trim)
        .filter(|name| !name.is_empty())?;
    (start != 0 && size != 0 && start.checked_add(size).is_some())
        .then(|| (start, size, name.to_owned()))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn parse_line_rejects_invalid_lines() {
        let parsed = |line: &str| parse_line(line.as_bytes());
        assert_eq!(
            parsed("7f00 1a some name(int)"),
            Some((0x7f00, 0x1a, "some name(int)".to_owned()))
        );
        assert_eq!(parsed("0x10 0x2 f\r"), Some((16, 2, "f".to_owned())));
        for line in [
            "",
            "7f00",
            "7f00 10",
            "7f00 10 ",
            "7f00 0 f",
            "0 10 f",
            "x 10 f",
            "-1 10 f",
            "ffffffffffffffff 2 f",
        ] {
            assert_eq!(parsed(line), None, "{line:?}");
        }
    }

    #[test]
    fn poll_reads_appended_lines_and_a_new_file() {
        let path = std::env::temp_dir().join(format!("gekkota-perf-map-{}", std::process::id()));
        let write = |text: &str, append: bool| {
            let mut options = std::fs::OpenOptions::new();
            let options = options
                .create(true)
                .write(true)
                .append(append)
                .truncate(!append);
            options
                .open(&path)
                .expect("open")
                .write_all(text.as_bytes())
                .expect("write");
        };
        let mut map = PerfMap::at(path.clone());
        let mut now = TimeStamp(POLL_INTERVAL_NS);
        let mut poll = |map: &mut PerfMap| {
            now = now.plus_ns(POLL_INTERVAL_NS);
            map.poll(now)
        };
        let name =
            |map: &PerfMap, address| map.code.find(address).map(|code| code.name.to_string());
        assert!(!poll(&mut map), "no file");
        write("1000 10 one\nnonsense\n2000 10 tw", false);
        assert!(poll(&mut map));
        assert_eq!(
            (name(&map, 0x100f), name(&map, 0x2000)),
            (Some("one".to_owned()), None)
        );
        write("o\n1008 8 three\n", true);
        assert!(poll(&mut map) && !poll(&mut map));
        assert_eq!(name(&map, 0x2000).as_deref(), Some("two"));
        assert_eq!(
            (name(&map, 0x1007).as_deref(), name(&map, 0x1008).as_deref()),
            (Some("one"), Some("three"))
        );
        write("3000 10 four\n", false);
        assert!(poll(&mut map));
        assert_eq!(
            (name(&map, 0x1000), name(&map, 0x3000).as_deref()),
            (None, Some("four"))
        );
        write("4000 10 five\n", true);
        assert!(!map.poll(TimeStamp(POLL_INTERVAL_NS)), "too soon");
        let old = std::fs::File::options().write(true).open(&path);
        let of_earlier_process = std::time::SystemTime::UNIX_EPOCH;
        let set = old.and_then(|file| file.set_modified(of_earlier_process));
        set.expect("an old file");
        let mut new = PerfMap::at(path.clone());
        assert!(!poll(&mut new) && !poll(&mut map), "of an earlier process");
        write("", true);
        let file = std::fs::File::options().write(true).open(&path);
        let set = file.and_then(|file| file.set_modified(std::time::SystemTime::now()));
        set.expect("a new file");
        map.max_code_bytes = 1;
        assert!(!poll(&mut map));
        assert_eq!((map.left_out_bytes, name(&map, 0x4000)), (13, None));
        std::fs::remove_file(&path).expect("remove");
    }
}
