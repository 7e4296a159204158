//! A thread that works and waits in turns is shown where it is, and its waits are not interrupted.

use std::io::{PipeReader, PipeWriter, Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::common::{Read, Sleeper, isolated};
use crate::sampling::places::{Place, check_stay, is_in};
use gekkota::{AutoProfilerThreadSleep, ProfilerSession, StartParams};

const ROUNDS: usize = 10;
/// Number of waits without an interruption that must occur, within [`MAX_ROUNDS`].
const UNDISTURBED_WAITS: usize = 3;
const MAX_ROUNDS: usize = 200;
/// Number of samples to see at each place.
const SAMPLES: usize = 3;
const THREAD: &str = "alternates";

static WORKING: Place = Place::new("working");
static WAITING: Place = Place::new("waiting");
static INTERRUPTED: AtomicU32 = AtomicU32::new(0);

#[inline(never)]
fn works() {
    WORKING.work();
    std::hint::black_box(1);
}

/// Waits until a byte arrives. The kernel never restarts `epoll_wait`, so each interruption is
/// seen.
#[inline(never)]
fn waits(epoll: i32, wake_ups: &mut PipeReader) {
    WAITING.repeat(|| {
        // SAFETY: the kernel writes at most one event to the local.
        let answer = unsafe {
            let mut event: libc::epoll_event = std::mem::zeroed();
            libc::epoll_wait(epoll, &mut event, 1, -1)
        };
        match answer {
            1 => wake_ups.read_exact(&mut [0]).expect("one byte"),
            _ => _ = INTERRUPTED.fetch_add(1, Ordering::Relaxed),
        }
    });
    std::hint::black_box(2);
}

/// Works and waits in turns, until the other end of the pipe is closed.
fn alternate(announce: bool, mut wake_ups: PipeReader, rounds: &std::sync::mpsc::Receiver<()>) {
    // SAFETY: makes a descriptor.
    let epoll = unsafe { libc::epoll_create1(0) };
    assert!(epoll >= 0);
    let mut event = libc::epoll_event {
        events: libc::EPOLLIN as u32,
        u64: 0,
    };
    // SAFETY: both descriptors are open, and the kernel reads a local.
    let answer =
        unsafe { libc::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, wake_ups.as_raw_fd(), &mut event) };
    assert_eq!(answer, 0);
    while rounds.recv().is_ok() {
        works();
        let _asleep = announce.then(AutoProfilerThreadSleep::new);
        waits(epoll, &mut wake_ups);
    }
    // SAFETY: opened above, and not used any more.
    unsafe { libc::close(epoll) };
}

fn check(announce: bool, idle_threads: usize) {
    let session = ProfilerSession::start(StartParams::default()).expect("start");
    let idle: Vec<_> = (0..idle_threads).map(|_| Sleeper::start("idle")).collect();
    let (wake_ups, mut wake): (PipeReader, PipeWriter) = std::io::pipe().expect("a pipe");
    let (begin_round, rounds) = std::sync::mpsc::channel();
    let thread = std::thread::spawn(move || {
        gekkota::register_thread(THREAD);
        alternate(announce, wake_ups, &rounds);
    });
    let (mut stays, mut undisturbed) = (Vec::new(), 0);
    while stays.len() < ROUNDS || undisturbed < UNDISTURBED_WAITS {
        assert!(
            stays.len() < MAX_ROUNDS,
            "only {undisturbed} of {MAX_ROUNDS} waits were not interrupted"
        );
        begin_round.send(()).expect("the thread lives");
        let working = WORKING.release_after(THREAD, SAMPLES);
        let before = INTERRUPTED.load(Ordering::Relaxed);
        WAITING.check_left_alone(THREAD, SAMPLES);
        undisturbed += usize::from(INTERRUPTED.load(Ordering::Relaxed) == before);
        let waiting = WAITING.release();
        wake.write_all(&[0]).expect("the thread reads");
        stays.push((working, waiting));
    }
    drop(begin_round);
    thread.join().expect("thread");
    drop(idle);
    let read = Read::from_profile(&session.finish().expect("profile"));
    let samples = read.samples(THREAD);
    for &(working, waiting) in &stays {
        check_stay(&read, &samples, working, |sample| is_in(sample, "::works"));
        check_stay(&read, &samples, waiting, |sample| is_in(sample, "::waits"));
    }
    println!(
        "announced {announce}, beside {idle_threads} idle: {} rounds, {} samples, {} interruptions, {undisturbed} waits without; \
         {} samples read from outside",
        stays.len(),
        samples.len(),
        INTERRUPTED.load(Ordering::Relaxed),
        read.count("remote_samples"),
    );
}

#[test]
fn alternating_thread_is_shown_where_it_is() {
    isolated(|| check(false, 0));
}

#[test]
fn alternating_thread_that_announces_its_sleep_is_shown_where_it_is() {
    isolated(|| check(true, 0));
}

#[test]
fn alternating_thread_beside_idle_threads_is_shown_where_it_is() {
    isolated(|| check(false, 16));
}

#[test]
fn alternating_thread_that_announces_its_sleep_beside_idle_threads_is_shown_where_it_is() {
    isolated(|| check(true, 16));
}
