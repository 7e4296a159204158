//! A save ends however much is recorded while it runs: the snapshot fixes the amount of work.

use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::common::{Read, isolated, wait_until};
use gekkota::profile::{Format, SnapshotOptions, Symbolicate};
use gekkota::{
    Features, MarkerOptions, Profile, ProfilerSession, StartParams, add_text_marker,
    gecko_profiler_category, register_thread,
};
use serde_json::Value;

const CAPACITY_BYTES: u64 = 1 << 20;

fn start_without_samples() -> ProfilerSession {
    let params = StartParams::default()
        .capacity_bytes(CAPACITY_BYTES)
        .features(Features::NO_STACK_SAMPLING);
    ProfilerSession::start(params).expect("start")
}

/// Adds a marker with a new text, of 40 bytes in the buffer or more.
fn mark(number: usize) {
    add_text_marker(
        "M",
        gecko_profiler_category!(Other),
        MarkerOptions::default(),
        &format!("a text of its own: {number:020}"),
    );
}

fn write(profile: &Profile, out: &mut dyn Write) -> io::Result<()> {
    let options = SnapshotOptions::default().symbolicate(Symbolicate::No);
    profile
        .write_with(Format::Gecko, out, &options)
        .map_err(io::Error::other)
}

/// Records more than it receives: the buffer is filled anew several times during a save.
struct RecordingWriter {
    received: Vec<u8>,
    next_marker: usize,
}

/// Maximum length of a profile here. A save that follows the writers exceeds any length.
const MAX_PROFILE_BYTES: usize = 16 << 20;

impl Write for RecordingWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.received.extend_from_slice(bytes);
        if self.received.len() > MAX_PROFILE_BYTES {
            return Err(io::Error::other("the profile has no end"));
        }
        for _ in 0..bytes.len() / 5 {
            mark(self.next_marker);
            self.next_marker += 1;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn threads(text: &[u8]) -> Value {
    Read::from_text(text).0["threads"].clone()
}

#[test]
fn markers_added_after_the_snapshot_change_nothing_in_the_profile() {
    const FIRST_MARKERS: usize = 5000;
    const SECOND_MARKERS: usize = 1000;
    isolated(|| {
        let session = start_without_samples();
        register_thread("main");
        (0..FIRST_MARKERS).for_each(mark);
        let profile = session.snapshot().expect("profile");
        let mut before = Vec::new();
        write(&profile, &mut before).expect("a vector never fails");
        // The first of these go into a chunk that the profile shares.
        let next_marker = FIRST_MARKERS + SECOND_MARKERS;
        (FIRST_MARKERS..next_marker).for_each(mark);
        let mut out = RecordingWriter {
            received: Vec::new(),
            next_marker,
        };
        write(&profile, &mut out).expect("the save ends");
        assert!(threads(&out.received) == threads(&before));
        let recorded = out.next_marker - next_marker;
        assert!(recorded as u64 * 40 > 2 * CAPACITY_BYTES, "{recorded}");
        // The buffer has discarded the profile's chunks, so the profile alone still has them.
        let log = &Read::from_text(&out.received).0["profilingLog"];
        let discarded = &log[std::process::id().to_string()]["buffer"]["given_up_while_read_bytes"];
        assert!(discarded.as_u64().is_some_and(|bytes| bytes > 0), "{log}");
    });
}

#[test]
fn snapshot_beside_threads_that_never_stop_marking_has_one_buffer_of_markers() {
    const THREADS: usize = 15;
    const PROFILES: usize = 5;
    static END: AtomicBool = AtomicBool::new(false);
    static FULL: AtomicUsize = AtomicUsize::new(0);
    isolated(|| {
        let session = start_without_samples();
        let markers: Vec<_> = (0..THREADS)
            .map(|thread| {
                std::thread::spawn(move || {
                    register_thread(&format!("marks {thread}"));
                    let mut number = 0;
                    while !END.load(Ordering::Relaxed) {
                        mark(number);
                        number += 1;
                        if number == 10_000 {
                            FULL.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                })
            })
            .collect();
        wait_until("each thread has marked", || {
            FULL.load(Ordering::Relaxed) == THREADS
        });
        for _ in 0..PROFILES {
            let mut text = Vec::new();
            write(&session.snapshot().expect("profile"), &mut text).expect("a vector never fails");
            let read = Read::from_text(&text);
            let rows: usize = read
                .threads()
                .iter()
                .map(|thread| thread["markers"]["data"].as_array().map_or(0, Vec::len))
                .sum();
            // Each lane has two chunks of at least 4 KiB, even where they exceed the capacity.
            let max_bytes = CAPACITY_BYTES as usize + THREADS * 2 * 4096;
            assert!(rows > 0 && rows * 40 <= max_bytes, "{rows} markers");
        }
        END.store(true, Ordering::Relaxed);
        markers
            .into_iter()
            .for_each(|thread| thread.join().expect("thread"));
    });
}
