//! A thread that blocks all signals, as one that handles them by `sigwait` does, never gets that of
//! the profiler.

use std::sync::mpsc;
use std::time::Duration;

use nix::sys::pthread::{Pthread, pthread_kill, pthread_self};
use nix::sys::signal::{SigSet, Signal};

use crate::common::{Read, isolated, wait_until, work};
use crate::sampling::places::{Place, is_in};
use gekkota::{ProfilerSession, StartParams};

const THREAD: &str = "waits for signals";
const ROUNDS: usize = 5;
/// Number of ticks, and of samples, to wait for in each round.
const COUNT: usize = 20;
static WORKING: Place = Place::new("handles a signal");
static WAITING: Place = Place::new("waits for a signal");
static NOT_BLOCKING: Place = Place::new("blocks no signal");

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
    let unanswered = || {
        let read = Read::of_running();
        read.count("unanswered_ticks") + read.count("samples_without_stack")
    };
    let before = unanswered();
    wait_until("ticks have no answer", || {
        unanswered() >= before + COUNT as u64
    });
}

/// Number of the process's events, without that of the sampler's own thread. Only the sampler's table
/// of descriptors has some.
fn events() -> usize {
    let is_event = |entry: &std::fs::DirEntry| {
        let target = std::fs::read_link(entry.path());
        target.is_ok_and(|target| target.to_string_lossy().contains("perf_event"))
    };
    let tasks = std::fs::read_dir("/proc/self/task").expect("the threads");
    let folders = tasks.filter_map(|task| std::fs::read_dir(task.ok()?.path().join("fd")).ok());
    let all = folders.flatten().flatten().filter(is_event).count();
    all.saturating_sub(1)
}

/// Sleeps, and works for a moment, in turn: such a thread gets an event.
fn work_and_sleep(place: &Place) {
    place.repeat(|| {
        work(100_000);
        std::thread::sleep(Duration::from_millis(1));
    });
}

/// Returns whether the session gives a thread that blocks no signal an event. Says that the test is
/// skipped if the system refuses: such a session sends signals instead.
fn has_events() -> bool {
    let session = ProfilerSession::start(StartParams::default()).expect("start");
    let thread = std::thread::spawn(|| {
        gekkota::register_thread("blocks no signal");
        work_and_sleep(&NOT_BLOCKING);
    });
    NOT_BLOCKING.wait_for_thread();
    let mut refused = 0;
    wait_until("the thread has an event", || {
        refused = Read::of_running().count("refused_events");
        refused > 0 || events() > 0
    });
    NOT_BLOCKING.release();
    thread.join().expect("thread");
    drop(session);
    if refused > 0 {
        println!("!!! SKIPPED: the system refuses events");
        return false;
    }
    assert_eq!(events(), 0, "events end with their session");
    true
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
fn event_ends_when_its_thread_begins_to_block_the_signal() {
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
        if !has_events() {
            return;
        }
        // Other threads have no events.
        let params = StartParams::default().filters([THREAD]);
        let session = ProfilerSession::start(params).expect("start");
        let thread = std::thread::spawn(|| {
            gekkota::register_thread(THREAD);
            work_and_sleep(&WORKING);
            SigSet::all().thread_block().expect("a mask");
            WAITING.work();
            // Those that the event sent before it ended.
            pending_sampling_signals();
            WORKING.work();
            pending_sampling_signals()
        });
        WORKING.wait_for_samples(THREAD, COUNT);
        wait_until("the thread has an event", || events() == 1);
        WORKING.release();
        WAITING.wait_for_thread();
        wait_until("the event has ended", || events() == 0);
        WAITING.release();
        WORKING.wait_for_thread();
        wait_for_unanswered_ticks();
        assert_eq!(events(), 0, "the thread still blocks the signal");
        WORKING.release();
        assert_eq!(thread.join().expect("thread"), 0);
        session.finish().expect("profile");
    });
}
