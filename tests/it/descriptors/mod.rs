//! File descriptors: the application's stay as they are, and the profiler holds none of their
//! numbers.

mod callbacks;
mod host_files;
mod limits;
mod message_queue;
mod module_files;
mod none_left;
#[cfg(target_arch = "x86_64")]
mod replaced_during_calls;
mod reused_numbers;
mod saving;

use crate::common::{Read, Sleeper, wait_until};
use gekkota::{ProfilerSession, StartParams};

/// A session, and threads that sleep and whose stacks the sampler has read from outside.
struct Sampled {
    session: ProfilerSession,
    sleepers: Vec<Sleeper>,
}

impl Sampled {
    fn start(sleepers: usize) -> Self {
        let params = StartParams::default();
        let session = ProfilerSession::start(params).expect("start");
        let sleepers: Vec<_> = (0..sleepers).map(|_| Sleeper::start("sleeper")).collect();
        wait_until("the sleeping threads are sampled", || {
            Read::of_running().count("remote_samples") >= sleepers.len() as u64
        });
        Self { session, sleepers }
    }
}
