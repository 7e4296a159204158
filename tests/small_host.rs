//! A small program and its session. `.ci/steps/10-sanitizers` runs it under AddressSanitizer, and
//! `.ci/steps/16-memcheck` under Valgrind.
#![cfg(has_profiler)]

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{channel, sync_channel};
use std::time::Duration;

use gekkota::callback::{SamplingState, profiler_callback_after_sampling};
use gekkota::{ProfilerSession, StartParams};

/// Number of loops of the sampler while the threads work and sleep.
const LOOPS: u32 = 30;
static IS_OVER: AtomicBool = AtomicBool::new(false);

/// Works on a deep stack with arrays, which AddressSanitizer surrounds by memory that must not be
/// read.
fn descend(depth: u64) -> u64 {
    let numbers = std::hint::black_box([depth; 50]);
    match depth {
        0 => numbers.iter().fold(0, |sum, number| sum ^ number),
        _ => descend(depth - 1) ^ numbers[7],
    }
}

/// Works and sleeps in turn, in a function with an array.
fn work_and_sleep() {
    let array = std::hint::black_box([7u8; 300]);
    let (_sender, receiver) = channel::<()>();
    while !IS_OVER.load(Ordering::Relaxed) {
        std::hint::black_box(descend(30));
        let texts: Vec<_> = array.iter().map(u8::to_string).collect();
        let _ = receiver.recv_timeout(Duration::from_millis(texts.len() as u64 % 7));
    }
}

#[test]
fn session_of_a_small_program_is_recorded_and_saved() {
    let session = ProfilerSession::start(StartParams::default()).expect("start");
    let registered: fn() = || {
        gekkota::register_thread("registered");
        work_and_sleep();
    };
    let threads = [registered, work_and_sleep, registered, work_and_sleep];
    let threads = threads.map(std::thread::spawn);
    for _ in 0..LOOPS {
        let (send, state) = sync_channel(1);
        assert!(profiler_callback_after_sampling(move |state| {
            let _ = send.send(state);
        }));
        assert_eq!(state.recv(), Ok(SamplingState::SamplingCompleted));
        std::thread::spawn(|| descend(5)).join().expect("no panic");
    }
    IS_OVER.store(true, Ordering::Relaxed);
    for thread in threads {
        thread.join().expect("no panic");
    }
    let profile = session.finish().expect("profile");
    let name = format!("gekkota-small-host-{}.json", std::process::id());
    let path = std::env::temp_dir().join(name);
    profile.save(&path).expect("saved");
    let text = std::fs::read_to_string(&path).expect("text");
    std::fs::remove_file(path).expect("removed");
    assert!(text.contains("registered"));
}
