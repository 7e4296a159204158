//! A sleeping thread is left alone, and has its samples nevertheless.

use std::io::{PipeReader, Read as _, Write as _};
use std::os::fd::AsRawFd as _;

use crate::common::{Read, isolated};
use crate::sampling::places::{Place, check_stay, is_in, samples_of_stay};
use gekkota::{ProfilerSession, StartParams};

/// Number of samples to see at each place.
const SAMPLES: usize = 20;

/// Sleeps at the place until a byte arrives, in a call that `SA_RESTART` does not restart.
#[inline(never)]
fn sleep_in_poll(place: &Place, wake_ups: &mut PipeReader) {
    place.repeat(|| {
        let mut entry = libc::pollfd {
            fd: wake_ups.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: the kernel reads and writes one local.
        if unsafe { libc::poll(&mut entry, 1, -1) } == 1 {
            wake_ups.read_exact(&mut [0]).expect("one byte");
        }
    });
}

static FIRST: Place = Place::new("first sleep");
static WORK: Place = Place::new("work");
static SECOND: Place = Place::new("second sleep");

#[test]
fn sleeping_thread_has_samples_and_gets_no_signals() {
    isolated(|| {
        let session = ProfilerSession::start(StartParams::default()).expect("start");
        let (mut wake_ups, mut wake) = std::io::pipe().expect("a pipe");
        let thread = std::thread::spawn(move || {
            gekkota::register_thread("sleeper");
            sleep_in_poll(&FIRST, &mut wake_ups);
            WORK.work();
            sleep_in_poll(&SECOND, &mut wake_ups);
        });
        let mut sleep = |place: &Place| {
            let left_alone = place.check_left_alone("sleeper", SAMPLES);
            let stay = place.release();
            wake.write_all(&[0]).expect("the thread reads");
            (left_alone, stay)
        };
        let first = sleep(&FIRST);
        WORK.release_after("sleeper", SAMPLES);
        let second = sleep(&SECOND);
        thread.join().expect("thread");
        let read = Read::from_profile(&session.finish().expect("profile"));

        let samples = read.samples("sleeper");
        for (left_alone, stay) in [first, second] {
            let asleep = check_stay(&read, &samples, stay, |sample| {
                is_in(sample, "sleep_in_poll")
            });
            let quiet = samples_of_stay(&read, &samples, left_alone);
            println!(
                "{} samples, {asleep} asleep, {} of them undisturbed",
                samples.len(),
                quiet.len()
            );
            // The samples may belong to ticks that began before the measured time.
            assert!(asleep >= SAMPLES - 1, "{asleep} samples asleep");
            assert!(
                quiet.iter().all(|sample| sample.cpu_ns == Some(0)),
                "CPU time while asleep: {quiet:?}"
            );
        }
        assert!(
            samples
                .windows(2)
                .all(|pair| pair[0].time_ms <= pair[1].time_ms)
        );
    });
}

#[inline(never)]
fn first_place(wake_ups: &mut PipeReader) {
    sleep_in_poll(&FIRST, wake_ups);
    std::hint::black_box(1);
}

/// Called after hardly any work.
#[inline(never)]
fn second_place(wake_ups: &mut PipeReader) {
    sleep_in_poll(&SECOND, wake_ups);
    std::hint::black_box(2);
}

#[test]
fn thread_that_falls_asleep_elsewhere_is_shown_there() {
    const ROUNDS: usize = 20;
    isolated(|| {
        let session = ProfilerSession::start(StartParams::default()).expect("start");
        let (mut wake_ups, mut wake) = std::io::pipe().expect("a pipe");
        let thread = std::thread::spawn(move || {
            gekkota::register_thread("moves");
            for _ in 0..ROUNDS {
                first_place(&mut wake_ups);
                second_place(&mut wake_ups);
            }
        });
        let mut stays = Vec::new();
        for _ in 0..ROUNDS {
            for (place, function) in [(&FIRST, "first_place"), (&SECOND, "second_place")] {
                stays.push((place.release_after("moves", 3), function));
                wake.write_all(&[0]).expect("the thread reads");
            }
        }
        thread.join().expect("thread");
        let read = Read::from_profile(&session.finish().expect("profile"));
        let samples = read.samples("moves");
        let checked = stays.into_iter().map(|(stay, function)| {
            check_stay(&read, &samples, stay, |sample| is_in(sample, function))
        });
        println!(
            "{} samples at {} places",
            checked.sum::<usize>(),
            2 * ROUNDS
        );
    });
}
