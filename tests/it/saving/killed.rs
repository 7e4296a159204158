//! A process that is killed while it saves leaves no temporary file behind, or one that the next
//! save removes.

use std::os::unix::process::ExitStatusExt;
use std::path::Path;

use crate::common::isolated;
use crate::saving::filters::{kill_at_sync, refuse_unnamed_files};
use crate::saving::{Folder, assert_is_profile, command_of_role, has_role, start};
use gekkota::profiler_save_profile_to_file;

/// The folder in which the child saves.
const FOLDER: &str = "GEKKOTA_TEST_FOLDER";
/// Set if the child's file system shall refuse files without a name.
const REFUSES_UNNAMED: &str = "GEKKOTA_TEST_REFUSES_UNNAMED";

/// Saves a profile, and is killed once the whole of it is written, before it has its name.
#[test]
#[ignore = "runs only as a child of another test"]
fn role_of_the_killed_child() {
    if !has_role(role_of_the_killed_child) {
        return;
    }
    let folder = std::env::var_os(FOLDER).expect("a folder");
    let _session = start();
    if std::env::var_os(REFUSES_UNNAMED).is_some() {
        refuse_unnamed_files();
    }
    kill_at_sync();
    let saved = profiler_save_profile_to_file(Path::new(&folder).join("p.json"));
    panic!("the process outlived the save: {saved:?}");
}

/// Runs the child, and asserts that it was killed during its save.
fn run_killed_child(folder: &Folder, refuses_unnamed: bool) {
    let mut command = command_of_role(role_of_the_killed_child);
    command.env(FOLDER, &folder.0);
    if refuses_unnamed {
        command.env(REFUSES_UNNAMED, "1");
    }
    let output = command.output().expect("the child");
    assert_eq!(output.status.signal(), Some(libc::SIGSYS), "{output:?}");
}

#[test]
fn kill_during_a_save_leaves_no_file() {
    isolated(|| {
        let folder = Folder::new("killed");
        run_killed_child(&folder, false);
        assert_eq!(folder.names(), [""; 0]);
    });
}

#[test]
fn temporary_file_of_a_killed_process_is_removed_by_the_next_save() {
    isolated(|| {
        let folder = Folder::new("stale");
        run_killed_child(&folder, true);
        let stale = folder.names();
        assert_eq!(stale.len(), 1, "the child leaves its temporary file");
        let _session = start();
        let path = folder.path("p.json");
        profiler_save_profile_to_file(&path).expect("saved");
        assert_is_profile(&path);
        assert_eq!(folder.names(), ["p.json"], "{stale:?}");
    });
}

#[test]
fn file_that_only_has_the_name_of_a_temporary_one_is_kept() {
    isolated(|| {
        let folder = Folder::new("kept");
        run_killed_child(&folder, true);
        let [stale] = &folder.names()[..] else {
            panic!("the child leaves its temporary file")
        };
        // A copy has the name, the owner and the mode of the temporary file, but is another file.
        let (temporary, moved) = (folder.path(stale), folder.path("moved"));
        std::fs::rename(&temporary, &moved).expect("renamed");
        std::fs::copy(&moved, &temporary).expect("copied");
        let mut expected = folder.names();
        let _session = start();
        profiler_save_profile_to_file(folder.path("p.json")).expect("saved");
        expected.push("p.json".to_owned());
        expected.sort();
        assert_eq!(folder.names(), expected);
    });
}

#[test]
fn save_without_unnamed_files_replaces_a_file() {
    isolated(|| {
        let folder = Folder::new("named");
        let path = folder.path("p.json");
        let _session = start();
        refuse_unnamed_files();
        for _ in 0..2 {
            profiler_save_profile_to_file(&path).expect("saved");
            assert_is_profile(&path);
            assert_eq!(folder.names(), ["p.json"]);
        }
    });
}
