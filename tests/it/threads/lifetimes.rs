//! Threads may start and end at any time, and the profile has each under its name.

use std::time::Duration;

use crate::common::left_behind::status_kib;
use crate::common::{
    self, Read, isolated, mark, registered_threads_only, wait_until, work_for_cpu,
};
use gekkota::{ProfilerSession, StartParams, ThreadGuard, register_thread, unregister_thread};

/// Number of threads of which each begins after the end of the one before. If each had memory of its
/// own, they would take 180 MiB of addresses.
const SUCCESSIVE_THREADS: usize = 1000;

fn in_a_thread(body: impl FnOnce() + Send + 'static) {
    std::thread::spawn(body).join().expect("thread");
}

#[test]
fn profile_has_each_registered_thread_under_its_name() {
    isolated(|| {
        // Before the profiler is initialized.
        in_a_thread(|| {
            unregister_thread();
            register_thread("gone before the start");
        });
        let (stop, stopped) = std::sync::mpsc::channel::<()>();
        let (ready, is_ready) = std::sync::mpsc::channel::<()>();
        let early = std::thread::spawn(move || {
            let _guard = ThreadGuard::register("early");
            ready.send(()).expect("the test waits");
            while stopped.try_recv().is_err() {
                common::work(10_000);
            }
        });
        is_ready.recv().expect("the thread is registered");
        let session = ProfilerSession::start(StartParams::default()).expect("start");

        in_a_thread(|| {
            register_thread("nested");
            register_thread("nested again");
            unregister_thread();
            mark("still registered");
            unregister_thread();
            unregister_thread();
            mark("no longer registered");
            register_thread("second life");
            mark("registered again");
        });
        in_a_thread(|| {
            register_thread("short");
            wait_until("the short thread has samples", || {
                work_for_cpu(Duration::from_millis(5));
                Read::of_running().samples("short").len() > 10
            });
            // Ends without unregistering.
        });
        in_a_thread(|| {
            register_thread("panics");
            let _guard = ThreadGuard::register("panics");
            let caught = std::panic::catch_unwind(|| panic!("on purpose"));
            assert!(caught.is_err());
            mark("survived");
        });
        for _ in 0..200 {
            in_a_thread(|| {
                register_thread("one of many");
                mark("here");
            });
        }
        wait_until("the sampler has sampled the early thread", || {
            Read::from_profile(&session.snapshot().expect("profile"))
                .samples("early")
                .len()
                > 20
        });
        let read = Read::from_profile(&session.snapshot().expect("profile"));
        stop.send(()).expect("the thread waits");
        early.join().expect("thread");
        let last = Read::from_profile(&session.finish().expect("profile"));

        let markers = |name: &str| {
            read.markers(name)
                .into_iter()
                .map(|marker| marker.0)
                .collect::<Vec<_>>()
        };
        assert_eq!(markers("nested"), ["still registered"]);
        assert_eq!(markers("second life"), ["registered again"]);
        assert_eq!(markers("panics"), ["survived"]);
        assert!(
            read.samples("short").len() > 10,
            "{}",
            read.samples("short").len()
        );
        let many: Vec<_> = read
            .threads()
            .iter()
            .filter(|thread| thread["name"] == "one of many")
            .collect();
        assert_eq!(many.len(), 200);
        assert!(
            many.iter()
                .all(|thread| thread["unregisterTime"].is_number())
        );
        for unknown in ["gone before the start", "nested again"] {
            assert!(
                !read
                    .threads()
                    .iter()
                    .any(|thread| thread["name"] == unknown),
                "{unknown}"
            );
        }
        assert!(read.thread("early")["unregisterTime"].is_null());
        assert!(last.thread("early")["unregisterTime"].is_number());
        // The test harness runs the test on another thread, so the main thread is not registered.
        assert_eq!(read.threads()[0]["name"], "GeckoMain");
    });
}

#[test]
fn restarted_session_lacks_earlier_samples() {
    isolated(|| {
        let (stop, stopped) = std::sync::mpsc::channel::<()>();
        let (ready, is_ready) = std::sync::mpsc::channel::<()>();
        let busy = std::thread::spawn(move || {
            register_thread("busy");
            ready.send(()).expect("the test waits");
            while stopped.try_recv().is_err() {
                common::work(10_000);
            }
        });
        is_ready.recv().expect("the thread is registered");
        for _ in 0..20 {
            let session = ProfilerSession::start(StartParams::default()).expect("start");
            wait_until("the thread has a sample", || {
                !Read::of_running().samples("busy").is_empty()
            });
            let read = Read::from_profile(&session.finish().expect("profile"));
            let start = read.0["meta"]["profilingStartTime"]
                .as_f64()
                .expect("a time");
            let early = read
                .samples("busy")
                .into_iter()
                .find(|sample| sample.time_ms < start);
            assert!(early.is_none(), "{early:?} is before {start}");
        }
        stop.send(()).expect("the thread waits");
        busy.join().expect("thread");
    });
}

/// The memory into which a thread's stack is copied is as large as the stack. It serves the next
/// thread when that thread has ended.
#[test]
fn consecutive_threads_share_memory() {
    isolated(|| {
        let session = ProfilerSession::start(StartParams::default()).expect("start");
        in_a_thread(|| register_thread("first"));
        let before = status_kib("VmSize:");
        for _ in 0..SUCCESSIVE_THREADS {
            in_a_thread(|| {
                register_thread("in turn");
                mark("kept");
            });
        }
        let grown = status_kib("VmSize:").saturating_sub(before);
        let read = Read::from_profile(&session.finish().expect("profile"));
        assert_eq!(
            read.threads()
                .iter()
                .filter(|thread| thread["name"] == "in turn")
                .count(),
            SUCCESSIVE_THREADS
        );
        assert!(
            grown < 140_000,
            "{grown} KiB of address space for {SUCCESSIVE_THREADS} threads in turn"
        );
    });
}

#[test]
fn next_session_lacks_threads_of_an_earlier_one() {
    isolated(|| {
        let session = ProfilerSession::start(registered_threads_only()).expect("start");
        in_a_thread(|| register_thread("of the first session"));
        let first = Read::from_profile(&session.finish().expect("profile"));
        assert_eq!(first.threads().len(), 2);
        let session = ProfilerSession::start(registered_threads_only()).expect("start");
        let read = Read::from_profile(&session.finish().expect("profile"));
        assert_eq!(read.threads().len(), 1);
    });
}
