//! Threads that help to look up names need memory, too. Without it, the caller does all the work.

use super::{MIB, end_limit, leave_memory};
use crate::common::{Read, isolated, wait_until};
use gekkota::profile::SnapshotOptions;
use gekkota::{ProfilerSession, SaveError, StartParams};

#[test]
fn profile_named_by_several_threads_is_saved_or_an_error_with_any_memory() {
    isolated(|| {
        gekkota::register_thread("writer");
        let session = ProfilerSession::start(StartParams::default()).expect("start");
        wait_until("there are samples", || {
            !Read::of_running().samples("writer").is_empty()
        });
        let path =
            std::env::temp_dir().join(format!("gekkota-helpers-{}.json", std::process::id()));
        let options = SnapshotOptions::default().symbolication_threads(4);
        let profile = session.snapshot().expect("a session");
        let mut saved = Vec::new();
        // Too little for a profile, for a module, for several modules, and for several threads.
        for free_mib in [8, 100, 300, 1_100] {
            leave_memory(free_mib * MIB);
            let result = profile.save_with(&path, &options);
            end_limit();
            match result {
                Ok(()) => saved.push(free_mib),
                Err(SaveError::Io { error, .. }) => {
                    assert!(error.to_string().contains("memory"), "{error}");
                }
                Err(error) => panic!("{error}"),
            }
        }
        println!("saved with these MiB: {saved:?}");
        assert!(saved.contains(&1_100), "{saved:?}");
        // With memory for all threads.
        profile.save_with(&path, &options).expect("memory");
        let text = std::fs::read(&path).expect("the profile");
        std::fs::remove_file(&path).expect("the profile");
        let read = Read::from_text(&text);
        assert!(!read.samples("writer").is_empty());
        session.finish().expect("profile");
    });
}
