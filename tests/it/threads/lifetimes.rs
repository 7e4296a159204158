//! Threads come and go as they like, and the profile knows each by its name.

use std::time::Duration;

use crate::common::left_behind::status_kib;
use crate::common::{self, Read, isolated, mark, wait_until, work_for_cpu};
use gekkota::{ProfilerSession, StartParams, ThreadGuard, register_thread, unregister_thread};

fn in_a_thread(body: impl FnOnce() + Send + 'static) {
    std::thread::spawn(body).join().expect("thread");
}

#[test]
fn threads_are_known_from_registration_to_the_profile() {
    isolated(|| {
        // Registered before there is anything, and twice.
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
            mark("not registered any more");
            register_thread("second life");
            mark("registered anew");
        });
        in_a_thread(|| {
            register_thread("short");
            work_for_cpu(Duration::from_millis(50));
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
        assert_eq!(markers("second life"), ["registered anew"]);
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
        // The test harness runs this on a thread of its own, so nobody has registered the main thread.
        assert_eq!(read.threads()[0]["name"], "GeckoMain");

        a_thread_of_an_earlier_session_is_not_in_the_next();
        a_restart_shows_nothing_of_the_session_before();
        threads_in_turn_share_their_memory();
    });
}

fn a_restart_shows_nothing_of_the_session_before() {
    let (stop, stopped) = std::sync::mpsc::channel::<()>();
    let (tell, told) = std::sync::mpsc::channel::<()>();
    let busy = std::thread::spawn(move || {
        register_thread("busy");
        tell.send(()).expect("somebody listens");
        while stopped.try_recv().is_err() {
            common::work(10_000);
        }
    });
    told.recv().expect("it is registered");
    for _ in 0..20 {
        let session = ProfilerSession::start(StartParams::default()).expect("start");
        std::thread::sleep(Duration::from_millis(5));
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
}

/// A place to copy stacks to is as large as the stack, and goes to the next thread when one ends.
fn threads_in_turn_share_their_memory() {
    let session = ProfilerSession::start(StartParams::default()).expect("start");
    in_a_thread(|| register_thread("first"));
    let before = status_kib("VmSize:");
    for _ in 0..2000 {
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
        2000
    );
    assert!(
        grown < 500_000,
        "{grown} KiB of address space for 2000 threads in turn"
    );
}

fn a_thread_of_an_earlier_session_is_not_in_the_next() {
    let session = ProfilerSession::start(StartParams::default()).expect("start");
    let read = Read::from_profile(&session.finish().expect("profile"));
    assert_eq!(read.threads().len(), 1);
}
