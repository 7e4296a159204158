//! A thread that sleeps with the signal blocked is shown where it sleeps, not where it unblocks the
//! signal.

use std::hint::black_box;
use std::io::{PipeReader, Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::time::Duration;

use crate::common::{Read, Sample, isolated, work_for_cpu};
use crate::sampling::places::{Place, check_stay, is_in};
use gekkota::{ProfilerSession, StartParams};

const ROUNDS: usize = 15;
/// Number of samples to see of each sleep.
const SAMPLES: usize = 5;
const THREAD: &str = "signal blocked";

fn mask_signal(how: libc::c_int) {
    // SAFETY: the set is a local.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        libc::sigaddset(&mut set, libc::SIGURG);
        assert_eq!(libc::pthread_sigmask(how, &set, std::ptr::null_mut()), 0);
    }
}

/// A way to sleep until a byte arrives.
struct Way {
    name: &'static str,
    sleep: fn(&mut PipeReader),
    place: Place,
}

/// The kernel does not report the frame pointer, which some callers of a system call need.
static WAYS: [Way; 2] = [
    Way {
        name: "by the standard library",
        sleep: |wake_ups| wake_ups.read_exact(&mut [0]).expect("one byte"),
        place: Place::new("asleep by the standard library"),
    },
    Way {
        name: "by the system call",
        sleep: |wake_ups| {
            let mut byte = 0u8;
            // SAFETY: the kernel writes at most one byte to the local.
            unsafe { libc::syscall(libc::SYS_read, wake_ups.as_raw_fd(), &raw mut byte, 1) };
        },
        place: Place::new("asleep by the system call"),
    },
];

#[inline(never)]
fn sleeps_with_signal_blocked(way: &Way, wake_ups: &mut PipeReader) {
    way.place.repeat(|| (way.sleep)(wake_ups));
    black_box(1);
}

#[inline(never)]
fn unblocks_the_signal() {
    mask_signal(libc::SIG_UNBLOCK);
    black_box(2);
}

fn alternate(way: &Way, mut wake_ups: PipeReader) {
    for _ in 0..ROUNDS {
        work_for_cpu(Duration::from_millis(3));
        mask_signal(libc::SIG_BLOCK);
        work_for_cpu(Duration::from_micros(150));
        sleeps_with_signal_blocked(way, &mut wake_ups);
        unblocks_the_signal();
    }
}

fn check(way: &'static Way) {
    let params = StartParams::default();
    let session = ProfilerSession::start(params).expect("start");
    let (wake_ups, mut wake) = std::io::pipe().expect("a pipe");
    let thread = std::thread::spawn(move || {
        gekkota::register_thread(THREAD);
        alternate(way, wake_ups);
    });
    let mut stays = Vec::new();
    for _ in 0..ROUNDS {
        // A request that stays pending during the sleep would let this wait fail.
        stays.push(way.place.release_after(THREAD, SAMPLES));
        wake.write_all(&[0]).expect("the thread reads");
    }
    thread.join().expect("thread");
    let read = Read::from_profile(&session.finish().expect("profile"));
    let samples = read.samples(THREAD);
    // A sleeping thread that blocks the signal cannot supply its frame pointer, so its stack may be
    // truncated. Its label is there nevertheless.
    let is_asleep = |sample: &Sample| {
        is_in(sample, "::sleeps_with_signal_blocked")
            || (sample.stack[0] == "(truncated)" && is_in(sample, "asleep by the"))
    };
    let asleep: usize = stays
        .iter()
        .map(|&stay| check_stay(&read, &samples, stay, is_asleep))
        .sum();
    println!(
        "{}: {asleep} samples asleep; missed {}",
        way.name,
        read.count("missed_ticks")
    );
    assert!(asleep >= ROUNDS * (SAMPLES - 1), "{}: {asleep}", way.name);
}

#[test]
fn sleep_with_blocked_signal_is_not_shown_where_the_signal_is_unblocked() {
    isolated(|| WAYS.iter().for_each(check));
}
