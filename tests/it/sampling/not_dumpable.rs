//! Where the kernel does not report where a thread sleeps, the sampler leaves a sleeping thread
//! alone nevertheless.

use std::io::{PipeReader, Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::common::{Read, Sample, become_nobody, in_forked_child, isolated, wait_until, work};
use crate::sampling::places::{Place, Stay, check_stay, is_in};
use gekkota::{ProfilerSession, ProfilerTime, StartParams};

/// Number of samples to see of the sleep.
const SAMPLES: usize = 20;

static SLEEP: Place = Place::new("asleep");

/// Sleeps until a byte arrives. Returns the number of interruptions.
#[inline(never)]
fn sleeps_in_poll(mut wake_ups: PipeReader) -> u32 {
    let mut interrupted = 0;
    SLEEP.repeat(|| {
        let mut entry = libc::pollfd {
            fd: wake_ups.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: the kernel reads and writes one local.
        match unsafe { libc::poll(&mut entry, 1, -1) } {
            1 => wake_ups.read_exact(&mut [0]).expect("one byte"),
            _ => interrupted += 1,
        }
    });
    interrupted
}

fn sleep_as_nobody() -> String {
    become_nobody();
    // SAFETY: sets a flag of the process.
    assert_eq!(unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 0) }, 0);
    let own = std::fs::read("/proc/thread-self/syscall");
    assert!(own.is_err(), "the kernel reports the place: {own:?}");
    let params = StartParams::default();
    let session = ProfilerSession::start(params).expect("start");
    let (wake_ups, mut wake) = std::io::pipe().expect("a pipe");
    let thread = std::thread::spawn(|| {
        gekkota::register_thread("sleeper");
        sleeps_in_poll(wake_ups)
    });
    SLEEP.check_left_alone("sleeper", SAMPLES);
    let stay = SLEEP.release();
    wake.write_all(&[0]).expect("the thread reads");
    let interrupted = thread.join().expect("thread");
    let read = Read::from_profile(&session.finish().expect("profile"));
    let asleep = check_stay(&read, &read.samples("sleeper"), stay, |sample| {
        is_in(sample, "sleeps_in_poll")
    });
    format!(
        "{interrupted} interruptions before the thread was left alone; {asleep} samples of its sleep in {} ticks",
        read.count("ticks")
    )
}

#[test]
fn sleeping_thread_with_hidden_place_is_left_alone() {
    isolated(|| {
        println!("{}", in_forked_child(sleep_as_nobody));
    });
}

/// Number of short sleeps. In about one of 30, the last answer comes shortly before the sleep.
const NAPS: u32 = 300;
const NAP: Duration = Duration::from_millis(6);

/// Sleeps for a short time, and returns when.
#[inline(never)]
fn naps() -> Stay {
    let from = ProfilerTime::now();
    let begin = Instant::now();
    while begin.elapsed() < NAP {
        // SAFETY: the array is empty.
        unsafe { libc::poll(std::ptr::null_mut(), 0, NAP.as_millis() as i32) };
    }
    let until = ProfilerTime::now();
    Stay { from, until }
}

fn nap_as_nobody() -> String {
    become_nobody();
    // SAFETY: sets a flag of the process.
    assert_eq!(unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 0) }, 0);
    let params = StartParams::default();
    let session = ProfilerSession::start(params).expect("start");
    let thread = std::thread::spawn(|| {
        gekkota::register_thread("napper");
        let work_and_nap = |nap: u32| {
            // Works for about a tick, so that signals arrive anywhere in the work.
            let begin = Instant::now();
            while begin.elapsed() < Duration::from_micros(u64::from(1000 + nap * 7 % 1000)) {
                work(100);
            }
            naps()
        };
        (0..NAPS).map(work_and_nap).collect::<Vec<_>>()
    });
    let stays = thread.join().expect("thread");
    let read = Read::from_profile(&session.finish().expect("profile"));
    let samples = read.samples("napper");
    let is_asleep = |sample: &Sample| is_in(sample, "naps");
    let asleep = stays
        .into_iter()
        .map(|stay| check_stay(&read, &samples, stay, is_asleep));
    let asleep: usize = asleep.sum();
    assert!(asleep > 0, "no sample of {NAPS} sleeps");
    format!("{asleep} samples of {NAPS} sleeps")
}

/// The thread may answer just before it begins to sleep. That answer does not show where it sleeps.
#[test]
fn sleep_after_an_answer_has_the_stack_of_the_sleep() {
    isolated(|| println!("{}", in_forked_child(nap_as_nobody)));
}

/// Sleeps until the place is left, in short sleeps. Counts those that a signal interrupted.
#[inline(never)]
fn sleeps_in_short_polls(interrupted: &AtomicU64) {
    SHORT_SLEEPS.repeat(|| {
        // SAFETY: the array is empty.
        let answer = unsafe { libc::poll(std::ptr::null_mut(), 0, 1000) };
        interrupted.fetch_add(u64::from(answer != 0), Ordering::Relaxed);
    });
}

static SHORT_SLEEPS: Place = Place::new("asleep for a second");

fn sleep_in_a_namespace() -> String {
    static INTERRUPTED: AtomicU64 = AtomicU64::new(0);
    let own = format!("/proc/self/task/{}", nix::unistd::gettid());
    assert!(!std::path::Path::new(&own).exists(), "{own} exists");
    let params = StartParams::default();
    let session = ProfilerSession::start(params).expect("start");
    let thread = std::thread::spawn(|| {
        gekkota::register_thread("sleeper");
        sleeps_in_short_polls(&INTERRUPTED);
    });
    // A thread without a visible sleep is interrupted once in each of them.
    wait_until("a sleep is left alone", || {
        let before = INTERRUPTED.load(Ordering::Relaxed);
        SHORT_SLEEPS.wait_for_samples("sleeper", SAMPLES);
        INTERRUPTED.load(Ordering::Relaxed) - before <= 1
    });
    SHORT_SLEEPS.release();
    thread.join().expect("thread");
    let read = Read::from_profile(&session.finish().expect("profile"));
    format!("{} hidden threads", read.count("hidden_threads"))
}

/// `/proc` is that of the namespace outside, so it does not have the threads by their numbers.
#[test]
fn sleeping_thread_in_a_pid_namespace_is_left_alone() {
    isolated(
        || match nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWPID) {
            Ok(()) => println!("{}", in_forked_child(sleep_in_a_namespace)),
            Err(error) => println!("!!! SKIPPED: no PID namespace: {error}"),
        },
    );
}
