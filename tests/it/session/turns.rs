//! Several `ProfilerSession`s in one process: one runs, the others fail or take turns.

use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::common::{in_forked_child, isolated, wait_until};
use gekkota::{
    ProfilerSession, StartError, StartParams, StreamError, profiler_is_active, profiler_start,
    profiler_stop,
};

fn params() -> StartParams {
    StartParams::default()
}

/// Waits until this number of threads of the process wait in the kernel for a lock or for a wake-up,
/// and nothing else.
fn wait_for_sleeper(thread: gekkota::thread::ThreadId) {
    let path = format!("/proc/self/task/{}/syscall", thread.to_number());
    let futex = format!("{} ", libc::SYS_futex);
    wait_until("the thread waits", || {
        std::fs::read_to_string(&path).is_ok_and(|call| call.starts_with(&futex))
    });
}

#[test]
fn second_guard_fails_and_names_the_call_of_the_first() {
    isolated(|| {
        let line = line!() + 1;
        let first = ProfilerSession::start(params()).expect("start");
        let error = std::thread::spawn(|| ProfilerSession::start(params()).map(drop))
            .join()
            .expect("no panic")
            .expect_err("the first session runs");
        let StartError::SessionRuns {
            started_at,
            is_same_thread: false,
        } = error
        else {
            panic!("{error:?}");
        };
        assert_eq!((started_at.file(), started_at.line()), (file!(), line));
        let text = error.to_string();
        let place = format!("{}:{line}:", file!());
        assert!(
            text.contains(&place) && text.contains("start_in_turn"),
            "{text}"
        );
        first.finish().expect("the first session still runs");
        drop(ProfilerSession::start(params()).expect("no session runs"));
        assert!(!profiler_is_active());
    });
}

#[test]
fn guard_of_the_same_thread_fails_instead_of_waiting_for_itself() {
    isolated(|| {
        let first = ProfilerSession::start_in_turn(params()).expect("start");
        let error = ProfilerSession::start_in_turn(params()).expect_err("it would wait for ever");
        let is_own = |error: &StartError| matches!(error, StartError::SessionRuns { is_same_thread, .. } if *is_same_thread);
        assert!(is_own(&error), "{error:?}");
        assert!(error.to_string().contains("this thread started it"));
        first.finish().expect("the first session still runs");
    });
}

#[test]
fn guards_that_take_turns_each_have_a_whole_session() {
    isolated(|| {
        const TESTS: usize = 4;
        let (running, begin) = (AtomicUsize::new(0), Barrier::new(TESTS));
        std::thread::scope(|scope| {
            for _ in 0..TESTS {
                scope.spawn(|| {
                    begin.wait();
                    for _ in 0..25 {
                        let session = ProfilerSession::start_in_turn(params()).expect("its turn");
                        assert_eq!(running.fetch_add(1, Ordering::SeqCst), 0);
                        session.snapshot().expect("the session is its own");
                        running.fetch_sub(1, Ordering::SeqCst);
                        session.finish().expect("the session is its own");
                    }
                });
            }
        });
        assert!(!profiler_is_active());
    });
}

#[test]
fn waiting_guard_goes_on_after_a_stop_by_another_call_and_after_a_panic() {
    isolated(|| {
        for panics in [false, true] {
            let (send, ids) = std::sync::mpsc::channel();
            let first = ProfilerSession::start(params()).expect("start");
            let waiter = std::thread::spawn(move || {
                let id = gekkota::thread::profiler_current_thread_id();
                send.send(id).expect("the test waits");
                let session = ProfilerSession::start_in_turn(params()).expect("its turn");
                session.finish().expect("its own session");
            });
            wait_for_sleeper(ids.recv().expect("its id"));
            if panics {
                let panicked = std::thread::spawn(move || {
                    let _session = first;
                    panic!("on purpose");
                });
                panicked.join().expect_err("it panics");
            } else {
                profiler_stop();
                assert!(matches!(first.finish(), Err(StreamError::Inactive)));
            }
            waiter.join().expect("no panic");
        }
    });
}

#[test]
fn session_of_profiler_start_is_replaced_and_replaces() {
    isolated(|| {
        profiler_start(params()).expect("start");
        let guard = ProfilerSession::start(params()).expect("it replaces the session");
        guard.snapshot().expect("its own session");
        profiler_start(params()).expect("start");
        assert!(matches!(guard.snapshot(), Err(StreamError::Inactive)));
        // The guard is there, but its session is not.
        let second = ProfilerSession::start_in_turn(params()).expect("no guard's session runs");
        drop(guard);
        second
            .finish()
            .expect("the older guard stops only its own session");
        assert!(!profiler_is_active());
    });
}

#[test]
fn failed_start_ends_its_turn() {
    isolated(|| {
        let bad = params().capacity_bytes(0);
        ProfilerSession::start(bad).expect_err("a bad value");
        drop(ProfilerSession::start_in_turn(params()).expect("nobody's turn"));
    });
}

#[test]
fn forked_child_does_not_wait_for_its_parents_guard() {
    isolated(|| {
        let (send, ids) = std::sync::mpsc::channel();
        let first = ProfilerSession::start(params()).expect("start");
        let waiter = std::thread::spawn(move || {
            send.send(gekkota::thread::profiler_current_thread_id())
                .expect("the test waits");
            drop(ProfilerSession::start_in_turn(params()).expect("its turn"));
        });
        wait_for_sleeper(ids.recv().expect("its id"));
        let found = in_forked_child(|| {
            let session = ProfilerSession::start_in_turn(params()).expect("no guard here");
            session.finish().expect("its own session");
            ProfilerSession::start(params()).map_or_else(|error| error.to_string(), |_| "ok".into())
        });
        assert_eq!(found, "ok");
        first.finish().expect("the parent's session still runs");
        waiter.join().expect("no panic");
    });
}
