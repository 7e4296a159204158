//! A session takes none of the application's descriptors, and returns to a thread that the system
//! has hidden for a time.

use std::fs::File;

use nix::sys::resource::{Resource, getrlimit, setrlimit};

use super::Sampled;
use crate::common::{Read, Sleeper, become_nobody, in_forked_child, isolated, wait_until};
use gekkota::{ProfilerSession, StartParams};

/// Number of descriptors that the process may have.
const LIMIT: u64 = 80;
/// Number of sleeping threads, more than the process may have descriptors.
const SLEEPERS: usize = 100;

/// Returns how many files the application can open.
fn free_descriptors() -> usize {
    let open = || File::open("/proc/self/exe").ok();
    std::iter::from_fn(open).collect::<Vec<_>>().len()
}

#[test]
fn session_takes_no_descriptor_of_the_host() {
    isolated(|| {
        let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).expect("the limits");
        setrlimit(Resource::RLIMIT_NOFILE, LIMIT, hard).expect("a lower limit");
        let before = free_descriptors();
        let sampled = Sampled::start(SLEEPERS);
        let beside = free_descriptors();
        println!("{before} free descriptors before the session, {beside} beside it");
        assert_eq!(beside, before);
        drop(sampled.sleepers);
        sampled.session.finish().expect("profile");
    });
}

fn set_dumpable(is_dumpable: bool) {
    let (operation, value) = (libc::PR_SET_DUMPABLE, libc::c_ulong::from(is_dumpable));
    // SAFETY: sets a flag of the process.
    assert_eq!(unsafe { libc::prctl(operation, value) }, 0);
}

/// The kernel hides where the threads of a process sleep that is not dumpable.
fn hide_threads_for_a_time() -> String {
    become_nobody();
    set_dumpable(false);
    let params = StartParams::default().filters(["sleeper"]);
    let session = ProfilerSession::start(params).expect("start");
    let sleeper = Sleeper::start("sleeper");
    wait_until("the thread is hidden", || {
        Read::of_running().count("hidden_threads") > 0
    });
    set_dumpable(true);
    // The sampler looks at a thread again after it has run.
    wait_until("a thread that runs and sleeps is read from outside", || {
        sleeper.wake();
        Read::of_running().count("remote_samples") > 0
    });
    let read = Read::from_profile(&session.finish().expect("profile"));
    format!("{} hidden threads", read.count("hidden_threads"))
}

#[test]
fn hidden_thread_is_read_from_outside_once_the_system_reports_it() {
    isolated(|| {
        assert_eq!(in_forked_child(hide_threads_for_a_time), "1 hidden threads");
    });
}
