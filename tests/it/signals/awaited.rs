//! A thread that blocks all signals, as one that handles them by `sigwait` does, never gets that of
//! the profiler.

use std::sync::mpsc;

use nix::sys::pthread::{Pthread, pthread_kill, pthread_self};
use nix::sys::signal::{SigSet, Signal};

use crate::common::{Read, isolated, wait_until};
use crate::sampling::places::{Place, is_in};
use gekkota::{ProfilerSession, StartParams};

const THREAD: &str = "waits for signals";
const ROUNDS: usize = 5;
/// Number of ticks, and of samples, to wait for in each round.
const COUNT: usize = 20;
static WORKING: Place = Place::new("handles a signal");
static WAITING: Place = Place::new("waits for a signal");

#[inline(never)]
fn waits_for_signals(received: &mut Vec<Signal>) {
    WAITING.repeat(|| received.push(SigSet::all().wait().expect("a signal")));
}

/// Works and waits, in turn. Returns the signals that it has received.
fn handle_signals(ready: &mpsc::Sender<Pthread>) -> Vec<Signal> {
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

#[test]
fn sigwait_of_a_sampled_thread_does_not_return_the_sampling_signal() {
    isolated(|| {
        let session = ProfilerSession::start(StartParams::default()).expect("start");
        let (ready, is_ready) = mpsc::channel();
        let thread = std::thread::spawn(move || handle_signals(&ready));
        for _ in 0..ROUNDS {
            let target = is_ready.recv().expect("the thread lives");
            WORKING.wait_for_thread();
            // While the thread works, nothing answers for it.
            let before = Read::of_running().count("unanswered_ticks");
            wait_until("ticks have no answer", || {
                Read::of_running().count("unanswered_ticks") >= before + COUNT as u64
            });
            WORKING.release();
            WAITING.wait_for_samples(THREAD, COUNT);
            WAITING.release();
            pthread_kill(target, Signal::SIGUSR1).expect("the thread lives");
        }
        let received = thread.join().expect("thread");
        assert_eq!(received, [Signal::SIGUSR1; ROUNDS]);
        let read = Read::from_profile(&session.finish().expect("profile"));
        let samples = read.samples(THREAD);
        let waiting = samples
            .iter()
            .filter(|sample| is_in(sample, "waits_for_signals"));
        assert!(
            waiting.count() >= ROUNDS * (COUNT - 1),
            "stacks are read from outside"
        );
    });
}
