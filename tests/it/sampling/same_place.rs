//! A thread that falls asleep again with the same program counter and stack pointer, but through
//! another caller, is shown with its new stack.

use std::sync::atomic::{AtomicI32, Ordering};

use crate::common::{Read, Sample, isolated, wait_until};
use crate::sampling::places::{Stay, check_stay, samples_of_stay};
use crate::unwinding::accuracy::c_code;
use gekkota::{ProfilerSession, ProfilerTime, StartParams};

const SOURCE: &str = include_str!("same_place.c");
/// Number of samples to see of each caller's sleeps.
const SAMPLES: usize = 100;
const THREAD: &str = "sleeps";

/// What the C code reads and writes: the phase that it is in, and the number of phases that may
/// end.
static CONTROL: [AtomicI32; 2] = [AtomicI32::new(0), AtomicI32::new(0)];

/// The callees on the stack of the first caller's sleeps, and of the second's.
struct Case {
    function: &'static str,
    phases: [&'static [&'static str]; 2],
}

const CASES: [Case; 2] = [
    Case {
        function: "sleeps_in_vla",
        phases: [&["vla_between", "vla_sleeps"], &["vla_sleeps"]],
    },
    Case {
        function: "sleeps_in_vfork",
        phases: [&["vfork_first"], &["vfork_second"]],
    },
];
const CALLEES: [&str; 4] = ["vla_between", "vla_sleeps", "vfork_first", "vfork_second"];

fn callees(sample: &Sample) -> Vec<&str> {
    let known = |frame: &String| CALLEES.into_iter().find(|callee| frame.contains(callee));
    sample.stack.iter().filter_map(known).collect()
}

fn is_truncated(sample: &Sample) -> bool {
    sample
        .stack
        .first()
        .is_some_and(|frame| frame == "(truncated)")
}

/// Returns whether the stack is exact, or truncated. Between two sleeps, the thread is in none of
/// the callees.
fn is_right_or_between(sample: &Sample, truth: &[&str]) -> bool {
    let found = callees(sample);
    found.is_empty() || found == truth || is_truncated(sample)
}

/// Waits until the C code is in this phase, and until there are samples of its sleeps. Then ends
/// the phase.
fn sample_phase(number: i32, truth: &[&str], thread_has_ended: &dyn Fn() -> bool) -> Stay {
    wait_until("the thread is in the phase", || {
        assert!(!thread_has_ended(), "the stack pointers are not the same");
        CONTROL[0].load(Ordering::Acquire) == number
    });
    let from = ProfilerTime::now();
    let samples_since = |read: &Read, is_counted: &dyn Fn(&Sample) -> bool| {
        let until = ProfilerTime::now();
        let samples = read.samples(THREAD);
        let within = samples_of_stay(read, &samples, Stay { from, until });
        within
            .into_iter()
            .filter(|&sample| is_counted(sample))
            .count()
    };
    wait_until("the phase has samples", || {
        samples_since(&Read::of_running(), &|_| true) >= SAMPLES
    });
    // Names cost more, so they are looked up only when there are enough samples.
    wait_until("the phase has samples of its sleeps", || {
        let text = gekkota::profiler_get_profile().expect("a session runs");
        let is_asleep = |sample: &Sample| callees(sample) == truth || is_truncated(sample);
        samples_since(&Read::from_text(&text), &is_asleep) >= SAMPLES / 2
    });
    let until = ProfilerTime::now();
    CONTROL[1].store(number, Ordering::Release);
    Stay { from, until }
}

fn check(library: &c_code::Library, case: &Case) {
    CONTROL
        .iter()
        .for_each(|number| number.store(0, Ordering::Release));
    let function = library.function(case.function);
    let params = StartParams::default();
    let session = ProfilerSession::start(params).expect("start");
    let thread = std::thread::spawn(move || {
        gekkota::register_thread(THREAD);
        function(CONTROL.as_ptr() as u64)
    });
    let has_ended = || thread.is_finished();
    let stays = [
        sample_phase(1, case.phases[0], &has_ended),
        sample_phase(2, case.phases[1], &has_ended),
    ];
    assert_eq!(thread.join().expect("thread"), 1);
    let read = Read::from_profile(&session.finish().expect("profile"));
    let samples = read.samples(THREAD);
    for (truth, stay) in case.phases.into_iter().zip(stays) {
        let checked = check_stay(&read, &samples, stay, |sample| {
            is_right_or_between(sample, truth)
        });
        println!("{} {truth:?}: {checked} samples", case.function);
    }
}

#[test]
fn sleep_at_the_same_place_through_another_caller_is_shown_with_that_caller() {
    isolated(|| {
        let folder = c_code::Folder::new();
        let path = c_code::compile(&folder, "same_place", SOURCE, &["-O1"]);
        let library = c_code::Library::load(&path);
        CASES.iter().for_each(|case| check(&library, case));
    });
}
