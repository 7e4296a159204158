//! A moment without free descriptors.

use crate::common::{Read, Sleeper, isolated, one_loop, wait_until};
use gekkota::{ProfilerSession, StartParams};

fn descriptor_limits() -> libc::rlimit {
    let mut limits = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the kernel writes to a local.
    let answer = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limits) };
    assert_eq!(answer, 0);
    limits
}

fn set_descriptor_limits(limits: &libc::rlimit) {
    // SAFETY: the kernel only reads the limits.
    let answer = unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, limits) };
    assert_eq!(answer, 0);
}

#[test]
fn lack_of_descriptors_does_not_hide_a_sleeping_thread() {
    isolated(|| {
        let _session = ProfilerSession::start(StartParams::default()).expect("inactive");
        let limits = descriptor_limits();
        set_descriptor_limits(&libc::rlimit {
            rlim_cur: 0,
            ..limits
        });
        let _sleeper = Sleeper::start("sleeps");
        wait_until("the thread is sampled", || {
            one_loop();
            let read = Read::of_running();
            let mut threads = read.threads().iter();
            threads.any(|thread| thread["name"] == "sleeps") && !read.samples("sleeps").is_empty()
        });
        set_descriptor_limits(&limits);
        assert_eq!(Read::of_running().count("hidden_threads"), 0);
    });
}
