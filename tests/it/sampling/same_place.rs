//! A thread that falls asleep again with the same program counter and stack pointer, but through another caller, is shown
//! with the stack that it has now.

use crate::common::{Read, Sample, isolated};
use crate::unwinding::accuracy::c_code;
use gekkota::{ProfilerSession, SamplingEngine, StartParams, gecko_profiler_category};

const SOURCE: &str = include_str!("same_place.c");
/// Between two callers, a tick may be early or late.
const EDGE_MS: f64 = 10.0;

/// The first caller's sleeps begin, the second's, and they are over.
extern "C" fn mark(phase: i32) {
    let name = ["first", "second", "over"][phase as usize];
    gekkota::add_untyped_marker(name, gecko_profiler_category!(Other), Default::default());
}

/// Who is on the stack of the first caller's sleeps, and of the second's.
struct Case {
    function: &'static str,
    first: &'static [&'static str],
    second: &'static [&'static str],
}

const CASES: [Case; 2] = [
    Case {
        function: "sleeps_in_vla",
        first: &["vla_between", "vla_sleeps"],
        second: &["vla_sleeps"],
    },
    Case {
        function: "sleeps_in_vfork",
        first: &["vfork_first"],
        second: &["vfork_second"],
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

/// What is wrong with what is shown.
fn problems(library: &c_code::Library, case: &Case) -> Vec<String> {
    let function = library.function(case.function);
    let params = StartParams::default().engine(SamplingEngine::Signals);
    let session = ProfilerSession::start(params).expect("start");
    let thread = std::thread::spawn(move || {
        gekkota::register_thread("sleeps");
        function(mark as extern "C" fn(i32) as usize as u64)
    });
    assert_eq!(
        thread.join().expect("thread"),
        1,
        "{}: the places are not the same",
        case.function
    );
    let read = Read::from_profile(&session.finish().expect("profile"));
    let markers = read.markers("sleeps");
    let time_of = |name| {
        markers
            .iter()
            .find(|marker| marker.0 == name)
            .expect("it was set")
            .1
    };
    let samples = read.samples("sleeps");
    let mut problems = Vec::new();
    for (from, until, truth) in [
        ("first", "second", case.first),
        ("second", "over", case.second),
    ] {
        let (from, until) = (time_of(from) + EDGE_MS, time_of(until) - EDGE_MS);
        let within = || {
            samples
                .iter()
                .filter(|sample| sample.time_ms > from && sample.time_ms < until)
        };
        let right = within().filter(|sample| callees(sample) == truth).count();
        // Exact, or marked as truncated, or, where the thread is just between two calls, at neither.
        let is_wrong = |sample: &&Sample| {
            let found = callees(sample);
            !found.is_empty() && found != truth && !is_truncated(sample)
        };
        println!(
            "{} {truth:?}: {right} right, {} wrong, {} in all",
            case.function,
            within().filter(is_wrong).count(),
            within().count(),
        );
        if let Some(sample) = within().find(is_wrong) {
            problems.push(format!(
                "{truth:?}: {} are wrong, as {sample:?}",
                within().filter(is_wrong).count()
            ));
        }
        let (all, truncated) = (
            within().count(),
            within().filter(|sample| is_truncated(sample)).count(),
        );
        let (ticks, missed) = (
            read.count("ticks") as f64,
            read.count("missed_ticks") as f64,
        );
        let most = (until - from) * ticks / (ticks + missed);
        if (all as f64) < most / 2.0 || (right + truncated) * 2 < all {
            problems.push(format!(
                "{truth:?}: {right} right and {truncated} truncated of {all} samples in {:.0} ms, {missed} ticks missed",
                until - from
            ));
        }
    }
    problems
}

#[test]
fn a_thread_that_sleeps_in_the_same_place_by_another_caller_is_shown_with_that_caller() {
    isolated(|| {
        let folder = c_code::Folder::new();
        let path = c_code::compile(&folder, "same_place", SOURCE, &["-O1"]);
        let library = c_code::Library::load(&path);
        let problems: Vec<_> = CASES
            .iter()
            .flat_map(|case| problems(&library, case))
            .collect();
        assert!(problems.is_empty(), "{problems:#?}");
    });
}
