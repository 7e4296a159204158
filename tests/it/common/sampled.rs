//! Work and waits that last until the profiler has samples, however busy the machine is.
#![allow(dead_code, reason = "each test binary uses some of the helpers")]

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, LazyLock, OnceLock};
use std::time::Duration;

use crate::common::{Read, wait_until, work, work_for_cpu};
use gekkota::profile::{SnapshotOptions, Symbolicate};
use gekkota::thread::{ThreadId, profiler_current_thread_id};
use gekkota::{ProfilerTime, profiler_stream_json};

/// Part of the location of the frame that only samples of [`work_until_sampled`]'s work contain.
pub(crate) const WORKING: &str = "sampled::work_while_counted (in";

/// The start and the end of a piece of work.
#[derive(Default)]
struct Progress {
    started: OnceLock<ProfilerTime>,
    is_sampled: AtomicBool,
}

/// A request to count the samples of a piece of work. Dropping it ends the work.
struct Request {
    thread: ThreadId,
    wanted: usize,
    progress: Arc<Progress>,
}

impl Request {
    fn wait_for_samples(&self) {
        wait_until("the working thread has its samples", || {
            let start = self.progress.started.get();
            start.is_some_and(|&start| samples_since(self.thread, start) >= self.wanted)
        });
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        self.progress.is_sampled.store(true, Ordering::Relaxed);
    }
}

/// The thread that counts samples, so that the working threads only work. They do not start it
/// themselves, because the C library's code for that has no unwind information at one place.
static COUNTER: LazyLock<Sender<Request>> = LazyLock::new(|| {
    let (sender, requests) = channel::<Request>();
    std::thread::spawn(move || {
        for request in requests {
            request.wait_for_samples();
        }
    });
    sender
});

/// Starts the thread that counts samples. Call it before the session starts.
pub(crate) fn start_counter() {
    _ = LazyLock::force(&COUNTER);
}

/// Works until the profiler has `wanted` samples of the work. The calling thread must be
/// registered, and a session must be running.
#[inline(never)]
pub(crate) fn work_until_sampled(wanted: usize) {
    let progress = Arc::<Progress>::default();
    let request = Request {
        thread: profiler_current_thread_id(),
        wanted,
        progress: Arc::clone(&progress),
    };
    assert!(COUNTER.send(request).is_ok(), "the counter has panicked");
    work_while_counted(&progress);
}

#[inline(never)]
fn work_while_counted(progress: &Progress) {
    progress.started.get_or_init(ProfilerTime::now);
    while !progress.is_sampled.load(Ordering::Relaxed) {
        work(1000);
    }
    std::hint::black_box(file!());
}

/// Uses at least `least` of CPU time, and continues until the profiler has `wanted` samples of the
/// rest of the work.
pub(crate) fn work_at_least(least: Duration, wanted: usize) {
    work_for_cpu(least);
    work_until_sampled(wanted);
}

/// Waits until the profiler has `wanted` samples of a thread from now on.
pub(crate) fn wait_for_samples(thread: ThreadId, wanted: usize) {
    let start = ProfilerTime::now();
    wait_until("the thread has its samples", || {
        samples_since(thread, start) >= wanted
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
