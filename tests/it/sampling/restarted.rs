//! A thread whose large stack is being copied when a session ends has samples in the next session.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::common::{Read, isolated, wait_until, work};
use gekkota::{ProfilerSession, SamplingEngine, StartParams};

const ROUNDS: u32 = 6;
static READY: AtomicBool = AtomicBool::new(false);
static ENDS: AtomicBool = AtomicBool::new(false);

#[inline(never)]
fn uses_much_stack() {
    let stack = [1u8; 50 << 20];
    black_box(&stack);
    READY.store(true, Ordering::Release);
    while !ENDS.load(Ordering::Relaxed) {
        work(1000);
    }
    black_box(&stack);
}

fn start() -> ProfilerSession {
    ProfilerSession::start(StartParams::default().engine(SamplingEngine::Signals)).expect("start")
}

fn samples_so_far() -> usize {
    Read::of_running().samples("uses much stack").len()
}

#[test]
fn thread_with_an_unfinished_capture_is_sampled_in_the_next_session() {
    isolated(|| {
        let body = || {
            gekkota::register_thread("uses much stack");
            uses_much_stack();
        };
        let thread = std::thread::Builder::new()
            .stack_size(62 << 20)
            .spawn(body)
            .expect("spawn");
        wait_until("the stack is in use", || READY.load(Ordering::Acquire));
        for _ in 0..ROUNDS {
            let first = start();
            // Copying the stack takes several times as long, so it is probably in progress.
            std::thread::sleep(Duration::from_micros(2500));
            gekkota::profiler_stop();
            drop(first);
            let session = start();
            wait_until("the thread has samples", || samples_so_far() > 5);
            let read = Read::from_profile(&session.finish().expect("profile"));
            println!(
                "{} samples in {} ticks, {} unanswered",
                read.samples("uses much stack").len(),
                read.count("ticks"),
                read.count("unanswered_ticks")
            );
        }
        ENDS.store(true, Ordering::Relaxed);
        thread.join().expect("thread");
    });
}
