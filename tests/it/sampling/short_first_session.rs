//! A session that ends during the engine trial leaves the trial to the next session.

use std::time::{Duration, Instant};

use crate::common::{Read, in_forked_child, isolated};
use gekkota::{ProfilerSession, StartParams};

/// Number of processes that show whether a trial gives a result on this machine. A process runs one
/// trial, which may give no result on a busy machine.
const PROCESSES: usize = 8;
/// Maximum number of processes until the trial of a second session gives a result.
const MAX_PROCESSES: usize = 200;

/// Runs a session for `time`, or until it has the result of a trial if `until_found` is true.
/// Returns whether it has one.
fn session_of(time: Duration, until_found: bool) -> bool {
    let session = ProfilerSession::start(StartParams::default()).expect("start");
    let has_trial = |read: Read| {
        let log = &read.0["profilingLog"][std::process::id().to_string()];
        !log["engineTrial"].is_null()
    };
    let end = Instant::now() + time;
    while Instant::now() < end && !(until_found && has_trial(Read::of_running())) {
        std::thread::sleep(Duration::from_millis(1));
    }
    has_trial(Read::from_profile(&session.finish().expect("profile")))
}

/// Runs one session after another. Returns which of them has the result of a trial.
fn found_by_sessions(first: Option<Duration>) -> String {
    let by_first = first.is_some_and(|time| session_of(time, false));
    let by_second = session_of(Duration::from_millis(500), true);
    format!(
        "{}{}",
        if by_first { "first " } else { "" },
        if by_second { "second" } else { "" }
    )
}

#[test]
fn trial_that_a_short_session_cuts_is_repeated_by_the_next() {
    isolated(|| {
        let find = |first| in_forked_child(|| found_by_sessions(first));
        let alone: Vec<String> = (0..PROCESSES).map(|_| find(None)).collect();
        if alone.iter().all(String::is_empty) {
            println!(
                "!!! SKIPPED: no trial gives a result here, without timers or a second processor"
            );
            return;
        }
        let short = Some(Duration::from_millis(1));
        let mut after_short = Vec::new();
        let is_repeated = (0..MAX_PROCESSES).any(|_| {
            let found = find(short);
            after_short.push(found.clone());
            // A first session that has a result was not short enough on this machine.
            found == "second"
                || (after_short.len() >= PROCESSES
                    && after_short.iter().all(|found| found.starts_with("first")))
        });
        println!("found by a session alone: {alone:?}; after a session of 1 ms: {after_short:?}");
        assert!(
            is_repeated,
            "none of the second sessions of {MAX_PROCESSES} processes has a result"
        );
    });
}
