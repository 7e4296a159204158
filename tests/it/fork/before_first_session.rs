//! A fork before the first session.

use std::time::Duration;

use crate::common::{Read, in_forked_child, isolated, wait_until, work_for_cpu};
use gekkota::{ProfilerSession, StartParams};

#[test]
fn thread_registered_before_fork_is_sampled_in_child() {
    isolated(|| {
        gekkota::register_thread("forks");
        let result = in_forked_child(|| {
            let session = ProfilerSession::start(StartParams::default()).expect("inactive");
            wait_until("the forking thread is sampled", || {
                work_for_cpu(Duration::from_millis(5));
                let profile = session.snapshot().expect("a running session");
                !Read::from_profile(&profile).samples("forks").is_empty()
            });
            "sampled".to_owned()
        });
        assert_eq!(result, "sampled");
    });
}
