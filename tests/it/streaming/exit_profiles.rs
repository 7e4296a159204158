//! Profiles of child processes that no child of this crate writes: nested deeply, or too long.

use crate::common::{Read, isolated};
use gekkota::process::profiler_received_exit_profile;
use gekkota::{ProfilerSession, StartParams};

/// Number of levels of processes that the profiler accepts.
const MAX_LEVELS: usize = 16;

/// Returns a profile with this many levels of processes, each the only child of the one above.
fn nested(levels: usize) -> String {
    let begin = r#"{"meta": {}, "threads": [], "processes": ["#;
    begin.repeat(levels) + &"]}".repeat(levels)
}

fn start() -> ProfilerSession {
    ProfilerSession::start(StartParams::default()).expect("start")
}

fn child_profiles() -> Option<usize> {
    Read::of_running().0["processes"].as_array().map(Vec::len)
}

#[test]
fn deeply_nested_profile_is_refused() {
    isolated(|| {
        let _session = start();
        let receive = || {
            for levels in [5000, MAX_LEVELS + 1, 500_000] {
                let refused = profiler_received_exit_profile(nested(levels)).expect_err("too deep");
                let text = refused.to_string();
                assert!(
                    text.contains("more than 16 levels") && text.contains("expected at most 16"),
                    "{levels}: {text}"
                );
            }
        };
        // The caller's thread may have a small stack.
        let thread = std::thread::Builder::new().stack_size(256 << 10);
        let thread = thread.spawn(receive).expect("a thread");
        thread.join().expect("each profile is refused");
        assert_eq!(child_profiles(), Some(0), "nothing of them is kept");
    });
}

#[test]
fn deepest_accepted_profile_is_split_into_its_processes() {
    isolated(|| {
        let _session = start();
        profiler_received_exit_profile(nested(MAX_LEVELS)).expect("not too deep");
        assert_eq!(child_profiles(), Some(MAX_LEVELS));
    });
}

#[test]
fn deeply_nested_values_do_not_end_the_process() {
    isolated(|| {
        let _session = start();
        let value = "[".repeat(1_000_000) + &"]".repeat(1_000_000);
        let profile = format!(r#"{{"meta": {{"x": {value}}}, "threads": []}}"#);
        profiler_received_exit_profile(profile).expect("it is JSON");
        let text = gekkota::profiler_get_profile().expect("active");
        assert!(String::from_utf8(text).expect("UTF-8").contains(&value));
    });
}

#[test]
fn too_long_profile_is_refused() {
    isolated(|| {
        // A quarter of the capacity is more than the profile's maximum, if the machine has the memory.
        let params = StartParams::default().capacity_bytes(8 << 30);
        let _session = ProfilerSession::start(params).expect("start");
        const TOO_LONG: usize = (1 << 30) + 1;
        let in_use = gekkota::profiler_get_start_params().expect("active");
        let most = (in_use.capacity_bytes / 4).min(1 << 30);
        // SAFETY: zeros are UTF-8. They take no memory, because the profiler does not read them.
        let text = unsafe { String::from_utf8_unchecked(vec![0; TOO_LONG]) };
        let refused = profiler_received_exit_profile(text).expect_err("too long");
        let text = refused.to_string();
        assert!(
            text.contains(&format!("got 1073741825 bytes, expected at most {most}")),
            "{text}"
        );
    });
}
