//! Many threads that sleep alike have one track in a file.

use std::sync::atomic::{AtomicI32, Ordering};
use std::thread::Builder;

use crate::common::{Read, isolated, wait_until};
use gekkota::profile::Format;
use gekkota::{ProfilerSession, StartParams};
use serde_json::Value;

const THREADS: usize = 80;

/// Starts threads that sleep until the process ends, and returns once all do.
fn start_pool() {
    static IDS: [AtomicI32; THREADS] = [const { AtomicI32::new(0) }; THREADS];
    for (index, id) in IDS.iter().enumerate() {
        let thread = Builder::new().name(format!("pool-{index}"));
        let body = move || {
            id.store(nix::unistd::gettid().as_raw(), Ordering::Release);
            loop {
                nix::unistd::pause();
            }
        };
        thread.spawn(body).expect("a thread");
    }
    let sleeps = |id: &AtomicI32| {
        let id = id.load(Ordering::Acquire);
        let status = std::fs::read_to_string(format!("/proc/self/task/{id}/status"));
        status.is_ok_and(|status| status.contains("State:\tS"))
    };
    wait_until("the pool sleeps", || IDS.iter().all(sleeps));
}

/// Returns the names of the pool's tracks.
fn pool_tracks(threads: &[Value]) -> Vec<&str> {
    let names = threads.iter().filter_map(|thread| thread["name"].as_str());
    names.filter(|name| name.starts_with("pool-")).collect()
}

#[test]
fn pool_that_sleeps_has_one_track() {
    isolated(|| {
        start_pool();
        let session = ProfilerSession::start(StartParams::default()).expect("start");
        wait_until("all threads have samples", || {
            let read = Read::of_running();
            let tracks = pool_tracks(read.threads());
            tracks.len() == 1 && tracks[0].ends_with(" (1 of 80 asleep alike)")
        });
        let profile = session.finish().expect("a profile");
        let mut file = Vec::new();
        profile
            .write(Format::Processed, &mut file)
            .expect("a vector never fails");
        let file: Value = serde_json::from_slice(&file).expect("JSON");
        let tracks = pool_tracks(file["threads"].as_array().expect("threads"));
        assert_eq!(tracks.len(), 1, "{tracks:?}");
        assert!(tracks[0].ends_with(" (1 of 80 asleep alike)"), "{tracks:?}");
        // A report has all of them.
        let summary = profile.summarize();
        let of_pool = summary
            .iter()
            .filter(|thread| thread.name.starts_with("pool-"));
        assert_eq!(of_pool.count(), THREADS);
    });
}
