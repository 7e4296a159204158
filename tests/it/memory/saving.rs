//! Where there is too little memory for a whole profile, a smaller one is saved, or none, with an
//! error. What is recorded stays in the buffer.

use super::{MIB, ONE_ARENA, add_markers, end_limit, leave_memory, limit_memory};
use crate::common::{Read, isolated, isolated_with};
use gekkota::{ProfilerSession, SaveError, StartParams};
use std::path::{Path, PathBuf};

/// Number of markers with distinct texts. The tables of a whole profile take about 20 MiB.
const MARKERS: usize = 200_000;
const TEXT_BYTES: usize = 50;

fn path(name: &str) -> PathBuf {
    let name = format!("gekkota-memory-{name}-{}.json", std::process::id());
    std::env::temp_dir().join(name)
}

fn text_of_removed(path: &Path) -> String {
    let text = std::fs::read_to_string(path).expect("the profile");
    std::fs::remove_file(path).expect("the profile");
    text
}

fn read_and_remove(path: &Path) -> Read {
    Read::from_text(text_of_removed(path).as_bytes())
}

/// Returns the count from the text of a profile, because reading a profile as a whole takes long.
fn left_out_bytes(profile: &str) -> u64 {
    let (_, count) = profile
        .split_once(r#""left_out_bytes":"#)
        .expect("the count");
    let (count, _) = count.split_once(',').expect("more counts");
    count.parse().expect("a number")
}

/// Checks that a profile has the newest markers, and says whether older ones are missing. Returns
/// false if it has no markers: then its newest part is samples that were taken after them.
fn check_profile(read: &Read) -> bool {
    let markers = read.markers("writer");
    let losses = &read.0["meta"]["losses"];
    let is_whole = losses["left_out_bytes"] == 0 && losses["recycled_chunks"] == 0;
    assert_eq!(markers.len() == MARKERS, is_whole, "{}", markers.len());
    assert_eq!(read.0["meta"]["contentEarliestTime"].is_null(), is_whole);
    let Some((.., newest)) = markers.last() else {
        return false;
    };
    let text = newest["name"].as_str().expect("a text");
    let last = format!("marker {:9} ", MARKERS - 1);
    assert!(text.starts_with(&last), "{text:?}");
    true
}

#[test]
fn save_without_memory_for_the_whole_is_smaller_or_an_error() {
    isolated_with(&[ONE_ARENA], || {
        let session = ProfilerSession::start(StartParams::default()).expect("start");
        gekkota::register_thread("writer");
        add_markers(0..MARKERS, TEXT_BYTES);
        // With 3 MiB more each time, from too little for any profile to enough for the whole.
        let (mut left_out, mut is_checked, mut has_newest) = (Vec::new(), false, false);
        for free_mib in (8..).step_by(3) {
            let path = path(&format!("{free_mib}-mib"));
            leave_memory(free_mib * MIB);
            let saved = gekkota::profiler_save_profile_to_file(&path);
            end_limit();
            match saved {
                Ok(()) => {
                    let text = text_of_removed(&path);
                    left_out.push(left_out_bytes(&text));
                    is_checked = is_checked || check_profile(&Read::from_text(text.as_bytes()));
                }
                Err(SaveError::Io { error, .. }) => {
                    assert!(free_mib < 20, "{free_mib} MiB: {error}");
                    assert!(error.to_string().contains("memory"), "{error}");
                    assert!(!path.exists());
                }
                Err(error) => panic!("{error}"),
            }
            if left_out.last() == Some(&0) {
                break;
            }
            has_newest |= is_checked;
        }
        println!("bytes left out: {left_out:?}");
        assert!(left_out.len() > 1, "no save was short of memory");
        assert!(has_newest, "no smaller profile had the newest markers");
        let path = path("whole");
        gekkota::profiler_save_profile_to_file(&path).expect("memory");
        let read = read_and_remove(&path);
        assert!(check_profile(&read));
        assert_eq!(read.markers("writer").len(), MARKERS);
        drop(session);
    });
}

#[test]
fn what_was_recorded_without_memory_is_saved_without_memory() {
    isolated(|| {
        for free_mib in [20, 100] {
            let params = StartParams::default().capacity_bytes(1 << 30);
            let session = ProfilerSession::start(params).expect("start");
            gekkota::register_thread("writer");
            add_markers(0..10, TEXT_BYTES);
            limit_memory(free_mib * MIB);
            add_markers(10..MARKERS, TEXT_BYTES);
            let path = path(&format!("recorded-{free_mib}-mib"));
            let saved = gekkota::profiler_save_profile_to_file(&path);
            end_limit();
            saved.expect("there was memory left to save the profile");
            let read = read_and_remove(&path);
            let losses = &read.0["meta"]["losses"];
            println!("{free_mib} MiB: {losses}");
            assert!(check_profile(&read), "recorded at last");
            drop(session);
            gekkota::unregister_thread();
        }
    });
}
