//! Files that a temporary file in the same folder cannot replace, and long file names.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::common::{become_nobody, in_forked_child, isolated};
use crate::saving::filters::{refuse_links, refuse_unnamed_files};
use crate::saving::{Folder, assert_is_profile, give_to, is_root, set_mode, start};
use gekkota::{SaveError, profiler_save_profile_to_file};

const NOBODY: u32 = 65534;
const OLD: &str = "an older file";

#[test]
fn longest_file_name_is_saved() {
    isolated(|| {
        let _session = start();
        let folder = Folder::new("long");
        for length in [250, 255] {
            let name = format!("{}.json", "n".repeat(length - ".json".len()));
            let path = folder.path(&name);
            profiler_save_profile_to_file(&path).expect("saved");
            assert_is_profile(&path);
            // Replaces the file of the same name.
            profiler_save_profile_to_file(&path).expect("saved again");
            assert_is_profile(&path);
            assert_eq!(folder.names(), [name]);
            std::fs::remove_file(path).expect("removed");
        }
        let too_long = folder.path(&"n".repeat(256));
        let error = profiler_save_profile_to_file(too_long).expect_err("one byte too many");
        let SaveError::Io { error, .. } = error else {
            panic!("{error}")
        };
        assert_eq!(error.raw_os_error(), Some(libc::ENAMETOOLONG), "{error}");
        assert_eq!(folder.names(), [""; 0]);
    });
}

/// Runs `body` in a forked child that may write the file `p.json` in a folder, and may create no
/// file there. The file has another name elsewhere if `has_two_names`.
fn in_unwritable_folder(file: &str, has_two_names: bool, body: impl FnOnce(&Folder)) {
    let (folder, other) = (Folder::new("unwritable"), Folder::new("other"));
    let path = folder.path(file);
    // Longer than a profile, so that the rest must be cut off.
    std::fs::write(&path, OLD.repeat(1 << 16)).expect("written");
    if has_two_names {
        std::fs::hard_link(&path, other.path("second name")).expect("a second name");
    }
    set_mode(&folder.0, 0o555);
    in_forked_child(|| {
        if nix::unistd::geteuid().is_root() {
            give_to(&path, NOBODY);
            become_nobody();
        }
        let created = std::fs::write(folder.path("another"), "");
        created.expect_err("no file can be created in the folder");
        let _session = start();
        body(&folder);
        String::new()
    });
    assert_eq!(folder.names(), [file]);
    set_mode(&folder.0, 0o755);
}

/// Limits the size of the files that the process writes to less than a profile's. Beyond it, the
/// kernel sends `SIGXFSZ`, which ends a process that does not ignore it.
fn limit_file_size() {
    let limit = libc::rlimit {
        rlim_cur: 100,
        rlim_max: libc::RLIM_INFINITY,
    };
    // SAFETY: the kernel only reads the local.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &limit) }, 0);
}

#[track_caller]
fn assert_is_old(path: &Path) {
    let text = std::fs::read_to_string(path).expect("the older file");
    assert!(text == OLD.repeat(1 << 16), "{} bytes", text.len());
}

#[test]
fn writable_file_in_an_unwritable_folder_is_saved() {
    isolated(|| {
        in_unwritable_folder("p.json", false, |folder| {
            let path = folder.path("p.json");
            let inode = || std::fs::metadata(&path).expect("the file").ino();
            let before = inode();
            profiler_save_profile_to_file(&path).expect("saved");
            assert_is_profile(&path);
            assert_eq!(inode(), before, "the file itself was written");
        });
    });
}

#[test]
fn file_in_an_unwritable_folder_is_saved_through_memory() {
    isolated(|| {
        in_unwritable_folder("p.json", false, |folder| {
            // Simulates that no other folder can hold a temporary file.
            refuse_unnamed_files();
            let path = folder.path("p.json");
            profiler_save_profile_to_file(&path).expect("saved");
            assert_is_profile(&path);
        });
    });
}

#[test]
fn failed_save_in_an_unwritable_folder_keeps_the_file() {
    isolated(|| {
        in_unwritable_folder("p.json", false, |folder| {
            limit_file_size();
            let path = folder.path("p.json");
            profiler_save_profile_to_file(&path).expect_err("the limit of the file size");
            assert_is_old(&path);
        });
    });
}

#[test]
fn save_over_the_limit_of_the_file_size_does_not_end_the_program() {
    isolated(|| {
        let _session = start();
        let folder = Folder::new("limited");
        limit_file_size();
        let error = profiler_save_profile_to_file(folder.path("p.json")).expect_err("the limit");
        let SaveError::Io { error, action, .. } = error else {
            panic!("{error}")
        };
        assert_eq!((error.raw_os_error(), action), (Some(libc::EFBIG), "write"));
        assert_eq!(folder.names(), [""; 0]);
    });
}

#[test]
fn missing_file_in_an_unwritable_folder_is_an_error() {
    isolated(|| {
        in_unwritable_folder("other.json", false, |folder| {
            let error = profiler_save_profile_to_file(folder.path("p.json")).expect_err("no right");
            let SaveError::Io { error, action, .. } = error else {
                panic!("{error}")
            };
            assert_eq!(
                (error.raw_os_error(), action),
                (Some(libc::EACCES), "create")
            );
        });
    });
}

#[test]
fn file_with_two_names_in_an_unwritable_folder_is_refused() {
    isolated(|| {
        in_unwritable_folder("p.json", true, |folder| {
            let path = folder.path("p.json");
            let error = profiler_save_profile_to_file(&path).expect_err("the file has two names");
            assert!(error.to_string().contains("2 names"), "{error}");
            assert_is_old(&path);
        });
    });
}

#[test]
fn file_that_may_not_have_links_is_saved() {
    isolated(|| {
        let folder = Folder::new("without-links");
        let path = folder.path("p.json");
        let _session = start();
        refuse_links();
        for _ in 0..2 {
            profiler_save_profile_to_file(&path).expect("saved");
            assert_is_profile(&path);
            assert_eq!(folder.names(), ["p.json"]);
        }
    });
}

#[test]
fn file_that_is_a_mount_point_is_saved() {
    isolated(|| {
        if !is_root() {
            return;
        }
        let folder = Folder::new("mounted");
        let (path, source) = (folder.path("p.json"), folder.path("source"));
        std::fs::write(&path, "").expect("written");
        std::fs::write(&source, OLD).expect("written");
        let text = |path: &Path| std::ffi::CString::new(path.to_str().expect("UTF-8"));
        let [from, to] = [&source, &path].map(|path| text(path).expect("no zero byte"));
        let (none, slash) = (std::ptr::null(), c"/".as_ptr());
        // SAFETY: the texts end with a zero byte, and live until the calls have returned.
        let is_mounted = unsafe {
            libc::unshare(libc::CLONE_NEWNS) == 0
                && libc::mount(
                    none,
                    slash,
                    none,
                    libc::MS_REC | libc::MS_PRIVATE,
                    none.cast(),
                ) == 0
                && libc::mount(from.as_ptr(), to.as_ptr(), none, libc::MS_BIND, none.cast()) == 0
        };
        if !is_mounted {
            let error = std::io::Error::last_os_error();
            println!("!!! SKIPPED: the kernel refuses to mount a file: {error}");
            return;
        }
        let _session = start();
        profiler_save_profile_to_file(&path).expect("saved");
        assert_is_profile(&source);
        assert_eq!(folder.names(), ["p.json", "source"]);
        // SAFETY: the text ends with a zero byte.
        assert_eq!(unsafe { libc::umount2(to.as_ptr(), libc::MNT_DETACH) }, 0);
    });
}
