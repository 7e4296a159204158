//! When one library replaces another at the same place, no sample of one is shown with the names of
//! the other: neither a capture of the first that is unwound when the second is loaded, nor an
//! older sample, nor one that gets its names later.

use std::io::Write as _;
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::common::{Read, Sample, isolated, wait_until, work};
use crate::sampling::places::{Place, is_in, samples_of_stay};
use crate::unwinding::accuracy::c_code;
use gekkota::stack::{ProfilerBacktrace, profiler_capture_backtrace};
use gekkota::{Features, ProfilerSession, StartParams, profiler_get_buffer_info};

/// The code of both libraries. Only the names differ, so each function has the same offset in both.
const SOURCE: &str = "
#define _GNU_SOURCE
#include <unistd.h>
#define WORKS_(name) works_in_##name
#define WORKS(name) WORKS_(name)
#define SLEEPS_(name) sleeps_in_##name
#define SLEEPS(name) SLEEPS_(name)
#define CALLS_(name) calls_in_##name
#define CALLS(name) CALLS_(name)
__attribute__((noinline)) unsigned long WORKS(NAME)(unsigned long rounds) {
    volatile unsigned long value = rounds;
    while (rounds-- > 0) value = value * 31 + rounds;
    return value;
}
__attribute__((noinline)) int SLEEPS(NAME)(unsigned long descriptor) {
    char byte;
    while (read((int)descriptor, &byte, 1) != 1) {}
    return 3;
}
__attribute__((noinline)) int CALLS(NAME)(void (*back)(unsigned long), unsigned long number) { back(number); return 3; }
unsigned long enter_work(unsigned long rounds) { return WORKS(NAME)(rounds) + 1; }
unsigned long enter_sleep(unsigned long descriptor) { return SLEEPS(NAME)(descriptor) + 1; }
int acc_calls_back(void (*back)(unsigned long), unsigned long number) { return CALLS(NAME)(back, number) + 1; }
";
/// Sampling interval: long enough to replace the libraries between a capture and the next tick.
const INTERVAL: Duration = Duration::from_millis(20);
/// Minimum and maximum number of replacements.
const MIN_TURNS: usize = 12;
const MAX_TURNS: usize = 1000;
/// Number of samples to see of each sleep.
const SAMPLES: usize = 10;
const THREAD: &str = "replaces libraries";

struct Libraries {
    _folder: c_code::Folder,
    first: PathBuf,
    second: PathBuf,
}

impl Libraries {
    fn compile() -> Self {
        let folder = c_code::Folder::new();
        let compile = |name: &str| {
            c_code::compile(&folder, name, SOURCE, &["-O1", &format!("-DNAME={name}")])
        };
        Self {
            first: compile("first"),
            second: compile("second"),
            _folder: folder,
        }
    }

    /// Loads the first library for `of_first`, then the second for `of_second`. Returns whether
    /// both were loaded at the same place.
    fn in_turn(
        &self,
        of_first: impl Fn(&c_code::Library),
        of_second: impl Fn(&c_code::Library),
    ) -> bool {
        let turn = |path: &Path, body: &dyn Fn(&c_code::Library)| {
            let library = c_code::Library::load(path);
            body(&library);
            let place = library.address("enter_work") as usize;
            library.close();
            place
        };
        turn(&self.first, &of_first) == turn(&self.second, &of_second)
    }
}

fn count(samples: &[Sample], name: &str) -> usize {
    samples
        .iter()
        .filter(|sample| sample.stack.iter().any(|frame| frame.contains(name)))
        .count()
}

/// Number of samples in the library, except in the functions that the loader runs.
fn count_of_library(samples: &[Sample], name: &str) -> usize {
    const RUN_BY_LOADER: [&str; 6] = [
        "_init",
        "_fini",
        "frame_dummy",
        "register_tm_clones",
        "deregister_tm_clones",
        "__do_global_dtors_aux",
    ];
    let library = format!("lib{name}.so");
    let is_ours = |frame: &String| {
        let function = frame.split(" (in ").next().unwrap_or_default();
        (frame.contains(&library) || frame.contains(&format!("_in_{name}")))
            && !RUN_BY_LOADER.contains(&function)
    };
    let has_ours = |sample: &&Sample| sample.stack.iter().any(is_ours);
    samples.iter().filter(has_ours).count()
}

/// Runs `body` on a new thread while `control` runs on this thread. Returns the session's profile.
fn profile_of(params: StartParams, body: impl FnOnce() + Send, control: impl FnOnce()) -> Read {
    let session = ProfilerSession::start(params).expect("start");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            gekkota::register_thread(THREAD);
            body();
        });
        control();
    });
    Read::from_profile(&session.finish().expect("profile"))
}

/// Repeats `body` until the sampler has finished three more ticks. So two of them have also begun
/// during this call: the later one collects the capture of the earlier one.
fn for_three_ticks(body: impl Fn()) {
    let ticks = || profiler_get_buffer_info().expect("active").overheads.count;
    let begin = ticks();
    while ticks() < begin + 3 {
        body();
    }
}

/// Number of samples in the function of this library that works.
fn count_of_work(samples: &[Sample], library: &str) -> usize {
    count(samples, &format!("works_in_{library} (in lib{library}.so)"))
}

fn count_of_truncated(samples: &[Sample]) -> usize {
    count(samples, "(truncated)")
}

/// Returns whether the running session has both a sample of the work in this library and a truncated
/// stack.
fn has_work_and_truncated_stack(library: &str) -> bool {
    let text = gekkota::profiler_get_profile().expect("a session runs");
    let samples = Read::from_text(&text).samples(THREAD);
    count_of_work(&samples, library) > 0 && count_of_truncated(&samples) > 0
}

/// A capture from the last tick of one library is unwound on the first tick of the other. The
/// thread works in one library, and not in the other.
fn captured_of_one_and_unwound_beside_the_other(first_works: bool, features: Features) {
    let libraries = Libraries::compile();
    let params = StartParams::default().interval(INTERVAL).features(features);
    let (worker, idler) = if first_works {
        ("first", "second")
    } else {
        ("second", "first")
    };
    let body = || {
        let works = |library: &c_code::Library| {
            let enter_work = library.function("enter_work");
            for_three_ticks(|| assert!(enter_work(1_000_000) > 0));
        };
        let waits = |_: &c_code::Library| for_three_ticks(|| _ = work(1000));
        let (mut turns, mut in_place) = (0, 0);
        while turns < MIN_TURNS || in_place == 0 || !has_work_and_truncated_stack(worker) {
            assert!(
                turns < MAX_TURNS,
                "{in_place} of {turns} libraries were at the same place"
            );
            turns += 1;
            in_place += usize::from(match first_works {
                true => libraries.in_turn(works, waits),
                false => libraries.in_turn(waits, works),
            });
        }
        println!("{turns} turns, {in_place} of them at the same place");
    };
    let samples = profile_of(params, body, || {}).samples(THREAD);
    let of_worker = count_of_work(&samples, worker);
    let truncated = count_of_truncated(&samples);
    println!(
        "{} samples, {of_worker} in {worker}, {truncated} truncated",
        samples.len(),
    );
    assert_eq!(
        count_of_library(&samples, idler),
        0,
        "the thread did not work in the {idler}: {samples:?}"
    );
    assert!(of_worker > 0 && truncated > 0, "{samples:?}");
}

/// Sleeps in one library and then in the other, with stacks that are equal, byte for byte.
fn asleep_in_one_and_then_in_the_other() -> bool {
    static ASLEEP: Place = Place::new("asleep");
    let libraries = Libraries::compile();
    let params = StartParams::default().interval(Duration::from_millis(1));
    let (wake_ups, mut wake) = std::io::pipe().expect("a pipe");
    let is_in_place = AtomicBool::new(false);
    let body = || {
        let sleeps = |library: &c_code::Library| {
            let enter_sleep = library.function("enter_sleep");
            ASLEEP.repeat(|| assert_eq!(enter_sleep(wake_ups.as_raw_fd() as u64), 4));
        };
        is_in_place.store(libraries.in_turn(sleeps, sleeps), Ordering::Relaxed);
    };
    let mut stays = Vec::new();
    let read = profile_of(params, body, || {
        for _ in 0..2 {
            // The thread sleeps throughout this time.
            stays.push(ASLEEP.check_left_alone(THREAD, SAMPLES));
            ASLEEP.release();
            wake.write_all(&[0]).expect("the thread reads");
        }
    });
    let samples = read.samples(THREAD);
    for (name, stay) in ["first", "second"].into_iter().zip(stays) {
        let function = format!("sleeps_in_{name} (in lib{name}.so)");
        let within = samples_of_stay(&read, &samples, stay);
        println!("asleep: {} samples in the {name}", within.len());
        assert!(within.len() >= SAMPLES - 1, "{samples:?}");
        assert!(
            within.iter().all(|sample| is_in(sample, &function)),
            "the thread slept in the {name}: {within:?}"
        );
    }
    is_in_place.into_inner()
}

fn named_after_it_was_replaced() -> bool {
    static WORKING: Place = Place::new("working");
    let libraries = Libraries::compile();
    let first = c_code::Library::load(&libraries.first);
    let (place, enter_work) = (first.address("enter_work"), first.function("enter_work"));
    let session = ProfilerSession::start(StartParams::default()).expect("start");
    let thread = std::thread::spawn(move || {
        gekkota::register_thread(THREAD);
        WORKING.repeat(|| assert!(enter_work(1_000_000) > 0));
    });
    WORKING.wait_for_samples(THREAD, SAMPLES);
    wait_until("there are samples in the library", || {
        let text = gekkota::profiler_get_profile().expect("a session runs");
        count(&Read::from_text(&text).samples(THREAD), "works_in_first") > 5
    });
    WORKING.release();
    thread.join().expect("thread");
    let profile = session.finish().expect("profile");
    let before = Read::from_profile(&profile).samples(THREAD);
    assert!(count(&before, "works_in_first") > 5, "{before:?}");
    first.close();
    let second = c_code::Library::load(&libraries.second);
    if second.address("enter_work") != place {
        second.close();
        return false;
    }
    let after = Read::from_profile(&profile).samples(THREAD);
    assert_eq!(count(&after, "in_second"), 0, "{after:?}");
    second.close();
    true
}

static TAKEN: Mutex<Option<ProfilerBacktrace>> = Mutex::new(None);

extern "C" fn take_backtrace(_: u64) {
    *TAKEN.lock().expect("no panic") = profiler_capture_backtrace();
}

fn resolved_after_it_was_replaced() -> bool {
    let libraries = Libraries::compile();
    libraries.in_turn(
        |first| first.calls_back()(take_backtrace, 0),
        |_| {
            let taken = TAKEN.lock().expect("no panic").take();
            let stack = taken.expect("a backtrace").resolve();
            assert!(
                !stack.to_string().contains("in_second") && stack.is_truncated(),
                "{stack}"
            );
        },
    )
}

/// Repeats the scenario until the loader puts the second library where the first one was. It nearly
/// always does.
fn until_in_place(scenario: fn() -> bool) {
    assert!((0..20).any(|_| scenario()), "never in the same place");
}

#[test]
fn backtrace_of_a_replaced_library_is_not_resolved_in_the_other() {
    isolated(|| until_in_place(resolved_after_it_was_replaced));
}

#[test]
fn capture_of_a_replaced_library_is_not_unwound_in_the_other() {
    isolated(|| captured_of_one_and_unwound_beside_the_other(true, Features::default_set()));
}

#[test]
fn capture_from_before_the_other_library_works_is_not_unwound_in_it() {
    isolated(|| captured_of_one_and_unwound_beside_the_other(false, Features::default_set()));
}

#[test]
fn innermost_address_in_a_replaced_library_is_not_in_the_other() {
    isolated(|| captured_of_one_and_unwound_beside_the_other(true, Features::CPU));
}

#[test]
fn sleep_in_a_replaced_library_is_not_in_the_other() {
    isolated(|| until_in_place(asleep_in_one_and_then_in_the_other));
}

#[test]
fn sample_of_a_replaced_library_has_no_name_of_the_other() {
    isolated(|| until_in_place(named_after_it_was_replaced));
}
