//! In a child of `fork` the profiler is inactive, and can be started.

use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use crate::common::{self, LONGEST_WAIT, Read, isolated, wait_until, work_for_cpu};
use gekkota::{ProfilerSession, StartParams};
use nix::sys::resource::{Resource, setrlimit};

/// Returns whether the profiler works in the child.
fn profiler_works_in_child() -> bool {
    if gekkota::profiler_is_active() || gekkota::profiler_get_profile().is_some() {
        return false;
    }
    gekkota::profiler_stop();
    gekkota::add_untyped_marker(
        "lost",
        gekkota::gecko_profiler_category!(Other),
        Default::default(),
    );
    // At the fork, another thread of the parent may have been registering a function.
    if gekkota::script::profiler_register_script_function("in the child", "", 1, 0).name()
        != "in the child"
    {
        return false;
    }
    let Ok(session) = ProfilerSession::start(StartParams::default()) else {
        return false;
    };
    let end = Instant::now() + LONGEST_WAIT;
    while Instant::now() < end {
        work_for_cpu(Duration::from_millis(60));
        let Ok(profile) = session.snapshot() else {
            return false;
        };
        if is_sampled(&Read::from_profile(&profile)) {
            return true;
        }
    }
    false
}

/// Returns whether the thread has samples, all of them from after the start, and the sampler has
/// reached more than 40 ticks.
fn is_sampled(read: &Read) -> bool {
    let start = read.0["meta"]["profilingStartTime"]
        .as_f64()
        .expect("a time");
    let samples = read.samples("forks");
    let ticks = samples.len() as u64 + read.count("missed_ticks");
    samples.len() > 5 && ticks > 40 && samples.iter().all(|sample| sample.time_ms >= start)
}

#[test]
fn profiler_is_inactive_in_forked_child_and_can_start() {
    isolated(|| {
        let session = ProfilerSession::start(StartParams::default()).expect("start");
        let noise: Vec<_> = (0..3)
            .map(|_| {
                std::thread::spawn(|| {
                    gekkota::register_thread("noise");
                    for _ in 0..10_000 {
                        gekkota::add_text_marker(
                            "noise",
                            gekkota::gecko_profiler_category!(Other),
                            Default::default(),
                            "text",
                        );
                        gekkota::script::profiler_register_script_function(
                            "noise",
                            "noise.script",
                            1,
                            0,
                        );
                        common::work(2_000);
                    }
                })
            })
            .collect();
        // Several threads fork at the same time, and a fork may interrupt a capture.
        let forks: Vec<_> = (0..3)
            .map(|_| {
                std::thread::spawn(|| {
                    gekkota::register_thread("forks");
                    (0..5).for_each(|_| common::assert_in_forked_child(profiler_works_in_child));
                    wait_until("the parent is sampled", || {
                        work_for_cpu(Duration::from_millis(5));
                        !Read::of_running().samples("forks").is_empty()
                    });
                })
            })
            .collect();
        for thread in forks {
            thread.join().expect("the profiler works in all children");
        }
        for thread in noise {
            thread.join().expect("thread");
        }
        let read = Read::from_profile(&session.finish().expect("profile"));
        assert!(
            !read.samples("forks").is_empty(),
            "sampling continues in the parent"
        );
        assert!(!read.markers("noise").is_empty());
    });
}

/// Streams a profile while no file can be opened, so files provide no names. Returns whether the
/// profile has samples.
fn child_streams_without_files() -> bool {
    let Ok(session) = ProfilerSession::start(StartParams::default()) else {
        return false;
    };
    wait_until("this thread is sampled", || {
        work_for_cpu(Duration::from_millis(5));
        let profile = session.snapshot().expect("a running session");
        !Read::from_profile(&profile).samples("forks").is_empty()
    });
    setrlimit(Resource::RLIMIT_NOFILE, 0, 0).expect("a lower limit");
    let profile = session.finish().expect("a running session");
    !Read::from_profile(&profile).samples("forks").is_empty()
}

#[test]
fn forked_child_streams_while_the_lock_of_backtrace_is_held() {
    isolated(|| {
        gekkota::profiler_init();
        gekkota::register_thread("forks");
        let (sender, inside) = channel();
        // Holds the crate's lock for ever, so the child inherits it locked.
        std::thread::spawn(move || {
            let function = child_streams_without_files as *mut std::ffi::c_void;
            // The crate expects a return address, and subtracts one byte.
            backtrace::resolve(function.wrapping_byte_add(1), |_| {
                let _ = sender.send(());
                loop {
                    std::thread::park();
                }
            });
        });
        inside.recv().expect("the thread is inside the crate");
        common::assert_in_forked_child(|| {
            // Kills a child that hangs, after more than `LONGEST_WAIT`.
            nix::unistd::alarm::set(240);
            child_streams_without_files()
        });
    });
}
