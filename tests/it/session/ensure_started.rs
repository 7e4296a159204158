//! `profiler_ensure_started` keeps a session with the same settings, and otherwise starts a new
//! one.

use std::time::Duration;

use crate::common::{Read, isolated, mark};
use gekkota::{
    Features, StartError, StartParams, profiler_ensure_started, profiler_features_if_active,
    profiler_get_buffer_info, profiler_get_start_params, profiler_is_active, profiler_is_paused,
    profiler_pause, profiler_resume, profiler_stop,
};

fn base() -> StartParams {
    StartParams::default()
        .features(Features::CPU | Features::STACK_WALK)
        .filters(["GeckoMain", "ensure"])
}

/// Records a marker, calls `profiler_ensure_started`, and returns whether the marker is still in
/// the buffer.
fn keeps_the_buffer(params: StartParams) -> bool {
    mark("kept");
    let before = profiler_get_buffer_info().expect("active");
    profiler_ensure_started(params).expect("started");
    assert!(profiler_is_active());
    let after = profiler_get_buffer_info().expect("active");
    let is_kept = Read::of_running()
        .markers("ensure")
        .iter()
        .any(|marker| marker.0 == "kept");
    assert!(
        !is_kept || after.put_entries >= before.put_entries,
        "{before:?}, then {after:?}"
    );
    is_kept
}

#[test]
fn ensure_started_keeps_the_buffer_only_with_equal_settings() {
    isolated(|| {
        gekkota::register_thread("ensure");
        assert!(profiler_get_start_params().is_none() && profiler_get_buffer_info().is_none());
        profiler_ensure_started(base()).expect("started");
        let in_use = profiler_get_start_params().expect("active");
        assert_eq!(in_use.filters, ["GeckoMain", "ensure"]);
        assert_eq!(
            (in_use.interval, in_use.capacity_bytes),
            (Duration::from_millis(1), 128 << 20)
        );
        assert_eq!(in_use.signal, Some(libc::SIGURG));
        assert_eq!(profiler_features_if_active(), Some(in_use.features));

        // Naming the default signal makes no difference.
        assert!(keeps_the_buffer(base()));
        assert!(keeps_the_buffer(base().signal(libc::SIGURG)));
        assert!(keeps_the_buffer(
            profiler_get_start_params().expect("active")
        ));
        // Unavailable features make no difference, and neither do features that another one
        // implies.
        let unavailable = Features::JAVA | Features::SCREENSHOTS;
        assert!(!Features::available().contains(unavailable));
        assert!(keeps_the_buffer(
            base().features(base().features | unavailable)
        ));
        if Features::available().contains(Features::CPU_ALL_THREADS) {
            let implies = Features::STACK_WALK | Features::CPU_ALL_THREADS;
            assert!(!keeps_the_buffer(base().features(implies)));
            assert!(keeps_the_buffer(base().features(implies | Features::CPU)));
            assert!(!keeps_the_buffer(base()));
        }
        // A pause is not a setting, so it lasts.
        profiler_pause();
        profiler_ensure_started(base()).expect("started");
        assert!(profiler_is_paused());
        profiler_resume();

        let different = [
            base().interval(Duration::from_millis(2)),
            base().capacity_bytes(64 << 20),
            base().features(Features::CPU),
            base().filters(["ensure", "GeckoMain"]),
            base().filters(["ENSURE"]),
            base().signal(libc::SIGURG),
        ];
        for params in different {
            assert!(!keeps_the_buffer(params.clone()), "{params:?}");
            assert!(keeps_the_buffer(params.clone()), "{params:?}");
            assert_eq!(
                profiler_get_start_params().expect("active").filters,
                params.filters
            );
        }
        // Invalid settings change nothing.
        let answer = profiler_ensure_started(base().capacity_bytes(1));
        assert!(
            matches!(
                answer,
                Err(StartError::BadValue {
                    field: "capacity_bytes",
                    ..
                })
            ),
            "{answer:?}"
        );
        assert_eq!(
            profiler_get_start_params().expect("active").signal,
            Some(libc::SIGURG)
        );

        let info = profiler_get_buffer_info().expect("active");
        assert!(
            info.range_start >= 1 && info.range_end > info.range_start && info.put_entries > 0,
            "{info:?}"
        );
        assert_eq!(
            (
                info.capacity_bytes,
                info.dropped_entries,
                info.recycled_bytes
            ),
            (128 << 20, 0, 0)
        );
        profiler_stop();
        assert!(profiler_get_start_params().is_none() && profiler_get_buffer_info().is_none());
    });
}
