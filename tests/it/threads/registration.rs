//! Registration before `profiler_init` and after `profiler_shutdown`, nested, too often taken back, and on the way through a
//! session; and what may be asked of threads meanwhile.

use std::thread;

use crate::common::{self, Read, isolated, mark, wait_until};
use gekkota::process::profiler_current_process_id;
use gekkota::stack::profiler_capture_backtrace;
use gekkota::thread::{
    ThreadId, ThreadProfilingFeatures as Of, profiler_current_thread_id,
    profiler_is_active_and_thread_is_registered, profiler_is_locked_on_current_thread,
    profiler_is_main_thread, profiler_main_thread_id, profiler_other_thread_is_being_profiled,
    profiler_thread_is_being_profiled,
};
use gekkota::{
    StartParams, ThreadGuard, profiler_init, profiler_pause, profiler_pause_sampling,
    profiler_resume, profiler_resume_sampling, profiler_shutdown, profiler_start, profiler_stop,
    register_thread, unregister_thread,
};

fn start() {
    profiler_start(StartParams::default()).expect("start");
}

/// Whether the calling thread is profiled and registered.
fn known() -> (bool, bool) {
    (
        profiler_thread_is_being_profiled(Of::ANY),
        profiler_is_active_and_thread_is_registered(),
    )
}

fn in_a_thread<T: Send + 'static>(body: impl FnOnce() -> T + Send + 'static) -> T {
    thread::spawn(body).join().expect("thread")
}

#[test]
fn registration_before_init_and_after_shutdown() {
    isolated(|| {
        in_a_thread(|| {
            register_thread("before");
            assert_eq!(known(), (false, false));
            profiler_init();
            start();
            assert_eq!(known(), (true, true));
            mark("first");
            assert_eq!(Read::of_running().markers("before").len(), 1);
            profiler_shutdown();
            assert_eq!(known(), (false, false));
            unregister_thread();
            register_thread("after");
            start();
            assert_eq!(known(), (true, true));
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
fn nested_registrations_count() {
    isolated(|| {
        start();
        in_a_thread(|| {
            let outer = ThreadGuard::register("outer");
            let inner = ThreadGuard::register("inner");
            // The guards are of one registration, in whatever order they go.
            drop(outer);
            assert_eq!(known(), (true, true));
            drop(inner);
            assert_eq!(known(), (false, false));
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
fn more_unregistrations_than_registrations_are_harmless() {
    isolated(|| {
        start();
        in_a_thread(|| {
            (0..3).for_each(|_| unregister_thread());
            register_thread("once");
            assert_eq!(
                known(),
                (true, true),
                "what was taken back before does not count"
            );
            (0..3).for_each(|_| unregister_thread());
            assert_eq!(known(), (false, false));
            register_thread("again");
            assert_eq!(known(), (true, true));
        });
        profiler_stop();
    });
}

#[test]
fn a_thread_is_profiled_only_while_nothing_pauses() {
    isolated(|| {
        let ask = || {
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
            register_thread("asks");
            assert!(!ask(), "inactive");
            start();
            assert!(ask());
            profiler_pause();
            assert!(!ask(), "paused");
            // Also one that comes in the pause.
            let late = in_a_thread(move || {
                register_thread("late");
                (ask(), profiler_is_active_and_thread_is_registered())
            });
            assert_eq!(late, (false, true));
            profiler_resume();
            assert!(ask());
            profiler_pause_sampling();
            assert!(ask(), "its markers go on");
            profiler_resume_sampling();
            profiler_stop();
            assert!(!ask(), "stopped");
        });
        start();
        assert!(!in_a_thread(ask), "not registered");
        let nobody = ThreadId::from_number(i32::MAX);
        assert!(!profiler_other_thread_is_being_profiled(nobody, Of::ANY));
        profiler_stop();
    });
}

#[test]
fn threads_have_their_ids() {
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
fn unregistering_within_its_own_registration_is_seen_at_once() {
    isolated(|| {
        start();
        let (go, goes) = std::sync::mpsc::channel();
        let (tell, told) = std::sync::mpsc::channel();
        let other = thread::spawn(move || {
            register_thread("other");
            tell.send(profiler_current_thread_id())
                .expect("the test waits");
            goes.recv().expect("the test tells");
            unregister_thread();
            tell.send(profiler_current_thread_id())
                .expect("the test waits");
            goes.recv().expect("the test tells");
            profiler_capture_backtrace().is_some()
        });
        let id = told.recv().expect("registered");
        assert!(profiler_other_thread_is_being_profiled(id, Of::SAMPLING));
        go.send(()).expect("it waits");
        assert_eq!(told.recv().expect("unregistered"), id);
        assert!(!profiler_other_thread_is_being_profiled(id, Of::SAMPLING));
        go.send(()).expect("it waits");
        other.join().expect("thread");
        wait_until("the profile knows when it ended", || {
            Read::of_running().thread("other")["unregisterTime"].is_number()
        });
        profiler_stop();
    });
}

/// The thread that forks is the child's main thread.
#[test]
fn the_main_thread_is_registered_from_its_first_call_to_the_shutdown() {
    isolated(|| {
        let told = common::in_forked_child(|| {
            assert!(profiler_is_main_thread());
            let mut known_after = Vec::new();
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
                known_after.push(profiler_is_active_and_thread_is_registered());
            }
            start_elsewhere();
            known_after.push(profiler_is_active_and_thread_is_registered());
            let names = Read::of_running().thread("GeckoMain")["registerTime"].is_number();
            profiler_shutdown();
            format!("{known_after:?} {names}")
        });
        assert_eq!(told, "[false, true, false, false, true, false, true] true");
    });
}

#[test]
fn shutdowns_on_other_threads_do_not_add_to_the_main_threads_registrations() {
    isolated(|| {
        let told = common::in_forked_child(|| {
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
        assert_eq!(told, "true false");
    });
}
