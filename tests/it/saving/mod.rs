//! Saving profiles to files.

mod beside_recording;
mod broken_pipes;
mod filters;
mod killed;
mod links;
mod places;

use std::ffi::CString;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::common::{Folder, Read};
use gekkota::{ProfilerSession, StartParams};

/// A user and group other than the superuser and other than [`crate::common::become_nobody`]'s.
const STRANGER: u32 = 12345;

const ROLE: &str = "GEKKOTA_TEST_ROLE";

/// Creates a folder where each user may create files, and remove only their own, as in `/tmp`.
fn sticky_folder(name: &str) -> Folder {
    let folder = Folder::new(name);
    set_mode(&folder.0, 0o1777);
    folder
}

fn set_mode(path: &Path, mode: u32) {
    let permissions = std::fs::Permissions::from_mode(mode);
    std::fs::set_permissions(path, permissions).expect("the right to change the mode");
}

/// Gives a file, or a link itself, to this user and group.
fn give_to(path: &Path, user: u32) {
    let found = std::os::unix::fs::lchown(path, Some(user), Some(user));
    found.expect("the right to change the owner");
}

fn make_fifo(path: &Path) {
    let path = CString::new(path.as_os_str().as_bytes()).expect("no zero byte");
    // SAFETY: the text ends with a zero byte.
    assert_eq!(unsafe { libc::mkfifo(path.as_ptr(), 0o666) }, 0);
    // The process's mask does not apply to this call.
    set_mode(
        Path::new(std::ffi::OsStr::from_bytes(path.as_bytes())),
        0o666,
    );
}

/// Returns whether this process may give files to other users. Says that the test is skipped if it
/// may not.
fn is_root() -> bool {
    let is_root = nix::unistd::geteuid().is_root();
    if !is_root {
        println!("!!! SKIPPED: only the superuser can give files to other users");
    }
    is_root
}

/// Makes a link to a descriptor of this process, as `/dev/stdout` is: a link to a link of the
/// kernel's, whose text names no file.
fn link_to_descriptor(link: &Path, descriptor: &impl AsRawFd) {
    let kernels_link = format!("/proc/self/fd/{}", descriptor.as_raw_fd());
    std::os::unix::fs::symlink(kernels_link, link).expect("a link");
}

/// Starts a session whose profiles are saved without function names, which take long to find.
fn start() -> ProfilerSession {
    // SAFETY: no other thread of this process uses the environment.
    unsafe { std::env::set_var("MOZ_PROFILER_SYMBOLICATE", "0") };
    ProfilerSession::start(StartParams::default()).expect("start")
}

#[track_caller]
fn assert_is_profile(path: &Path) {
    let text = std::fs::read(path).expect("the saved file");
    assert!(Read::from_text(&text).0["threads"].is_array());
}

/// Returns the command that runs this executable in a role: the test of that name.
fn command_of_role<F: FnOnce()>(role: F) -> Command {
    let name = crate::common::libtest_name(std::any::type_name_of_val(&role));
    let mut command = Command::new(std::env::current_exe().expect("path"));
    command
        .args([
            name,
            "--exact",
            "--include-ignored",
            "--nocapture",
            "--test-threads=1",
        ])
        .env(ROLE, name)
        .stdin(Stdio::null());
    command
}

/// Returns whether this process runs in the role.
fn has_role<F: FnOnce()>(role: F) -> bool {
    let name = crate::common::libtest_name(std::any::type_name_of_val(&role));
    std::env::var(ROLE).is_ok_and(|role| role == name)
}
