//! A moment without free descriptors.

use crate::common::{Read, Sleeper, isolated, one_loop, wait_until};
use gekkota::{ProfilerSession, StartParams};
use nix::sys::resource::{Resource, getrlimit, setrlimit};

#[test]
fn lack_of_descriptors_does_not_hide_a_sleeping_thread() {
    isolated(|| {
        let _session = ProfilerSession::start(StartParams::default()).expect("inactive");
        let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).expect("the limits");
        setrlimit(Resource::RLIMIT_NOFILE, 0, hard).expect("a lower limit");
        let _sleeper = Sleeper::start("sleeps");
        wait_until("the thread is sampled", || {
            one_loop();
            let read = Read::of_running();
            let mut threads = read.threads().iter();
            threads.any(|thread| thread["name"] == "sleeps") && !read.samples("sleeps").is_empty()
        });
        setrlimit(Resource::RLIMIT_NOFILE, soft, hard).expect("the former limit");
        assert_eq!(Read::of_running().count("hidden_threads"), 0);
    });
}
