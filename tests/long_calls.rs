//! A long call into the kernel that every signal breaks off comes to its end all the same.
#![cfg(has_profiler)]

mod common;

use std::time::{Duration, Instant};

use common::Read;
use gekkota::{ProfilerSession, StartParams};

/// The kernel's random bytes: a signal ends the call early, with fewer bytes.
#[inline(never)]
fn random_bytes(into: &mut [u8]) -> usize {
    // SAFETY: the kernel writes at most so many bytes.
    let got = unsafe { libc::getrandom(into.as_mut_ptr().cast(), into.len(), 0) };
    usize::try_from(got).expect("random bytes")
}

/// So many bytes that the call takes several intervals.
fn bytes_of_a_long_call() -> Vec<u8> {
    let mut bytes = vec![0; 1 << 16];
    loop {
        let begin = Instant::now();
        let length = bytes.len();
        if random_bytes(&mut bytes) == length && begin.elapsed() > Duration::from_millis(4) {
            return bytes;
        }
        bytes.resize(length * 2, 0);
    }
}

#[test]
fn a_call_that_begins_again_and_again_ends() {
    let mut bytes = bytes_of_a_long_call();
    let session =
        ProfilerSession::start(StartParams::default().interval(Duration::from_micros(500))).expect("start");
    let thread = std::thread::spawn(move || {
        gekkota::register_thread("calls");
        let end = Instant::now() + Duration::from_secs(20);
        let (mut whole, mut broken) = (0, 0);
        while whole < 3 {
            assert!(Instant::now() < end, "{broken} calls were broken off, {whole} came to their end");
            if random_bytes(&mut bytes) == bytes.len() { whole += 1 } else { broken += 1 }
        }
        broken
    });
    let broken = thread.join().expect("the calls come to their end");
    let read = Read::from_profile(&session.finish().expect("profile"));
    let samples = read.samples("calls");
    let there =
        samples.iter().filter(|sample| sample.stack.iter().any(|frame| frame.contains("random_bytes")));
    println!(
        "{broken} calls broken off; {} samples, {} of them there, {} captured",
        samples.len(),
        there.clone().count(),
        read.count("captured_samples")
    );
    assert!(there.count() * 2 > samples.len());
}
