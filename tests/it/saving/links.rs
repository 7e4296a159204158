//! Saving follows a symbolic link only where a stranger cannot have planted it.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::AsRawFd;
use std::os::unix::fs::symlink;
use std::path::Path;

use crate::common::{Read, isolated};
use crate::saving::{
    Folder, STRANGER, assert_is_profile, give_to, is_root, link_to_descriptor, make_fifo, set_mode,
    start, sticky_folder,
};
use gekkota::{SaveError, profiler_save_profile_to_file};

const OLD: &str = "the victim's file";

/// Saves to a path that leads to `victim` through a stranger's link, and asserts that saving is
/// refused and does not change the file.
#[track_caller]
fn assert_refused(path: &Path, victim: &Path) {
    std::fs::write(victim, OLD).expect("written");
    let refused = profiler_save_profile_to_file(path).expect_err("a stranger's file");
    let is_denied = |error: &std::io::Error| error.kind() == std::io::ErrorKind::PermissionDenied;
    assert!(
        matches!(&refused, SaveError::Io { error, .. } if is_denied(error)),
        "{refused}"
    );
    let text = refused.to_string();
    assert!(
        text.contains(&format!("user {STRANGER}")) && text.contains("expected"),
        "{text}"
    );
    assert_eq!(std::fs::read_to_string(victim).expect("the file"), OLD);
}

/// Saves to a link, and asserts that the target is a profile and the link is still there.
#[track_caller]
fn assert_followed(link: &Path, target: &Path) {
    profiler_save_profile_to_file(link).expect("saved");
    assert_is_profile(target);
    let metadata = std::fs::symlink_metadata(link).expect("the link");
    assert!(metadata.is_symlink(), "saving to a link keeps the link");
}

#[test]
fn strangers_link_in_a_sticky_folder_is_refused() {
    isolated(|| {
        if !is_root() {
            return;
        }
        let _session = start();
        let (sticky, home) = (sticky_folder("sticky"), Folder::new("home"));
        let (link, victim) = (sticky.path("p.json"), home.path("victim"));
        symlink(&victim, &link).expect("a link");
        give_to(&link, STRANGER);
        assert_refused(&link, &victim);
        assert_eq!(sticky.names(), ["p.json"]);
        assert_eq!(home.names(), ["victim"]);
    });
}

#[test]
fn own_link_to_a_strangers_link_is_refused() {
    isolated(|| {
        if !is_root() {
            return;
        }
        let _session = start();
        let (sticky, home) = (sticky_folder("sticky"), Folder::new("home"));
        let (planted, victim) = (sticky.path("planted"), home.path("victim"));
        symlink(&victim, &planted).expect("a link");
        give_to(&planted, STRANGER);
        let own = home.path("p.json");
        symlink(&planted, &own).expect("a link");
        assert_refused(&own, &victim);
        assert_eq!(home.names(), ["p.json", "victim"]);
    });
}

#[test]
fn own_link_in_a_sticky_folder_is_followed() {
    isolated(|| {
        let _session = start();
        let (sticky, home) = (sticky_folder("sticky"), Folder::new("home"));
        let (link, target) = (sticky.path("p.json"), home.path("target.json"));
        symlink(&target, &link).expect("a link");
        assert_followed(&link, &target);
        // Once the target exists, too.
        assert_followed(&link, &target);
        assert_eq!(sticky.names(), ["p.json"]);
        assert_eq!(home.names(), ["target.json"]);
    });
}

#[test]
fn link_of_the_sticky_folders_owner_is_followed() {
    isolated(|| {
        if !is_root() {
            return;
        }
        let _session = start();
        let (sticky, home) = (sticky_folder("sticky"), Folder::new("home"));
        let (link, target) = (sticky.path("p.json"), home.path("target.json"));
        symlink(&target, &link).expect("a link");
        give_to(&link, STRANGER);
        give_to(&sticky.0, STRANGER);
        assert_followed(&link, &target);
    });
}

#[test]
fn strangers_link_in_a_folder_that_is_not_sticky_is_followed() {
    isolated(|| {
        if !is_root() {
            return;
        }
        let _session = start();
        let (shared, home) = (Folder::new("shared"), Folder::new("home"));
        set_mode(&shared.0, 0o777);
        let (link, target) = (shared.path("p.json"), home.path("target.json"));
        symlink(&target, &link).expect("a link");
        give_to(&link, STRANGER);
        assert_followed(&link, &target);
    });
}

#[test]
fn chain_of_relative_links_is_followed() {
    isolated(|| {
        let _session = start();
        let home = Folder::new("home");
        std::fs::create_dir(home.path("inner")).expect("a folder");
        symlink("../middle.json", home.path("inner/p.json")).expect("a link");
        symlink("inner/../target.json", home.path("middle.json")).expect("a link");
        assert_followed(&home.path("inner/p.json"), &home.path("target.json"));
        assert!(home.path("middle.json").is_symlink());
    });
}

#[test]
fn circle_of_links_is_an_error() {
    isolated(|| {
        let _session = start();
        let home = Folder::new("home");
        symlink("b.json", home.path("a.json")).expect("a link");
        symlink("a.json", home.path("b.json")).expect("a link");
        let error = profiler_save_profile_to_file(home.path("a.json")).expect_err("a circle");
        let SaveError::Io { error, .. } = error else {
            panic!("{error}")
        };
        assert_eq!(error.raw_os_error(), Some(libc::ELOOP), "{error}");
        assert_eq!(home.names(), ["a.json", "b.json"]);
    });
}

#[test]
fn strangers_pipe_in_a_sticky_folder_is_refused() {
    isolated(|| {
        if !is_root() {
            return;
        }
        let _session = start();
        let (sticky, home) = (sticky_folder("sticky"), Folder::new("home"));
        let fifo = sticky.path("p.json");
        make_fifo(&fifo);
        give_to(&fifo, STRANGER);
        // Opened for writing, too, so that a save would neither block nor fail.
        let reader = std::fs::File::options().read(true).write(true).open(&fifo);
        let mut reader = reader.expect("the pipe");
        std::thread::spawn(move || while reader.read(&mut [0; 4096]).is_ok() {});
        assert_refused(&fifo, &home.path("victim"));
    });
}

#[test]
fn own_pipe_in_a_sticky_folder_is_written() {
    isolated(|| {
        let _session = start();
        let sticky = sticky_folder("sticky");
        let fifo = sticky.path("p.json");
        make_fifo(&fifo);
        let reader = {
            let fifo = fifo.clone();
            std::thread::spawn(move || std::fs::read(fifo).expect("the profile"))
        };
        profiler_save_profile_to_file(&fifo).expect("written");
        Read::from_text(&reader.join().expect("the reader"));
        assert_eq!(sticky.names(), ["p.json"]);
    });
}

#[test]
fn pipe_that_nobody_reads_is_an_error() {
    isolated(|| {
        let _session = start();
        let home = Folder::new("home");
        let fifo = home.path("p.json");
        make_fifo(&fifo);
        let saved = || profiler_save_profile_to_file(&fifo).expect_err("nobody reads");
        let unopened = saved().to_string();
        assert!(unopened.contains("got no reader"), "{unopened}");
        let reader = File::options().read(true).write(true).open(&fifo);
        let reader = reader.expect("the pipe");
        // SAFETY: the call accesses no memory of the process.
        let size = unsafe { libc::fcntl(reader.as_raw_fd(), libc::F_SETPIPE_SZ, 4096) };
        assert_eq!(size, 4096);
        let unread = saved().to_string();
        assert!(
            unread.contains("got a reader that reads nothing"),
            "{unread}"
        );
    });
}

#[test]
fn descriptor_of_a_pipe_is_written() {
    isolated(|| {
        let _session = start();
        let (mut reader, writer) = std::io::pipe().expect("a pipe");
        let reader = std::thread::spawn(move || {
            let mut text = Vec::new();
            reader.read_to_end(&mut text).expect("the profile");
            text
        });
        let home = Folder::new("home");
        let link = home.path("stdout");
        link_to_descriptor(&link, &writer);
        profiler_save_profile_to_file(&link).expect("written");
        drop(writer);
        Read::from_text(&reader.join().expect("the reader"));
        assert_eq!(home.names(), ["stdout"]);
    });
}

#[test]
fn descriptor_of_a_file_replaces_the_file() {
    isolated(|| {
        let _session = start();
        let home = Folder::new("home");
        let path = home.path("p.json");
        let mut file = std::fs::File::create(&path).expect("a file");
        file.write_all(b"older").expect("written");
        profiler_save_profile_to_file(format!("/dev/fd/{}", file.as_raw_fd())).expect("saved");
        assert_is_profile(&path);
        assert_eq!(home.names(), ["p.json"]);
    });
}
