//! Where the user has too many pending signals, the kernel delivers signals without their data.

use std::time::{Duration, Instant};

use crate::common::{LONGEST_WAIT, Read, isolated, work_for_cpu};
use gekkota::{ProfilerSession, StartParams};
use nix::sys::resource::{Resource, setrlimit};

#[test]
fn thread_is_sampled_where_signals_have_no_data() {
    isolated(|| {
        setrlimit(Resource::RLIMIT_SIGPENDING, 0, 0).expect("a lower limit");
        let params = StartParams::default();
        let session = ProfilerSession::start(params).expect("start");
        gekkota::register_thread("busy");
        let end = Instant::now() + LONGEST_WAIT;
        loop {
            work_for_cpu(Duration::from_millis(10));
            let read = Read::of_running();
            let captured = read.count("captured_samples");
            if captured > 30 {
                break;
            }
            assert!(Instant::now() < end, "{captured} samples were captured");
        }
        session.finish().expect("profile");
    });
}
