//! A child of `fork` is a program like any other: the profiler is off in it and can be started.

use std::sync::mpsc::channel;
use std::time::Duration;

use crate::common::{self, Read, isolated, work_for_cpu};
use gekkota::{ProfilerSession, StartParams};

/// Uses the profiler in the child, and returns whether it works.
fn child_is_well() -> bool {
    if gekkota::profiler_is_active() || gekkota::profiler_get_profile().is_some() {
        return false;
    }
    gekkota::profiler_stop();
    gekkota::add_untyped_marker(
        "lost",
        gekkota::gecko_profiler_category!(Other),
        Default::default(),
    );
    // Another thread of the parent may have been naming one.
    if gekkota::script::profiler_register_script_function("of the child", "", 1, 0).name()
        != "of the child"
    {
        return false;
    }
    let Ok(session) = ProfilerSession::start(StartParams::default()) else {
        return false;
    };
    // On a busy machine the sampler comes late.
    (0..50).any(|_| {
        work_for_cpu(Duration::from_millis(60));
        session
            .snapshot()
            .is_ok_and(|profile| is_sampled(&Read::from_profile(&profile)))
    })
}

fn is_sampled(read: &Read) -> bool {
    let start = read.0["meta"]["profilingStartTime"]
        .as_f64()
        .expect("a time");
    let samples = read.samples("forks");
    let ticks = samples.len() as u64 + read.count("missed_ticks");
    samples.len() > 5 && ticks > 40 && samples.iter().all(|sample| sample.time_ms >= start)
}

fn fork_a_child(round: u32) {
    // SAFETY: the child calls functions that gekkota supports in a forked child.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        let well = std::panic::catch_unwind(child_is_well).unwrap_or(false);
        // SAFETY: ends the process.
        unsafe { libc::_exit(if well { 0 } else { 3 }) };
    }
    let mut status = 0;
    // SAFETY: the status is a local.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert_eq!(status, 0, "the child of round {round}");
}

#[test]
fn a_forked_child_has_the_profiler_off_and_can_start_it() {
    isolated(|| {
        let session = ProfilerSession::start(StartParams::default()).expect("start");
        let noise: Vec<_> = (0..3)
            .map(|_| {
                std::thread::spawn(|| {
                    gekkota::register_thread("noise");
                    for _ in 0..20_000 {
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
        // Several threads fork at once, and each can be in the middle of a capture.
        let forks: Vec<_> = (0..3)
            .map(|_| {
                std::thread::spawn(|| {
                    gekkota::register_thread("forks");
                    (0..10).for_each(fork_a_child);
                })
            })
            .collect();
        for thread in forks {
            thread.join().expect("all children were well");
        }
        for thread in noise {
            thread.join().expect("thread");
        }
        let read = Read::from_profile(&session.finish().expect("profile"));
        assert!(!read.samples("forks").is_empty(), "the parent goes on");
        assert!(!read.markers("noise").is_empty());
    });
}

/// Streams a profile at a time when no file can be opened, so that files provide no names.
fn child_streams_without_files() -> bool {
    let Ok(session) = ProfilerSession::start(StartParams::default()) else {
        return false;
    };
    common::wait_until("this thread is sampled", || {
        work_for_cpu(Duration::from_millis(5));
        let profile = session.snapshot().expect("a running session");
        !Read::from_profile(&profile).samples("forks").is_empty()
    });
    let no_descriptors = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the limits are a local.
    let answer = unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &no_descriptors) };
    assert_eq!(answer, 0);
    let profile = session.finish().expect("a running session");
    !Read::from_profile(&profile).samples("forks").is_empty()
}

#[test]
fn forked_child_streams_while_the_lock_of_backtrace_is_held() {
    isolated(|| {
        gekkota::profiler_init();
        gekkota::register_thread("forks");
        let (sender, inside) = channel();
        // For ever inside the crate's lock, which the child then inherits locked.
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
        // SAFETY: the child calls functions that gekkota supports in a forked child.
        let child = unsafe { libc::fork() };
        assert!(child >= 0);
        if child == 0 {
            // SAFETY: takes a number. Ends a child that hangs.
            unsafe { libc::alarm(120) };
            let is_well = std::panic::catch_unwind(child_streams_without_files).unwrap_or(false);
            // SAFETY: ends the process.
            unsafe { libc::_exit(if is_well { 0 } else { 3 }) };
        }
        let mut status = 0;
        // SAFETY: the status is a local.
        assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
        assert_eq!(status, 0, "status of the child");
    });
}
