//! A thread in seccomp's strict mode, which ends a program whose handler reads a clock there.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;

use crate::common::{LONGEST_WAIT, Read, isolated, samples_of, wait_until};
use gekkota::stack::StackFeatures;
use gekkota::thread::ThreadId;
use gekkota::{ProfilerSession, StartParams};

const STRICT: libc::c_ulong = 1;

static WORK: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

/// Starts a thread that works in strict mode for ever, and returns its id.
fn start_strict(work: &'static AtomicU64, registers: bool) -> i32 {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        if registers {
            gekkota::register_thread("strict");
        }
        sender
            .send(nix::unistd::gettid().as_raw())
            .expect("the test waits");
        // SAFETY: accesses no memory.
        unsafe { libc::prctl(libc::PR_SET_SECCOMP, STRICT) };
        loop {
            work.fetch_add(1, Ordering::Relaxed);
        }
    });
    let thread = receiver.recv_timeout(LONGEST_WAIT).expect("a thread");
    wait_until("the thread works", || work.load(Ordering::Relaxed) > 0);
    thread
}

#[test]
fn threads_in_strict_mode_are_not_interrupted() {
    isolated(|| {
        let threads = [start_strict(&WORK[0], true), start_strict(&WORK[1], false)];
        let session = ProfilerSession::start(StartParams::default()).expect("start");
        let reason = "(no stack: the thread cannot be interrupted)";
        wait_until("the threads have samples", || {
            let read = Read::of_running();
            threads.iter().all(|id| {
                let found = read.threads().iter().find(|thread| thread["tid"] == *id);
                let samples = found.map_or_else(Vec::new, samples_of);
                samples.iter().any(|sample| sample.stack == [reason])
            })
        });
        let stack = gekkota::stack::profiler_suspend_and_sample_thread(
            ThreadId::from_number(threads[0]),
            StackFeatures::NATIVE,
            Duration::from_secs(1),
        );
        let error = stack.expect_err("no stack").to_string();
        assert!(error.contains("strict mode"), "{error}");
        for work in &WORK {
            let before = work.load(Ordering::Relaxed);
            wait_until("the thread works on", || {
                work.load(Ordering::Relaxed) > before
            });
        }
        session.finish().expect("a profile");
    });
}
