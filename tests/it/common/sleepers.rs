//! Threads that sleep alike, and the tracks that a file has of them.

use std::sync::atomic::{AtomicI32, Ordering};
use std::thread::Builder;

use serde_json::Value;

use super::wait_until;

/// More than the 64 that share a track, as a busy machine may make some of them use CPU time.
pub const SLEEPERS: usize = 120;

/// What a file shows of the sleepers.
#[derive(Debug, PartialEq, Eq)]
pub struct SleeperTracks {
    /// The number of threads that each shared track is for.
    pub shared: Vec<usize>,
    /// The number of threads with a track of their own.
    pub own: usize,
}

impl SleeperTracks {
    /// Reads the names of threads.
    pub fn of<'a>(names: impl IntoIterator<Item = &'a str>) -> Self {
        let mut tracks = Self {
            shared: Vec::new(),
            own: 0,
        };
        for name in names {
            let Some(rest) = name.strip_prefix("sleeper-") else {
                continue;
            };
            match rest.split_once(" (1 of ") {
                None => tracks.own += 1,
                Some((_, rest)) => {
                    let count = rest.strip_suffix(" asleep alike)").expect("a known form");
                    tracks.shared.push(count.parse().expect("a number"));
                }
            }
        }
        tracks
    }

    /// Returns whether the file shows all sleepers, most of them by one track.
    pub fn is_merged(&self) -> bool {
        matches!(self.shared[..], [count] if count >= 64 && count + self.own == SLEEPERS)
    }
}

/// Returns the names of the threads of a file in JSON.
pub fn thread_names_in(threads: &Value) -> impl Iterator<Item = &str> {
    let threads = threads.as_array().expect("threads").iter();
    threads.filter_map(|thread| thread["name"].as_str())
}

/// Starts threads that sleep until the process ends, and returns once all do. May be called once.
pub fn start_sleepers() {
    static IDS: [AtomicI32; SLEEPERS] = [const { AtomicI32::new(0) }; SLEEPERS];
    for (index, id) in IDS.iter().enumerate() {
        let thread = Builder::new().name(format!("sleeper-{index}"));
        let body = move || {
            id.store(nix::unistd::gettid().as_raw(), Ordering::Release);
            loop {
                std::thread::park();
            }
        };
        thread.spawn(body).expect("a thread");
    }
    let sleeps = |id: &AtomicI32| {
        let id = id.load(Ordering::Acquire);
        let status = std::fs::read_to_string(format!("/proc/self/task/{id}/status"));
        status.is_ok_and(|status| status.contains("State:\tS"))
    };
    wait_until("the sleepers sleep", || IDS.iter().all(sleeps));
}
