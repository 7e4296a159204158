//! The application may call the profiler in its own callback of `dl_iterate_phdr`. The thread then
//! holds the loader's lock, for which the sampler waits.

use std::ffi::{c_int, c_void};
use std::sync::mpsc::channel;

use crate::common::{LONGEST_WAIT, Read, isolated, wait_until};
use gekkota::stack::{StackFeatures, profiler_capture_backtrace};
use gekkota::{ProfilerSession, StartParams, profiler_get_profile, profiler_stop};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, fork};

/// Number of the system call `futex`, with which a thread waits for a lock.
const FUTEX: &str = "202 ";

/// Calls `body` within a callback of `dl_iterate_phdr`.
fn within_loader_callback(body: fn()) {
    unsafe extern "C" fn callback(
        _: *mut libc::dl_phdr_info,
        _: usize,
        body: *mut c_void,
    ) -> c_int {
        // SAFETY: the data pointer that is passed below.
        unsafe { (*body.cast::<fn()>())() };
        1
    }
    let mut body = body;
    // SAFETY: the callback has the loader's signature, and its data outlives the call.
    let answer = unsafe { libc::dl_iterate_phdr(Some(callback), (&raw mut body).cast()) };
    assert_eq!(answer, 1);
}

/// Runs `body` within a callback of the loader, on a thread of its own. Fails if it does not return.
fn returns_within_loader_callback(body: fn()) {
    let (sender, receiver) = channel();
    let thread = std::thread::spawn(move || {
        within_loader_callback(body);
        sender.send(()).expect("the test waits");
    });
    if receiver.recv_timeout(LONGEST_WAIT).is_err() {
        eprintln!("the call did not return");
        // A normal exit would wait for the same lock.
        std::process::abort();
    }
    thread.join().expect("no panic");
}

/// Waits until the sampler waits for a lock: the loader's, because it takes no other one for long.
fn wait_for_blocked_sampler() {
    wait_until("the sampler waits for the loader", || {
        let threads = std::fs::read_dir("/proc/self/task").expect("threads");
        let read = |folder: &std::path::Path, name| {
            std::fs::read_to_string(folder.join(name)).unwrap_or_default()
        };
        threads.map_while(Result::ok).any(|thread| {
            let folder = thread.path();
            read(&folder, "comm").trim() == "SamplerThread"
                && read(&folder, "syscall").starts_with(FUTEX)
        })
    });
}

fn starts_profiles_and_stops() {
    gekkota::profiler_start(StartParams::default()).expect("start");
    wait_for_blocked_sampler();
    let backtrace = profiler_capture_backtrace().expect("memory");
    assert!(
        !backtrace
            .resolve_with(StackFeatures::NATIVE)
            .frames()
            .is_empty()
    );
    assert!(profiler_get_profile().is_some());
    // Stops the first session while its sampler is blocked.
    gekkota::profiler_start(StartParams::default()).expect("start again");
    wait_for_blocked_sampler();
    profiler_stop();
}

fn forks() {
    wait_for_blocked_sampler();
    // SAFETY: the child only exits.
    match unsafe { fork() }.expect("fork") {
        ForkResult::Child => {
            // SAFETY: ends the process without running its destructors.
            unsafe { libc::_exit(0) }
        }
        ForkResult::Parent { child } => {
            assert_eq!(waitpid(child, None), Ok(WaitStatus::Exited(child, 0)));
        }
    }
}

/// Returns after a session has samples of the calling thread.
fn sample_in_a_session() {
    gekkota::register_thread("after the callback");
    let session = ProfilerSession::start(StartParams::default()).expect("start");
    wait_until("there are samples", || {
        Read::of_running().samples("after the callback").len() > 5
    });
    session.finish().expect("profile");
}

#[test]
fn sessions_within_a_loader_callback_start_and_stop() {
    isolated(|| {
        returns_within_loader_callback(starts_profiles_and_stops);
        sample_in_a_session();
    });
}

#[test]
fn fork_within_a_loader_callback_returns() {
    isolated(|| {
        let session = ProfilerSession::start(StartParams::default()).expect("start");
        returns_within_loader_callback(forks);
        drop(session);
        sample_in_a_session();
    });
}
