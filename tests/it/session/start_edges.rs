//! Starting while active, stopping twice, from any thread, and many starts in a row.

use std::time::Duration;

use crate::common::{Read, Sleeper, isolated, mark, wait_until, work_for};
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
fn start_when_active_drops_the_data_and_is_another_generation() {
    isolated(|| {
        gekkota::register_thread("edges");
        let first = ProfilerSession::start(StartParams::default()).expect("start");
        mark("of the first");
        assert_eq!(marker_names(), ["of the first"]);
        profiler_start(StartParams::default()).expect("start");
        assert!(profiler_is_active());
        mark("of the second");
        assert_eq!(marker_names(), ["of the second"]);
        assert!(
            matches!(first.snapshot(), Err(StreamError::Inactive)),
            "another generation"
        );
        drop(first);
        assert!(
            profiler_is_active(),
            "which the first one's guard does not stop"
        );
        profiler_stop();
    });
}

#[test]
fn stop_twice_is_harmless() {
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
fn start_and_stop_on_other_threads_are_seen_everywhere() {
    isolated(|| {
        gekkota::register_thread("edges");
        let on_another = |body: fn()| std::thread::spawn(body).join().expect("thread");
        on_another(|| _ = profiler_start(StartParams::default()).expect("start"));
        assert!(profiler_is_active());
        mark("here");
        on_another(|| assert!(profiler_is_active() && profiler_get_profile().is_some()));
        work_for(Duration::from_millis(20));
        wait_until("this thread has samples", || {
            !Read::of_running().samples("edges").is_empty()
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

/// Mozilla bug 1355807.
#[test]
fn three_starts_in_a_row_with_shrinking_filters() {
    isolated(|| {
        gekkota::register_thread("edges");
        let others = ["shrinks", "GeckoMain"].map(Sleeper::start);
        let threads = |filters: &[&str]| {
            profiler_start(StartParams::default().filters(filters.iter().copied())).expect("start");
            work_for(Duration::from_millis(10));
            let read = Read::of_running();
            let names = read
                .threads()
                .iter()
                .map(|thread| thread["name"].as_str().expect("a name").to_owned());
            let mut names: Vec<String> = names.filter(|name| name != "GeckoMain").collect();
            names.sort_unstable();
            names
        };
        wait_until("they are registered", || {
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
fn starts_and_stops_of_many_threads_take_turns() {
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
fn a_start_beside_a_shutdown_can_be_profiled() {
    isolated(|| {
        gekkota::register_thread("edges");
        // A callback that is left over is told by the shutdown, and starts anew.
        profiler_start(StartParams::default().interval(Duration::from_secs(10))).expect("start");
        assert!(profiler_callback_after_sampling(|state| {
            assert_eq!(state, SamplingState::JustStopped);
            profiler_start(StartParams::default()).expect("start");
        }));
        profiler_shutdown();
        assert!(profiler_is_active() && profiler_get_profile().is_some());
        // Whichever thread comes last, what runs then can be had.
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
fn a_shutdown_twice_is_harmless() {
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
