//! A process that is killed while it saves leaves no temporary file behind, or one that the next
//! save removes.

use std::os::unix::process::ExitStatusExt;
use std::path::Path;

use crate::common::isolated;
use crate::saving::{Folder, assert_is_profile, command_of_role, has_role, start};
use gekkota::profiler_save_profile_to_file;

/// The folder in which the child saves.
const FOLDER: &str = "GEKKOTA_TEST_FOLDER";
/// Set if the child's file system shall refuse files without a name.
const REFUSES_UNNAMED: &str = "GEKKOTA_TEST_REFUSES_UNNAMED";

const LOAD_WORD: u16 = 0x20;
const JUMP_IF_EQUAL: u16 = 0x15;
const JUMP_IF_ANY_BIT: u16 = 0x45;
const RETURN: u16 = 0x06;

fn instruction(code: u16, jt: u8, jf: u8, k: u32) -> libc::sock_filter {
    libc::sock_filter { code, jt, jf, k }
}

/// Lets the kernel refuse to create files without a name, as some file systems do.
fn refuse_unnamed_files() {
    let unnamed = (libc::O_TMPFILE & !libc::O_DIRECTORY) as u32;
    let refuse = libc::SECCOMP_RET_ERRNO | libc::EOPNOTSUPP as u32;
    // Offsets in `struct seccomp_data`.
    let (number, third_argument) = (0, 32);
    install(&mut [
        instruction(LOAD_WORD, 0, 0, number),
        instruction(JUMP_IF_EQUAL, 0, 3, libc::SYS_openat as u32),
        instruction(LOAD_WORD, 0, 0, third_argument),
        instruction(JUMP_IF_ANY_BIT, 0, 1, unnamed),
        instruction(RETURN, 0, 0, refuse),
        instruction(RETURN, 0, 0, libc::SECCOMP_RET_ALLOW),
    ]);
}

/// Lets the kernel kill the process when it waits for a file's content to be on the disk.
fn kill_at_sync() {
    install(&mut [
        instruction(LOAD_WORD, 0, 0, 0),
        instruction(JUMP_IF_EQUAL, 0, 1, libc::SYS_fsync as u32),
        instruction(RETURN, 0, 0, libc::SECCOMP_RET_KILL_PROCESS),
        instruction(RETURN, 0, 0, libc::SECCOMP_RET_ALLOW),
    ]);
}

/// Installs a filter on the calling thread, beside those that it has.
fn install(program: &mut [libc::sock_filter]) {
    let filter = libc::sock_fprog {
        len: program.len() as u16,
        filter: program.as_mut_ptr(),
    };
    // SAFETY: the program lives until both calls have returned.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        let mode = libc::SECCOMP_SET_MODE_FILTER;
        assert_eq!(
            libc::syscall(libc::SYS_seccomp, mode, 0, &raw const filter),
            0
        );
    }
}

/// Saves a profile, and is killed once the whole of it is written, before it has its name.
#[test]
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
