//! Registration before `profiler_init`, during a session and after `profiler_shutdown`; nested
//! registrations and surplus unregistrations; and queries about threads in each of these states.

use std::thread;

use crate::common::{self, Read, isolated, mark, registered_threads_only, wait_until};
use gekkota::process::profiler_current_process_id;
use gekkota::stack::profiler_capture_backtrace;
use gekkota::thread::{
    ThreadId, ThreadProfilingFeatures as Of, profiler_current_thread_id,
    profiler_is_active_and_thread_is_registered, profiler_is_locked_on_current_thread,
    profiler_is_main_thread, profiler_main_thread_id, profiler_other_thread_is_being_profiled,
    profiler_thread_is_being_profiled,
};
use gekkota::{
    ThreadGuard, profiler_init, profiler_pause, profiler_pause_sampling, profiler_resume,
    profiler_resume_sampling, profiler_shutdown, profiler_start, profiler_stop, register_thread,
    unregister_thread,
};

fn start() {
    profiler_start(registered_threads_only()).expect("start");
}

/// Returns whether the calling thread is profiled, and whether it is registered in a session.
fn state() -> (bool, bool) {
    (
        profiler_thread_is_being_profiled(Of::ANY),
        profiler_is_active_and_thread_is_registered(),
    )
}

fn in_a_thread<T: Send + 'static>(body: impl FnOnce() -> T + Send + 'static) -> T {
    thread::spawn(body).join().expect("thread")
}

#[test]
fn registration_before_init_and_after_shutdown_takes_effect() {
    isolated(|| {
        in_a_thread(|| {
            register_thread("before");
            assert_eq!(state(), (false, false));
            profiler_init();
            start();
            assert_eq!(state(), (true, true));
            mark("first");
            assert_eq!(Read::of_running().markers("before").len(), 1);
            profiler_shutdown();
            assert_eq!(state(), (false, false));
            unregister_thread();
            register_thread("after");
            start();
            assert_eq!(state(), (true, true));
            mark("second");
            let read = Read::of_running();
            assert_eq!(read.markers("after").len(), 1);
            assert!(
                read.threads()
                    .iter()
                    .all(|thread| thread["name"] != "before")
            );
            profiler_shutdown();
            unregister_thread();
            unregister_thread();
        });
    });
}

#[test]
fn nested_registrations_are_counted() {
    isolated(|| {
        start();
        in_a_thread(|| {
            let outer = ThreadGuard::register("outer");
            let inner = ThreadGuard::register("inner");
            // Both guards hold the same registration, which ends with the last of them.
            drop(outer);
            assert_eq!(state(), (true, true));
            drop(inner);
            assert_eq!(state(), (false, false));
        });
        let read = Read::of_running();
        assert!(read.thread("outer")["unregisterTime"].is_number());
        assert!(
            read.threads()
                .iter()
                .all(|thread| thread["name"] != "inner")
        );
        profiler_stop();
    });
}

#[test]
fn surplus_unregistrations_have_no_effect() {
    isolated(|| {
        start();
        in_a_thread(|| {
            (0..3).for_each(|_| unregister_thread());
            register_thread("once");
            assert_eq!(
                state(),
                (true, true),
                "earlier surplus unregistrations count against it"
            );
            (0..3).for_each(|_| unregister_thread());
            assert_eq!(state(), (false, false));
            register_thread("again");
            assert_eq!(state(), (true, true));
        });
        profiler_stop();
    });
}

#[test]
fn thread_is_profiled_unless_profiling_is_paused() {
    isolated(|| {
        let is_profiled = || {
            let all = [Of::CPU_UTILIZATION, Of::SAMPLING, Of::MARKERS, Of::ANY];
            assert!(!profiler_thread_is_being_profiled(Of::NOT_PROFILED));
            let answers = all.map(profiler_thread_is_being_profiled);
            assert!(
                answers.iter().all(|answer| *answer == answers[0]),
                "{answers:?}"
            );
            for same in [ThreadId::UNSPECIFIED, profiler_current_thread_id()] {
                assert_eq!(
                    all.map(|of| profiler_other_thread_is_being_profiled(same, of)),
                    answers
                );
            }
            answers[0]
        };
        in_a_thread(move || {
            register_thread("caller");
            assert!(!is_profiled(), "inactive");
            start();
            assert!(is_profiled());
            profiler_pause();
            assert!(!is_profiled(), "paused");
            // Also a thread that registers during the pause.
            let late = in_a_thread(move || {
                register_thread("late");
                (is_profiled(), profiler_is_active_and_thread_is_registered())
            });
            assert_eq!(late, (false, true));
            profiler_resume();
            assert!(is_profiled());
            profiler_pause_sampling();
            assert!(is_profiled(), "markers are still recorded");
            profiler_resume_sampling();
            profiler_stop();
            assert!(!is_profiled(), "stopped");
        });
        start();
        assert!(!in_a_thread(is_profiled), "not registered");
        let unused = ThreadId::from_number(i32::MAX);
        assert!(!profiler_other_thread_is_being_profiled(unused, Of::ANY));
        profiler_stop();
    });
}

#[test]
fn thread_ids_are_those_of_the_kernel() {
    isolated(|| {
        let process = profiler_current_process_id();
        assert_eq!(process.to_number(), std::process::id() as i32);
        assert_eq!(profiler_main_thread_id().to_number(), process.to_number());
        let (own, is_main) =
            in_a_thread(|| (profiler_current_thread_id(), profiler_is_main_thread()));
        assert!(own.is_specified() && own != profiler_main_thread_id() && !is_main);
        assert!(!profiler_is_locked_on_current_thread());
    });
}

#[test]
fn unregistration_takes_effect_at_once() {
    isolated(|| {
        start();
        let (proceed, may_proceed) = std::sync::mpsc::channel();
        let (send_id, id) = std::sync::mpsc::channel();
        let other = thread::spawn(move || {
            register_thread("other");
            send_id
                .send(profiler_current_thread_id())
                .expect("the test waits");
            may_proceed.recv().expect("the test continues");
            unregister_thread();
            send_id
                .send(profiler_current_thread_id())
                .expect("the test waits");
            may_proceed.recv().expect("the test continues");
            profiler_capture_backtrace().is_some()
        });
        let registered = id.recv().expect("the thread is registered");
        assert!(profiler_other_thread_is_being_profiled(
            registered,
            Of::SAMPLING
        ));
        proceed.send(()).expect("the thread waits");
        assert_eq!(id.recv().expect("the thread is unregistered"), registered);
        assert!(!profiler_other_thread_is_being_profiled(
            registered,
            Of::SAMPLING
        ));
        proceed.send(()).expect("the thread waits");
        other.join().expect("thread");
        wait_until("the profile has the time of the unregistration", || {
            Read::of_running().thread("other")["unregisterTime"].is_number()
        });
        profiler_stop();
    });
}

/// Runs in a forked child, whose main thread is the thread that forks.
#[test]
fn main_thread_is_registered_from_its_first_call_to_the_shutdown() {
    isolated(|| {
        let found = common::in_forked_child(|| {
            assert!(profiler_is_main_thread());
            let mut states = Vec::new();
            let start_elsewhere: fn() = || in_a_thread(start);
            for step in [
                start_elsewhere,
                profiler_init,
                profiler_shutdown,
                start_elsewhere,
                start,
                profiler_stop,
            ] {
                step();
                states.push(profiler_is_active_and_thread_is_registered());
            }
            start_elsewhere();
            states.push(profiler_is_active_and_thread_is_registered());
            let names = Read::of_running().thread("GeckoMain")["registerTime"].is_number();
            profiler_shutdown();
            format!("{states:?} {names}")
        });
        assert_eq!(found, "[false, true, false, false, true, false, true] true");
    });
}

#[test]
fn shutdown_on_another_thread_keeps_the_main_threads_registration_count() {
    isolated(|| {
        let found = common::in_forked_child(|| {
            for _ in 0..3 {
                profiler_init();
                in_a_thread(profiler_shutdown);
            }
            in_a_thread(start);
            let after_others = profiler_is_active_and_thread_is_registered();
            profiler_init();
            profiler_shutdown();
            in_a_thread(start);
            let after_own = profiler_is_active_and_thread_is_registered();
            in_a_thread(profiler_shutdown);
            format!("{after_others} {after_own}")
        });
        assert_eq!(found, "true false");
    });
}
