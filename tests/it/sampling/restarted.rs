//! A thread whose stack was requested, but not collected, when a session ends has samples in the
//! next session.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::common::{Read, isolated, wait_until, work};
use gekkota::{ProfilerSession, StartParams, profiler_get_buffer_info};

/// Number of sessions that end before they collect the stack.
const ROUNDS: u32 = 6;
/// Interval of these sessions: long enough to end them before their second tick.
const INTERVAL: Duration = Duration::from_millis(200);
/// Maximum number of sessions until so many did.
const MAX_SESSIONS: u32 = 200;
static READY: AtomicBool = AtomicBool::new(false);
static ENDS: AtomicBool = AtomicBool::new(false);

#[inline(never)]
fn uses_much_stack() {
    let stack = [1u8; 2 << 20];
    black_box(&stack);
    READY.store(true, Ordering::Release);
    while !ENDS.load(Ordering::Relaxed) {
        work(1000);
    }
    black_box(&stack);
}

fn start(interval: Duration) -> ProfilerSession {
    let params = StartParams::default().interval(interval);
    ProfilerSession::start(params).expect("start")
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
            .stack_size(4 << 20)
            .spawn(body)
            .expect("spawn");
        wait_until("the stack is in use", || READY.load(Ordering::Acquire));
        let (mut sessions, mut unfinished) = (0, 0);
        while unfinished < ROUNDS {
            sessions += 1;
            assert!(
                sessions <= MAX_SESSIONS,
                "only {unfinished} ended before they collected the stack"
            );
            let first = start(INTERVAL);
            // The first tick requests a stack, which the second one would collect.
            wait_until("the first tick is over", || {
                let info = profiler_get_buffer_info().expect("active");
                info.overheads.count > 0
            });
            let first = Read::from_profile(&first.finish().expect("profile"));
            unfinished += u32::from(first.samples("uses much stack").is_empty());
            let session = start(Duration::from_millis(1));
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
