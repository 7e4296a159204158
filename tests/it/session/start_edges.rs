//! Starting while active, stopping twice, calls from several threads, and starts in a row.

use std::sync::mpsc;

use super::{LONGEST_INTERVAL, before_second_tick, read_until, sample_count};
use crate::common::{Read, Sleeper, isolated, mark, wait_until};
use gekkota::callback::{SamplingState, profiler_callback_after_sampling};
use gekkota::{
    ProfilerSession, StartParams, StreamError, profiler_get_available_features,
    profiler_get_profile, profiler_is_active, profiler_shutdown, profiler_start, profiler_stop,
};

fn marker_names() -> Vec<String> {
    Read::of_running()
        .markers("edges")
        .into_iter()
        .map(|marker| marker.0)
        .collect()
}

#[test]
fn start_while_active_drops_the_data_and_begins_another_generation() {
    isolated(|| {
        gekkota::register_thread("edges");
        let first = ProfilerSession::start(StartParams::default()).expect("start");
        mark("in the first session");
        assert_eq!(marker_names(), ["in the first session"]);
        profiler_start(StartParams::default()).expect("start");
        assert!(profiler_is_active());
        mark("in the second session");
        assert_eq!(marker_names(), ["in the second session"]);
        assert!(
            matches!(first.snapshot(), Err(StreamError::Inactive)),
            "the first session has ended"
        );
        drop(first);
        assert!(
            profiler_is_active(),
            "the guard of the first session does not stop the second one"
        );
        profiler_stop();
    });
}

#[test]
fn second_stop_does_nothing() {
    isolated(|| {
        gekkota::register_thread("edges");
        profiler_start(StartParams::default()).expect("start");
        for _ in 0..3 {
            profiler_stop();
            assert!(!profiler_is_active() && profiler_get_profile().is_none());
        }
    });
}

#[test]
fn start_and_stop_on_another_thread_apply_to_all_threads() {
    isolated(|| {
        gekkota::register_thread("edges");
        let on_another = |body: fn()| std::thread::spawn(body).join().expect("thread");
        on_another(|| _ = profiler_start(StartParams::default()).expect("start"));
        assert!(profiler_is_active());
        mark("here");
        on_another(|| assert!(profiler_is_active() && profiler_get_profile().is_some()));
        read_until("this thread has samples", |read| {
            sample_count(read, "edges") > 0
        });
        assert_eq!(marker_names(), ["here"]);
        on_another(profiler_stop);
        assert!(!profiler_is_active() && profiler_get_profile().is_none());
        profiler_start(StartParams::default()).expect("start");
        on_another(|| _ = profiler_start(StartParams::default()).expect("start"));
        assert!(marker_names().is_empty());
        on_another(profiler_stop);
        assert!(!profiler_is_active());
    });
}

/// See Mozilla's bug 1355807.
#[test]
fn restart_with_fewer_filters_selects_fewer_threads() {
    isolated(|| {
        gekkota::register_thread("edges");
        let others = ["shrinks", "GeckoMain"].map(Sleeper::start);
        let threads = |filters: &[&str]| {
            profiler_start(StartParams::default().filters(filters.iter().copied())).expect("start");
            let read = Read::of_running();
            let names = read
                .threads()
                .iter()
                .map(|thread| thread["name"].as_str().expect("a name").to_owned());
            let mut names: Vec<String> = names.filter(|name| name != "GeckoMain").collect();
            names.sort_unstable();
            names
        };
        wait_until("the threads are registered", || {
            threads(&["edges", "shrinks", "GeckoMain"]).len() == 2
        });
        assert_eq!(
            threads(&["edges", "shrinks", "GeckoMain"]),
            ["edges", "shrinks"]
        );
        assert_eq!(threads(&["edges", "GeckoMain"]), ["edges"]);
        assert!(threads(&["GeckoMain"]).is_empty());
        profiler_stop();
        drop(others);
    });
}

#[test]
fn concurrent_starts_and_stops_do_not_fail() {
    isolated(|| {
        gekkota::register_thread("edges");
        std::thread::scope(|scope| {
            for number in 0..4u64 {
                scope.spawn(move || {
                    gekkota::register_thread("takes turns");
                    for round in 0..30 {
                        match (number + round) % 4 {
                            0 => profiler_stop(),
                            1 => _ = profiler_get_profile(),
                            _ => _ = profiler_start(StartParams::default()).expect("start"),
                        }
                        mark("turn");
                    }
                });
            }
        });
        profiler_stop();
        assert!(!profiler_is_active());
    });
}

#[test]
fn session_started_beside_a_shutdown_has_a_profile() {
    isolated(|| {
        gekkota::register_thread("edges");
        // The shutdown calls the pending callback, which starts another session.
        let (state, has_profile) = before_second_tick(|| {
            profiler_start(StartParams::default().interval(LONGEST_INTERVAL)).expect("start");
            let (send, receive) = mpsc::channel();
            assert!(profiler_callback_after_sampling(move |state| {
                profiler_start(StartParams::default()).expect("start");
                _ = send.send(state);
            }));
            profiler_shutdown();
            let has_profile = profiler_is_active() && profiler_get_profile().is_some();
            (receive.try_recv(), has_profile)
        });
        assert_eq!(state, Ok(SamplingState::JustStopped));
        assert!(has_profile);
        // A session that runs after both calls has a profile, whichever call came last.
        for _ in 0..300 {
            std::thread::scope(|scope| {
                scope.spawn(profiler_shutdown);
                profiler_start(StartParams::default()).expect("start");
            });
            assert_eq!(profiler_get_profile().is_some(), profiler_is_active());
        }
        profiler_shutdown();
        assert!(!profiler_is_active());
    });
}

#[test]
fn second_shutdown_does_nothing() {
    isolated(|| {
        gekkota::register_thread("edges");
        assert_eq!(
            profiler_get_available_features(),
            gekkota::Features::available()
        );
        profiler_start(StartParams::default()).expect("start");
        profiler_shutdown();
        profiler_shutdown();
        assert!(!profiler_is_active());
    });
}
