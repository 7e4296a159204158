//! Where one library takes the place of another, nobody's time is shown under the other's name: not what was captured of
//! the first and unwound when the second was there already, not what was sampled long before, and not what is named later.

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::common::{Read, Sample, isolated, work_for};
use crate::unwinding::accuracy::c_code;
use gekkota::stack::{ProfilerBacktrace, profiler_capture_backtrace};
use gekkota::{Features, ProfilerSession, StartParams};

/// The same code under another name, so that it lies at the same place.
const SOURCE: &str = "
#define _GNU_SOURCE
#include <time.h>
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
__attribute__((noinline)) int SLEEPS(NAME)(unsigned long us) {
    struct timespec end;
    clock_gettime(CLOCK_MONOTONIC, &end);
    end.tv_nsec += us * 1000;
    end.tv_sec += end.tv_nsec / 1000000000;
    end.tv_nsec %= 1000000000;
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &end, 0) != 0) {}
    return 3;
}
__attribute__((noinline)) int CALLS(NAME)(void (*back)(unsigned long), unsigned long number) { back(number); return 3; }
unsigned long enter_work(unsigned long rounds) { return WORKS(NAME)(rounds) + 1; }
unsigned long enter_sleep(unsigned long us) { return SLEEPS(NAME)(us) + 1; }
int acc_calls_back(void (*back)(unsigned long), unsigned long number) { return CALLS(NAME)(back, number) + 1; }
";
const INTERVAL: Duration = Duration::from_millis(40);
const TURNS: usize = 12;

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

    /// Loads one after the other, has `of_first` and `of_second` use them; whether they came to lie at one place.
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

/// What `body` does on a thread of its own, sampled.
fn sampled(params: StartParams, body: impl FnOnce() + Send) -> Vec<Sample> {
    let session = ProfilerSession::start(params).expect("start");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            gekkota::register_thread("swaps");
            body();
        });
    });
    Read::from_profile(&session.finish().expect("profile")).samples("swaps")
}

/// What was captured on the last tick of one is unwound on the first of the other; one of them works, the other does nothing.
fn captured_of_one_and_unwound_beside_the_other(first_works: bool, features: Features) {
    let libraries = Libraries::compile();
    let trial = c_code::Library::load(&libraries.first);
    let begin = Instant::now();
    trial.function("enter_work")(10_000_000);
    let rounds = (20_000_000.0 * INTERVAL.as_secs_f64() / begin.elapsed().as_secs_f64()) as u64;
    trial.close();
    let params = StartParams::default().interval(INTERVAL).features(features);
    let samples = sampled(params, || {
        let works = |library: &c_code::Library| assert!(library.function("enter_work")(rounds) > 0);
        let waits = |_: &c_code::Library| work_for(INTERVAL * 3 / 2);
        let in_place = (0..TURNS).filter(|_| match first_works {
            true => libraries.in_turn(works, waits),
            false => libraries.in_turn(waits, works),
        });
        assert!(
            in_place.count() > 0,
            "the loader never put the second where the first was"
        );
    });
    let (worker, idler) = if first_works {
        ("first", "second")
    } else {
        ("second", "first")
    };
    let of = |name: &str| count(&samples, &format!("works_in_{name} (in lib{name}.so)"));
    let cut = samples
        .iter()
        .filter(|sample| sample.stack.iter().any(|frame| frame == "(truncated)"))
        .count();
    println!(
        "{} samples, {} in {worker}, {cut} cut",
        samples.len(),
        of(worker)
    );
    assert_eq!(
        count(&samples, idler),
        0,
        "nobody ran in the {idler}: {samples:?}"
    );
    assert!(of(worker) > 0 && cut > 0, "{samples:?}");
}

/// The two stacks are equal, byte for byte.
fn asleep_in_one_and_then_in_the_other() -> bool {
    let libraries = Libraries::compile();
    let params = StartParams::default().interval(INTERVAL / 4);
    let mut in_place = false;
    let samples = sampled(params, || {
        let sleeps =
            |library: &c_code::Library| assert_eq!(library.function("enter_sleep")(400_000), 4);
        in_place = libraries.in_turn(sleeps, sleeps);
    });
    let of = |name: &str| count(&samples, &format!("sleeps_in_{name} (in lib{name}.so)"));
    let (first, second) = (of("first"), of("second"));
    println!(
        "asleep: {} samples, {first} in the first, {second} in the second",
        samples.len()
    );
    assert!(first > 10 && second > 10, "{samples:?}");
    assert!(
        first.abs_diff(second) < samples.len() / 4,
        "they slept equally long: {samples:?}"
    );
    in_place
}

fn named_after_it_was_replaced() -> bool {
    let libraries = Libraries::compile();
    let first = c_code::Library::load(&libraries.first);
    let (place, work) = (first.address("enter_work"), first.function("enter_work"));
    let session = ProfilerSession::start(StartParams::default()).expect("start");
    let thread = std::thread::spawn(move || {
        gekkota::register_thread("swaps");
        work(50_000_000);
    });
    thread.join().expect("thread");
    let profile = session.finish().expect("profile");
    let before = Read::from_profile(&profile).samples("swaps");
    assert!(count(&before, "works_in_first") > 5, "{before:?}");
    first.close();
    let second = c_code::Library::load(&libraries.second);
    if second.address("enter_work") != place {
        second.close();
        return false;
    }
    let after = Read::from_profile(&profile).samples("swaps");
    assert_eq!(count(&after, "in_second"), 0, "{after:?}");
    second.close();
    true
}

static TAKEN: Mutex<Option<ProfilerBacktrace>> = Mutex::new(None);

extern "C" fn take_backtrace(_: u64) {
    *TAKEN.lock().expect("nobody panics with it") = profiler_capture_backtrace();
}

fn resolved_after_it_was_replaced() -> bool {
    let libraries = Libraries::compile();
    libraries.in_turn(
        |first| first.calls_back()(take_backtrace, 0),
        |_| {
            let taken = TAKEN.lock().expect("nobody panics with it").take();
            let stack = taken.expect("a backtrace").resolve();
            assert!(
                !stack.to_string().contains("in_second") && stack.is_truncated(),
                "{stack}"
            );
        },
    )
}

/// The loader puts a library where it likes, nearly always where the one before was.
fn until_in_place(scenario: fn() -> bool) {
    assert!((0..20).any(|_| scenario()), "never in the same place");
}

#[test]
fn what_was_taken_in_a_replaced_library_is_not_resolved_in_the_other() {
    isolated(|| until_in_place(resolved_after_it_was_replaced));
}

#[test]
fn what_was_captured_in_a_replaced_library_is_not_unwound_in_the_other() {
    isolated(|| captured_of_one_and_unwound_beside_the_other(true, Features::default_set()));
}

#[test]
fn what_was_captured_before_a_replacing_library_worked_is_not_unwound_in_it() {
    isolated(|| captured_of_one_and_unwound_beside_the_other(false, Features::default_set()));
}

#[test]
fn an_innermost_address_in_a_replaced_library_is_not_the_others() {
    isolated(|| captured_of_one_and_unwound_beside_the_other(true, Features::CPU));
}

#[test]
fn sleep_in_a_replaced_library_is_not_the_others() {
    isolated(|| until_in_place(asleep_in_one_and_then_in_the_other));
}

#[test]
fn a_sample_of_a_replaced_library_is_not_named_by_the_other() {
    isolated(|| until_in_place(named_after_it_was_replaced));
}
