//! A child's profile is refused if the process has no memory for its copies.

use super::{MIB, ONE_ARENA, end_limit, leave_memory};
use crate::common::{Read, isolated_with};
use gekkota::process::{ExitProfileError, profiler_received_exit_profile};
use gekkota::{ProfilerSession, StartParams};

#[test]
fn exit_profile_without_memory_for_its_copies_is_refused() {
    isolated_with(&[ONE_ARENA], || {
        let params = StartParams::default().capacity_bytes(1 << 30);
        let _session = ProfilerSession::start(params).expect("start");
        let text = "x".repeat(64 << 20);
        let mut profile = format!(r#"{{"meta": {{"x": "{text}"}}, "threads": []}}"#);
        profile.shrink_to_fit();
        drop(text);
        let again = profile.clone();
        let bytes = profile.len() as u64;
        leave_memory(40 * MIB);
        let refused = profiler_received_exit_profile(profile);
        end_limit();
        assert_eq!(refused, Err(ExitProfileError::OutOfMemory { bytes }));
        profiler_received_exit_profile(again).expect("memory");
        let processes = Read::of_running().0["processes"].as_array().map(Vec::len);
        assert_eq!(processes, Some(1));
    });
}
