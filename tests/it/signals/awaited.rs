//! A thread that blocks all signals, as one that handles them by `sigwait` does, never gets that of
//! the profiler, whichever engine samples it.

use std::sync::mpsc;

use nix::sys::pthread::{Pthread, pthread_kill, pthread_self};
use nix::sys::signal::{SigSet, Signal};

use crate::common::{Read, isolated, wait_until};
use crate::sampling::places::{Place, is_in};
use gekkota::{ProfilerSession, SamplingEngine, StartParams};

const THREAD: &str = "waits for signals";
const ROUNDS: usize = 5;
/// Number of ticks, and of samples, to wait for in each round.
const COUNT: usize = 20;
static WORKING: Place = Place::new("handles a signal");
static WAITING: Place = Place::new("waits for a signal");

/// Waits for any signal, and returns its number. `nix` does not know the real-time signals.
fn wait_for_signal() -> i32 {
    let mut number = 0;
    // SAFETY: the kernel reads an initialized set and writes to a local.
    let answer = unsafe { libc::sigwait(SigSet::all().as_ref(), &mut number) };
    assert_eq!(answer, 0);
    number
}

#[inline(never)]
fn waits_for_signals(received: &mut Vec<i32>) {
    WAITING.repeat(|| received.push(wait_for_signal()));
}

/// Works and waits, in turn. Returns the signals that it has received.
fn handle_signals(ready: &mpsc::Sender<Pthread>) -> Vec<i32> {
    SigSet::all().thread_block().expect("a mask");
    gekkota::register_thread(THREAD);
    let mut received = Vec::new();
    for _ in 0..ROUNDS {
        ready.send(pthread_self()).expect("the test waits");
        WORKING.work();
        waits_for_signals(&mut received);
    }
    received
}

/// Waits until the thread that works has had no answer on some more ticks.
fn wait_for_unanswered_ticks() {
    let unanswered = || Read::of_running().count("unanswered_ticks");
    let before = unanswered();
    wait_until("ticks have no answer", || {
        unanswered() >= before + COUNT as u64
    });
}

fn sample_thread_that_waits_for_signals(params: StartParams) {
    let session = ProfilerSession::start(params).expect("start");
    let (ready, is_ready) = mpsc::channel();
    let thread = std::thread::spawn(move || handle_signals(&ready));
    for _ in 0..ROUNDS {
        let target = is_ready.recv().expect("the thread lives");
        WORKING.wait_for_thread();
        // While the thread works, nothing answers for it.
        wait_for_unanswered_ticks();
        WORKING.release();
        WAITING.wait_for_samples(THREAD, COUNT);
        WAITING.release();
        pthread_kill(target, Signal::SIGUSR1).expect("the thread lives");
    }
    let received = thread.join().expect("thread");
    assert_eq!(received, [libc::SIGUSR1; ROUNDS]);
    let read = Read::from_profile(&session.finish().expect("profile"));
    let samples = read.samples(THREAD);
    let waiting = samples
        .iter()
        .filter(|sample| is_in(sample, "waits_for_signals"));
    assert!(
        waiting.count() >= ROUNDS * (COUNT - 1),
        "stacks are read from outside"
    );
}

#[test]
fn sigwait_of_a_sampled_thread_does_not_return_the_sampling_signal() {
    isolated(|| sample_thread_that_waits_for_signals(StartParams::default()));
}

#[test]
fn sigwait_of_a_sampled_thread_does_not_return_a_real_time_signal() {
    isolated(|| {
        let params = StartParams::default().signal(libc::SIGRTMIN() + 1);
        sample_thread_that_waits_for_signals(params);
    });
}

#[test]
fn sigwait_of_a_sampled_thread_does_not_return_a_timers_signal() {
    isolated(|| {
        let params = StartParams::default().engine(SamplingEngine::LocalTimers);
        sample_thread_that_waits_for_signals(params);
    });
}

#[test]
fn timer_ends_when_its_thread_begins_to_block_the_signal() {
    /// Discards the signals that are pending, and returns the number of the sampling signals.
    fn pending_sampling_signals() -> usize {
        let no_time = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // SAFETY: the kernel reads an initialized set and a local.
        let next = || unsafe {
            libc::sigtimedwait(SigSet::all().as_ref(), std::ptr::null_mut(), &no_time)
        };
        let pending = std::iter::from_fn(|| Some(next()).filter(|&number| number > 0));
        pending.filter(|&number| number == libc::SIGURG).count()
    }
    isolated(|| {
        let params = StartParams::default().engine(SamplingEngine::LocalTimers);
        let session = ProfilerSession::start(params).expect("start");
        let thread = std::thread::spawn(|| {
            gekkota::register_thread(THREAD);
            WORKING.work();
            SigSet::all().thread_block().expect("a mask");
            WAITING.work();
            let of_the_timer = pending_sampling_signals();
            WORKING.work();
            (of_the_timer, pending_sampling_signals())
        });
        WORKING.wait_for_samples(THREAD, COUNT);
        WORKING.release();
        for place in [&WAITING, &WORKING] {
            place.wait_for_thread();
            wait_for_unanswered_ticks();
            place.release();
        }
        let (before_it_ended, after_it_ended) = thread.join().expect("thread");
        assert!(before_it_ended <= 1, "{before_it_ended}");
        assert_eq!(after_it_ended, 0);
        session.finish().expect("profile");
    });
}
