//! A thread that sleeps with the signal blocked is shown where it sleeps, not where it lets the signal in.

use std::hint::black_box;
use std::time::{Duration, Instant};

use crate::common::{Read, Sample, isolated, work_for_cpu};
use gekkota::{ProfilerSession, SamplingEngine, StartParams};

const ROUNDS: u32 = 40;
const SLEEP: Duration = Duration::from_millis(30);

fn mask_signal(how: libc::c_int) {
    // SAFETY: the set is a local.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        libc::sigaddset(&mut set, libc::SIGPROF);
        assert_eq!(libc::pthread_sigmask(how, &set, std::ptr::null_mut()), 0);
    }
}

/// How a thread sleeps: callers of the first keep their frames by the frame pointer, which the kernel does not tell.
const WAYS: [(&str, fn()); 2] = [
    ("by the standard library", || std::thread::sleep(SLEEP)),
    ("by the kernel's call", || {
        let time = libc::timespec {
            tv_sec: 0,
            tv_nsec: SLEEP.as_nanos() as i64,
        };
        // SAFETY: the kernel reads a local.
        unsafe { libc::syscall(libc::SYS_nanosleep, &raw const time, 0) };
    }),
];

#[inline(never)]
fn sleeps_deaf(sleep: fn()) {
    sleep();
    black_box(1);
}

#[inline(never)]
fn lets_the_signal_in() {
    mask_signal(libc::SIG_UNBLOCK);
    black_box(2);
}

/// Wall time asleep, and in letting the signal in.
fn alternate(sleep: fn()) -> (f64, f64) {
    let (mut asleep, mut letting_in) = (0.0, 0.0);
    for _ in 0..ROUNDS {
        work_for_cpu(Duration::from_millis(3));
        mask_signal(libc::SIG_BLOCK);
        work_for_cpu(Duration::from_micros(150));
        let begin = Instant::now();
        sleeps_deaf(sleep);
        let between = Instant::now();
        lets_the_signal_in();
        asleep += (between - begin).as_secs_f64() * 1e3;
        letting_in += between.elapsed().as_secs_f64() * 1e3;
    }
    (asleep, letting_in)
}

fn shown(samples: &[Sample], function: &str) -> (usize, f64) {
    shown_where(samples, |stack| {
        stack.iter().any(|frame| frame.contains(function))
    })
}

fn shown_where(samples: &[Sample], is_there: impl Fn(&[String]) -> bool + Clone) -> (usize, f64) {
    let pairs = samples.windows(2).filter(|pair| is_there(&pair[0].stack));
    (
        pairs.clone().count(),
        pairs.map(|pair| pair[1].time_ms - pair[0].time_ms).sum(),
    )
}

/// What is wrong with what is shown, if anything.
fn check(way: &str, sleep: fn()) -> Result<(), String> {
    let params = StartParams::default().engine(SamplingEngine::Signals);
    let session = ProfilerSession::start(params).expect("start");
    let thread = std::thread::spawn(move || {
        gekkota::register_thread("deaf");
        alternate(sleep)
    });
    let (asleep_ms, letting_in_ms) = thread.join().expect("thread");
    let read = Read::from_profile(&session.finish().expect("profile"));
    let samples = read.samples("deaf");
    // A thread that cannot be asked for its frame pointer is shown as far as its stack is known without.
    let (asleep, shown_asleep_ms) = shown_where(&samples, |stack| {
        let within = |name: &str| stack.iter().any(|frame| frame.contains(name));
        within("::sleeps_deaf") || (stack[0] == "(truncated)" && within("nanosleep"))
    });
    let (letting_in, shown_letting_in_ms) = shown(&samples, "::lets_the_signal_in");
    println!(
        "{way}: asleep {asleep_ms:.0} ms, shown {shown_asleep_ms:.0} ms in {asleep} samples; letting in {letting_in_ms:.1} ms, \
         shown {shown_letting_in_ms:.0} ms in {letting_in} samples; missed {}",
        read.count("missed_ticks")
    );
    // The answer to the request that waited is given there: one sample in each round, that stands until the next tick.
    let (ticks, missed) = (
        read.count("ticks") as f64,
        read.count("missed_ticks") as f64,
    );
    let missed_share = missed / (ticks + missed);
    let most_ms = letting_in_ms + (0.1 + missed_share) * asleep_ms;
    let ratio = shown_asleep_ms / asleep_ms;
    let is_right =
        shown_letting_in_ms < most_ms && ratio > 0.8 - missed_share && ratio < 1.1 + missed_share;
    let what = || {
        format!(
            "{way}: {shown_asleep_ms:.0} of {asleep_ms:.0} ms asleep shown, {shown_letting_in_ms:.0} ms of letting in, where {most_ms:.0} \
             would do"
        )
    };
    is_right.then_some(()).ok_or_else(what)
}

#[test]
fn a_sleep_with_the_signal_blocked_is_not_shown_where_it_is_let_in() {
    isolated(|| {
        let wrong: Vec<_> = WAYS
            .iter()
            .filter_map(|(way, sleep)| check(way, *sleep).err())
            .collect();
        assert_eq!(wrong, [""; 0]);
    });
}
