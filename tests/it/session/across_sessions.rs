//! What lasts from one session to the next, such as backtraces, the clock and pending signals, and
//! what does not, such as open intervals.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::{IdleThread, read_until};
use crate::common::{Read, isolated, mark, thread_cpu, wait_until, work, work_for_cpu};
use gekkota::stack::{ProfilerBacktrace, profiler_capture_backtrace};
use gekkota::{
    AutoProfilerTextMarker, MarkerOptions, ProfilerTime, StartParams, ThreadGuard,
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
fn hundred_backtraces_outlive_the_session() {
    isolated(|| {
        // Resolving names is slow, so this checks one backtrace in ten.
        let are_whole = |backtraces: Vec<ProfilerBacktrace>| {
            let mut checked = backtraces.iter().step_by(10);
            checked.all(|backtrace| {
                backtrace
                    .resolve()
                    .to_string()
                    .contains("takes_a_backtrace")
            })
        };
        let mut held: Vec<_> = (0..20).map(|_| takes_a_backtrace()).collect();
        start();
        held.extend((0..100).map(|_| takes_a_backtrace()));
        assert!(are_whole(held.drain(..40).collect()), "during the session");
        profiler_stop();
        assert!(are_whole(held.drain(..40).collect()), "after the session");
        start();
        profiler_shutdown();
        assert_eq!(held.len(), 40);
        assert!(are_whole(held), "after the shutdown");
    });
}

#[test]
fn interval_marker_that_outlasts_its_session_is_not_recorded() {
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
        assert!(interval().is_none(), "no session is running");
        start();
        let of_first = interval().expect("a session");
        start();
        let of_second = interval().expect("a session");
        drop(of_first);
        mark("second");
        assert_eq!(names(), ["second"]);
        drop(of_second);
        assert_eq!(names(), ["second", "interval"]);
        let ends_after_stop = interval();
        profiler_stop();
        drop(ends_after_stop);
    });
}

fn set_blocked(signal: i32, how: i32) {
    // SAFETY: the set is a local, and is initialized before it is read.
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

/// The kernel drops a signal while another one with the same number is pending. So the request of a
/// new session must accept the signal of an earlier session as its answer.
#[test]
fn signal_pending_at_a_restart_answers_the_new_session() {
    isolated(|| {
        static BLOCK: AtomicBool = AtomicBool::new(false);
        static IS_BLOCKED: AtomicBool = AtomicBool::new(false);
        static UNBLOCK: AtomicBool = AtomicBool::new(false);
        static END: AtomicBool = AtomicBool::new(false);
        // With a signal of this kind, the thread has no event, whose signal could be the pending one.
        let signal = libc::SIGRTMIN() + 1;
        let thread = std::thread::spawn(move || {
            let _registered = ThreadGuard::register("blocks");
            // Does not sleep, neither before it blocks the signal nor afterwards: the sampler would
            // ask for the thread's mask, and would cancel its request to a sleeping thread.
            while !BLOCK.load(Ordering::Acquire) {
                work(1000);
            }
            set_blocked(signal, libc::SIG_BLOCK);
            IS_BLOCKED.store(true, Ordering::Release);
            while !UNBLOCK.load(Ordering::Acquire) {
                work(1000);
            }
            mark("before unblocking");
            set_blocked(signal, libc::SIG_UNBLOCK);
            mark("after unblocking");
            while !END.load(Ordering::Acquire) {
                work(1000);
            }
        });
        let start = || profiler_start(StartParams::default().signal(signal)).expect("start");
        // From then on the request stays pending, because the thread neither answers nor sleeps.
        let wait_until_unanswered = || {
            read_until("the thread has not answered a request", |read| {
                read.count("unanswered_ticks") > 10
            });
        };
        start();
        read_until("the thread answers", |read| {
            let is_known = read
                .threads()
                .iter()
                .any(|thread| thread["name"] == "blocks");
            is_known && read.samples("blocks").len() > 10
        });
        BLOCK.store(true, Ordering::Release);
        wait_until("the thread blocks the signal", || {
            IS_BLOCKED.load(Ordering::Acquire)
        });
        wait_until_unanswered();
        for _ in 0..2 {
            start();
            wait_until_unanswered();
        }
        UNBLOCK.store(true, Ordering::Release);
        let marker_ms = |read: &Read, name: &str| {
            let mut markers = read.markers("blocks").into_iter();
            markers
                .find(|marker| marker.0 == name)
                .map(|marker| marker.1)
        };
        let read = read_until("the thread has 100 samples since it unblocked", |read| {
            let since = marker_ms(read, "after unblocking");
            let samples = read.samples("blocks");
            let later = samples
                .iter()
                .filter(|sample| since.is_some_and(|since| sample.time_ms > since));
            later.count() > 100
        });
        END.store(true, Ordering::Release);
        thread.join().expect("thread");
        profiler_stop();
        // The kernel delivers the pending signal before the call that unblocks it returns.
        let [before, after] = ["before unblocking", "after unblocking"]
            .map(|name| marker_ms(&read, name).expect("a marker"));
        let samples = read.samples("blocks");
        let mut times = samples.iter().map(|sample| sample.time_ms);
        assert!(
            times.any(|time| (before..=after).contains(&time)),
            "the pending signal gave no sample between {before} and {after} ms"
        );
    });
}

#[test]
fn time_never_steps_back_through_starts_and_stops() {
    isolated(|| {
        let mut last = ProfilerTime::now();
        let mut check = || {
            let now = ProfilerTime::now();
            assert!(now >= last, "{last:?}, then {now:?}");
            last = now;
        };
        for _ in 0..20 {
            start();
            check();
            profiler_stop();
            check();
            profiler_shutdown();
            check();
        }
    });
}

#[test]
fn idle_thread_is_charged_less_cpu_time_than_a_busy_one() {
    isolated(|| {
        let charged = |read: &Read, name: &str| {
            let samples = read.samples(name);
            Duration::from_nanos(samples.iter().filter_map(|sample| sample.cpu_ns).sum())
        };
        let idle = IdleThread::start("idle");
        let busy = std::thread::spawn(move || {
            let _registered = ThreadGuard::register("busy");
            let before = thread_cpu();
            start();
            let what = "the busy thread is charged 80 ms, and the idle one has 50 samples";
            let read = read_until(what, |read| {
                work_for_cpu(Duration::from_millis(10));
                charged(read, "busy") > Duration::from_millis(80) && read.samples("idle").len() > 50
            });
            (read, thread_cpu() - before)
        });
        let (read, busy_cpu) = busy.join().expect("thread");
        profiler_stop();
        let idle_cpu = idle.end();
        let [busy_charged, idle_charged] = ["busy", "idle"].map(|name| charged(&read, name));
        assert!(
            busy_charged <= busy_cpu,
            "the busy thread used {busy_cpu:?} and was charged {busy_charged:?}"
        );
        assert!(
            idle_charged <= idle_cpu,
            "the idle thread used {idle_cpu:?} and was charged {idle_charged:?}"
        );
        assert!(
            idle_charged < busy_charged,
            "{idle_charged:?}, {busy_charged:?}"
        );
    });
}
