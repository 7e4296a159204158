//! Forks: children that check that the profiler is off in them, children that profile themselves
//! and may close all descriptors during their session, and children that execute another program.
//! Each must succeed within a time limit.

use std::time::{Duration, Instant};

use gekkota::profile::{Format, SnapshotOptions, Symbolicate};
use gekkota::{ProfilerSession, StartParams};

use crate::crew::Context;
use crate::host_files::HostFiles;
use crate::work::spend_cpu;
use crate::{children, control, gate, tally};

const PATIENCE: Duration = Duration::from_secs(30);
/// Pause between forks. A fork holds the profiler's locks while the kernel copies the page tables,
/// which takes some milliseconds here. Without a pause, forks would keep the sampler from running.
const PAUSE: Duration = Duration::from_millis(50);

/// A child's result, which is its exit code.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(i32)]
enum Verdict {
    Well = 0,
    WasActive = 3,
    HadProfile = 4,
    DidNotStart = 5,
    DidNotFinish = 6,
    DidNotWrite = 7,
    NotJson = 8,
    /// A captured sample is missing from the profile.
    LostSamples = 9,
    Panicked = 10,
    DidNotExecute = 11,
    /// The child's sampler did not get to run, or none of its signals was answered.
    NothingCaptured = 12,
    /// The profiler has used or closed a file that the child has opened.
    DamagedFile = 13,
}

fn look() -> Verdict {
    if gekkota::profiler_is_active() {
        return Verdict::WasActive;
    }
    if gekkota::profiler_get_profile().is_some() {
        return Verdict::HadProfile;
    }
    gekkota::profiler_stop();
    Verdict::Well
}

/// Profiles the child. If `closes`, the child closes all descriptors during the session.
fn look_and_profile(name: &str, closes: bool) -> Verdict {
    let seen = look();
    if seen != Verdict::Well {
        return seen;
    }
    let params = StartParams::default().interval(Duration::from_micros(100));
    let Ok(session) = ProfilerSession::start(params) else {
        return Verdict::DidNotStart;
    };
    let start = Instant::now();
    // The child's sampler competes with all other threads for a processor.
    let mut captured = 0;
    while captured == 0 && start.elapsed() < PATIENCE / 2 {
        spend_cpu(Duration::from_millis(20));
        let Ok(profile) = session.snapshot() else {
            return Verdict::DidNotFinish;
        };
        captured = control::captured(&profile);
    }
    // SAFETY: the child uses no descriptor of the storm.
    let files = closes.then(|| unsafe { HostFiles::replace_all() });
    spend_cpu(Duration::from_millis(2));
    let Ok(profile) = session.finish() else {
        return Verdict::DidNotFinish;
    };
    let checked = files.map_or(Ok(()), |files| files?.check("in a forked child"));
    if let Err(problem) = checked {
        eprintln!("storm: {problem}");
        return Verdict::DamagedFile;
    }
    let mut text = Vec::new();
    let options = SnapshotOptions::default().symbolicate(Symbolicate::No);
    if profile
        .write_with(Format::Gecko, &mut text, &options)
        .is_err()
    {
        return Verdict::DidNotWrite;
    }
    let Ok(profile) = serde_json::from_slice::<serde_json::Value>(&text) else {
        return Verdict::NotJson;
    };
    let threads = profile["threads"].as_array();
    let own = threads
        .into_iter()
        .flatten()
        .find(|thread| thread["name"] == name);
    let samples = own
        .and_then(|thread| thread["samples"]["data"].as_array())
        .map_or(0, Vec::len);
    match (captured, samples) {
        (_, 1..) => Verdict::Well,
        (0, 0) => Verdict::NothingCaptured,
        (1.., 0) => Verdict::LostSamples,
    }
}

fn execute() -> Verdict {
    let program = c"/bin/true";
    let arguments = [program.as_ptr(), std::ptr::null()];
    // SAFETY: the program's name and the list of arguments are null-terminated.
    unsafe { libc::execv(program.as_ptr(), arguments.as_ptr()) };
    Verdict::DidNotExecute
}

/// Forks. The child exits with the result of `body`.
fn fork(body: impl FnOnce() -> Verdict) -> libc::pid_t {
    // SAFETY: the fork handlers of glibc and of the profiler let the child call any function, which
    // is what this worker tests.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "fork: {}", std::io::Error::last_os_error());
    if child == 0 {
        let verdict = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body))
            .unwrap_or(Verdict::Panicked);
        // SAFETY: the call ends the process.
        unsafe { libc::_exit(verdict as i32) };
    }
    child
}

/// Waits for a child to succeed.
fn expect_well(child: libc::pid_t, what: &str) {
    let status = children::wait(child, what, PATIENCE, || {});
    assert_eq!(
        status, 0,
        "{what}: the child's status, which is 256 times its exit code, a `Verdict`"
    );
}

pub fn fork_worker(context: &mut Context) {
    let name = context.post.name.clone();
    while context.goes_on() {
        std::thread::sleep(PAUSE);
        match context.random.below(8) {
            0 => {
                let closes = context.random.once_in(2);
                let profile = || fork(|| look_and_profile(&name, closes));
                let child = gate::with_descriptors(|| gate::without_loader_calls(profile));
                expect_well(child, "a child that profiles");
                tally::FORKS_PROFILING.one();
            }
            1..=2 => {
                let child = gate::with_descriptors(|| fork(execute));
                expect_well(child, "a child that executes");
                tally::FORKS_EXECUTING.one();
            }
            _ => {
                let child = fork(look);
                expect_well(child, "a child that checks the profiler");
                tally::FORKS_WILD.one();
            }
        }
    }
}
