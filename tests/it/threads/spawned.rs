//! Threads that `RegisteredSpawn` spawns, and `start_hook` registers.

use std::thread::{self, Builder};

use crate::common::{Read, isolated, mark};
use gekkota::thread::{
    RegisteredSpawn, profiler_is_active_and_thread_is_registered, register_thread_once, start_hook,
};
use gekkota::{StartParams, ThreadGuard, profiler_start, unregister_thread};

/// Longer than the system's names of threads.
const LONG_NAME: &str = "decoder of cover images";

fn is_registered() -> bool {
    profiler_is_active_and_thread_is_registered()
}

fn named(name: &str) -> Builder {
    Builder::new().name(name.to_owned())
}

#[test]
fn spawn_registered_registers_under_the_whole_name() {
    isolated(|| {
        profiler_start(StartParams::default()).expect("start");
        let worker = named(LONG_NAME).spawn_registered(|| {
            mark("in the thread");
            is_registered()
        });
        assert!(worker.expect("a thread").join().expect("it does not panic"));
        let nameless = Builder::new().spawn_registered(is_registered);
        assert!(
            nameless
                .expect("a thread")
                .join()
                .expect("it does not panic")
        );
        assert_eq!(Read::of_running().markers(LONG_NAME).len(), 1);
    });
}

#[test]
fn spawn_scoped_registered_ends_the_registration_before_the_scope() {
    isolated(|| {
        profiler_start(StartParams::default()).expect("start");
        let mut was_registered = false;
        thread::scope(|scope| {
            let worker = named(LONG_NAME).spawn_scoped_registered(scope, || {
                mark("in the thread");
                was_registered = is_registered();
            });
            worker.expect("a thread");
        });
        assert!(was_registered);
        let read = Read::of_running();
        assert_eq!(read.markers(LONG_NAME).len(), 1);
        assert!(read.thread(LONG_NAME)["unregisterTime"].is_number());
    });
}

#[test]
fn register_thread_once_of_a_registered_thread_is_not_counted() {
    isolated(|| {
        profiler_start(StartParams::default()).expect("start");
        let worker = named(LONG_NAME).spawn(|| {
            register_thread_once("");
            mark("registered once");
            register_thread_once("other");
            start_hook("hook")();
            unregister_thread();
            is_registered()
        });
        assert!(!worker.expect("a thread").join().expect("it does not panic"));
        assert_eq!(Read::of_running().markers(LONG_NAME).len(), 1);
    });
}

#[test]
fn start_hook_counts_the_threads_that_it_registers() {
    isolated(|| {
        profiler_start(StartParams::default()).expect("start");
        let hook = start_hook("worker");
        let run = |hook: Box<dyn Fn() + Send>| {
            let thread = thread::spawn(move || {
                hook();
                mark("counted");
            });
            thread.join().expect("it does not panic");
        };
        run(Box::new(hook.clone()));
        let registered = hook.clone();
        run(Box::new(move || {
            let _guard = std::mem::ManuallyDrop::new(ThreadGuard::register("by itself"));
            registered();
        }));
        run(Box::new(hook));
        let read = Read::of_running();
        for name in ["worker 1", "by itself", "worker 2"] {
            assert_eq!(read.markers(name).len(), 1, "{name}");
        }
    });
}
