//! A session that ends before the engines were tried leaves the trial to the next one.

use std::time::{Duration, Instant};

use crate::common::{Read, in_forked_child, isolated};
use gekkota::{ProfilerSession, StartParams};

/// On a busy machine a trial may find nothing; each process tries once.
const PROCESSES: usize = 8;

/// Whether a session of so long found out what the engines cost.
fn session_of(time: Duration, until_found: bool) -> bool {
    let session = ProfilerSession::start(StartParams::default()).expect("start");
    let trial = |read: Read| {
        let log = &read.0["profilingLog"][std::process::id().to_string()];
        !log["engineTrial"].is_null()
    };
    let end = Instant::now() + time;
    while Instant::now() < end {
        if until_found
            && gekkota::profiler_get_profile().is_some_and(|text| trial(Read::from_text(&text)))
        {
            break;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    trial(Read::from_profile(&session.finish().expect("profile")))
}

fn second_session_finds(first: Option<Duration>) -> String {
    let by_first = first.is_some_and(|time| session_of(time, false));
    let by_second = session_of(Duration::from_millis(500), true);
    format!(
        "{}{}",
        if by_first { "first " } else { "" },
        if by_second { "second" } else { "" }
    )
}

#[test]
fn a_short_first_session_does_not_end_the_trials() {
    isolated(|| {
        let find = |first| -> Vec<String> {
            (0..PROCESSES)
                .map(|_| in_forked_child(|| second_session_finds(first)))
                .collect()
        };
        let alone = find(None);
        if alone.iter().all(String::is_empty) {
            println!(
                "!!! SKIPPED: no trial finds anything here, for want of timers or of a second processor"
            );
            return;
        }
        let after_short = find(Some(Duration::from_millis(1)));
        println!("found by a session alone: {alone:?}; after a session of 1 ms: {after_short:?}");
        // Where the short one was not too short, there is nothing to see.
        let mut cut_short = after_short
            .iter()
            .filter(|found| !found.starts_with("first"))
            .peekable();
        assert!(
            cut_short.peek().is_none() || cut_short.any(|found| found == "second"),
            "none of the second sessions of {PROCESSES} processes"
        );
    });
}
