//! What goes on from one session to the next, as stacks that a program holds and its clock do, and what must not: markers and
//! requests. And that a thread which does nothing is charged less than one that works.

use std::time::Duration;

use crate::common::{Read, Sleeper, isolated, mark, work_for_cpu};
use gekkota::stack::{ProfilerBacktrace, profiler_capture_backtrace};
use gekkota::{
    AutoProfilerTextMarker, MarkerOptions, ProfilerTime, SamplingEngine, StartParams, ThreadGuard,
    profiler_shutdown, profiler_start, profiler_stop,
};

fn start() {
    profiler_start(StartParams::default()).expect("start");
}

#[inline(never)]
fn takes_a_backtrace() -> ProfilerBacktrace {
    let backtrace = profiler_capture_backtrace().expect("memory");
    std::hint::black_box(backtrace)
}

#[test]
fn a_hundred_backtraces_outlive_the_session() {
    isolated(|| {
        // Names take their time; one in ten is asked for them.
        let are_whole = |some: Vec<ProfilerBacktrace>| {
            let mut asked = some.iter().step_by(10);
            asked.all(|backtrace| {
                backtrace
                    .resolve()
                    .to_string()
                    .contains("takes_a_backtrace")
            })
        };
        let mut held: Vec<_> = (0..20).map(|_| takes_a_backtrace()).collect();
        start();
        held.extend((0..100).map(|_| takes_a_backtrace()));
        assert!(are_whole(held.drain(..40).collect()), "in the session");
        profiler_stop();
        assert!(are_whole(held.drain(..40).collect()), "after it");
        start();
        profiler_shutdown();
        assert_eq!(held.len(), 40);
        assert!(are_whole(held), "after the shutdown");
    });
}

#[test]
fn an_interval_that_outlasts_its_session_is_in_none() {
    isolated(|| {
        let interval = || {
            let category = gekkota::gecko_profiler_category!(Other);
            AutoProfilerTextMarker::new("interval", category, MarkerOptions::default(), "text")
        };
        let _registered = ThreadGuard::register("marks");
        let names = || {
            Read::of_running()
                .markers("marks")
                .into_iter()
                .map(|marker| marker.0)
                .collect::<Vec<_>>()
        };
        assert!(interval().is_none(), "there is no session");
        start();
        let of_the_first = interval().expect("a session");
        start();
        let of_the_second = interval().expect("a session");
        drop(of_the_first);
        mark("second");
        assert_eq!(names(), ["second"]);
        drop(of_the_second);
        assert_eq!(names(), ["second", "interval"]);
        let of_none = interval();
        profiler_stop();
        drop(of_none);
    });
}

fn set_blocked(signal: i32, how: i32) {
    // SAFETY: the set is a local, filled before it is read.
    unsafe {
        let mut signals = std::mem::zeroed();
        libc::sigemptyset(&mut signals);
        libc::sigaddset(&mut signals, signal);
        assert_eq!(
            libc::pthread_sigmask(how, &signals, std::ptr::null_mut()),
            0
        );
    }
}

/// The kernel drops a signal where one of its number is pending; so a new session must not wait for another answer than the
/// one that comes.
#[test]
fn a_signal_that_is_pending_at_a_restart_costs_no_samples() {
    isolated(|| {
        let by_signals = || StartParams::default().engine(SamplingEngine::Signals);
        let asked = std::thread::spawn(move || {
            let _registered = ThreadGuard::register("blocks");
            set_blocked(libc::SIGPROF, libc::SIG_BLOCK);
            for _ in 0..3 {
                profiler_start(by_signals()).expect("start");
                work_for_cpu(Duration::from_millis(50));
            }
            set_blocked(libc::SIGPROF, libc::SIG_UNBLOCK);
            mark("answers");
            work_for_cpu(Duration::from_millis(300));
            Read::of_running()
        });
        let read = asked.join().expect("thread");
        profiler_stop();
        let since = read.markers("blocks")[0].1;
        let later = read
            .samples("blocks")
            .iter()
            .filter(|sample| sample.time_ms > since)
            .count();
        // It has run for 300 ms; where it is given up for lost, it has none of them.
        assert!(later > 100, "{later} samples since it answers");
    });
}

#[test]
fn time_goes_on_through_starts_and_stops() {
    isolated(|| {
        let mut last = ProfilerTime::now();
        let mut look = || {
            let now = ProfilerTime::now();
            assert!(now >= last, "{last:?}, then {now:?}");
            last = now;
        };
        for _ in 0..20 {
            start();
            look();
            profiler_stop();
            look();
            profiler_shutdown();
            look();
        }
    });
}

#[test]
fn an_idle_thread_is_charged_less_than_a_busy_one() {
    isolated(|| {
        let _idle = Sleeper::start("idle");
        let read = std::thread::spawn(|| {
            let _busy = ThreadGuard::register("busy");
            start();
            work_for_cpu(Duration::from_millis(100));
            Read::of_running()
        });
        let read = read.join().expect("thread");
        profiler_stop();
        let charged = |name: &str| {
            read.samples(name)
                .iter()
                .filter_map(|sample| sample.cpu_ns)
                .sum::<u64>()
        };
        assert!(
            charged("busy") > 80_000_000 && charged("idle") < 5_000_000,
            "{}, {}",
            charged("busy"),
            charged("idle")
        );
        assert!(
            read.samples("idle").len() > 50,
            "it has samples all the same"
        );
    });
}
