//! Work that lasts until the profiler has samples of it.

use std::sync::OnceLock;
use std::time::Duration;

use crate::common::{Read, wait_until, work, work_for_cpu};
use gekkota::profile::{SnapshotOptions, Symbolicate};
use gekkota::thread::{ThreadId, profiler_current_thread_id};
use gekkota::{ProfilerTime, profiler_stream_json};

/// Number of samples that [`work_until_sampled`] waits for.
const SAMPLES: usize = 15;

/// Uses at least `least` of CPU time, and continues until the running session has more than ten
/// samples of the calling thread in this function. The thread must be registered. Another thread
/// counts the samples, so that the calling thread only works.
#[inline(never)]
pub(crate) fn work_until_sampled(least: Duration) {
    let thread = profiler_current_thread_id();
    let started = OnceLock::new();
    std::thread::scope(|scope| {
        let counter = scope.spawn(|| {
            wait_until("the working thread has its samples", || {
                let start = started.get();
                start.is_some_and(|&start| samples_since(thread, start) >= SAMPLES)
            });
        });
        started.get_or_init(ProfilerTime::now);
        work_for_cpu(least);
        while !counter.is_finished() {
            work(1000);
        }
    });
}

/// Returns the number of samples that the running session has of a thread since `start`.
fn samples_since(thread: ThreadId, start: ProfilerTime) -> usize {
    let options = SnapshotOptions::default()
        .symbolicate(Symbolicate::No)
        .since(start);
    let mut text = Vec::new();
    profiler_stream_json(&mut text, &options).expect("a session is running");
    let read = Read::from_text(&text);
    let threads = read.threads().iter();
    threads
        .filter(|candidate| candidate["tid"] == thread.to_number())
        .map(|thread| thread["samples"]["data"].as_array().expect("samples").len())
        .sum()
}
