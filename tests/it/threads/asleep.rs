//! Many threads that sleep alike have one track in a file.

use crate::common::sleepers::{SLEEPERS, SleeperTracks, start_sleepers, thread_names_in};
use crate::common::{Read, isolated, wait_until};
use gekkota::profile::Format;
use gekkota::{ProfilerSession, StartParams};
use serde_json::Value;

#[test]
fn pool_that_sleeps_has_one_track() {
    isolated(|| {
        start_sleepers();
        let session = ProfilerSession::start(StartParams::default()).expect("start");
        wait_until("the file shows the sleepers as one track", || {
            let read = Read::of_running();
            SleeperTracks::of(thread_names_in(&read.0["threads"])).is_merged()
        });
        let profile = session.finish().expect("a profile");
        let mut file = Vec::new();
        profile
            .write(Format::Processed, &mut file)
            .expect("a vector never fails");
        let file: Value = serde_json::from_slice(&file).expect("JSON");
        let tracks = SleeperTracks::of(thread_names_in(&file["threads"]));
        assert!(tracks.is_merged(), "{tracks:?}");
        // A report has all of them.
        let summary = profile.summarize();
        let tracks = SleeperTracks::of(summary.iter().map(|thread| thread.name.as_str()));
        let all = SleeperTracks {
            shared: Vec::new(),
            own: SLEEPERS,
        };
        assert_eq!(tracks, all);
    });
}
