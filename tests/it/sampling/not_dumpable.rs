//! Where the kernel does not tell where a thread sleeps, a sleeping thread is left alone all the same.

use std::time::{Duration, Instant};

use crate::common::{Read, become_nobody, in_forked_child, isolated};
use gekkota::{ProfilerSession, SamplingEngine, StartParams};

#[inline(never)]
fn sleeps_in_poll() -> u32 {
    let end = Instant::now() + Duration::from_millis(1000);
    let mut interrupted = 0;
    while let Some(left) = end.checked_duration_since(Instant::now()) {
        // SAFETY: no descriptors are given.
        let answer = unsafe { libc::poll(std::ptr::null_mut(), 0, left.as_millis() as i32 + 1) };
        interrupted += u32::from(answer == -1);
    }
    interrupted
}

fn sleep_as_nobody() -> String {
    become_nobody();
    // SAFETY: touches no memory.
    assert_eq!(unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 0) }, 0);
    let own = std::fs::read("/proc/thread-self/syscall");
    assert!(own.is_err(), "the kernel tells nothing: {own:?}");
    let params = StartParams::default().engine(SamplingEngine::Signals);
    let session = ProfilerSession::start(params).expect("start");
    let thread = std::thread::spawn(|| {
        gekkota::register_thread("sleeper");
        sleeps_in_poll()
    });
    let interrupted = thread.join().expect("thread");
    let read = Read::from_profile(&session.finish().expect("profile"));
    let samples = read.samples("sleeper");
    let asleep = samples.iter().filter(|sample| {
        sample
            .stack
            .iter()
            .any(|frame| frame.contains("sleeps_in_poll"))
    });
    let (asleep, ticks) = (asleep.count(), read.count("ticks"));
    let found = format!(
        "{interrupted} interruptions of a poll of a second; {asleep} samples of it in {ticks} ticks"
    );
    assert!(interrupted <= 12, "{found}");
    assert!(asleep as u64 > ticks / 2, "{found}");
    found
}

#[test]
fn a_sleeper_that_cannot_be_looked_at_is_left_alone() {
    isolated(|| {
        println!("{}", in_forked_child(sleep_as_nobody));
    });
}
