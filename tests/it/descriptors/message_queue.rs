//! A POSIX message queue of the application. The kernel removes a registration with `mq_notify` when
//! the process closes any descriptor of the queue, and a thread that leaves the shared table closes
//! copies.

use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::FileExt;

use nix::errno::Errno;

use super::Sampled;
use crate::common::isolated;

/// Opens a queue without a name; `None` if the kernel has none.
fn open_queue() -> Option<File> {
    let name = std::ffi::CString::new(format!("gekkota-{}", std::process::id())).expect("a name");
    let (flags, mode) = (
        libc::O_CREAT | libc::O_EXCL | libc::O_RDWR | libc::O_CLOEXEC,
        0o600,
    );
    let attributes = std::ptr::null::<libc::mq_attr>();
    // SAFETY: the kernel reads the name; without attributes, the queue has the usual ones.
    let number =
        unsafe { libc::syscall(libc::SYS_mq_open, name.as_ptr(), flags, mode, attributes) };
    if number < 0 {
        assert_eq!(Errno::last(), Errno::ENOSYS);
        return None;
    }
    // SAFETY: the kernel reads the name.
    let unlinked = unsafe { libc::syscall(libc::SYS_mq_unlink, name.as_ptr()) };
    assert_eq!(unlinked, 0);
    // SAFETY: the descriptor was just opened.
    Some(unsafe { File::from_raw_fd(number as i32) })
}

/// Asks for a signal when a message arrives.
fn register(queue: &File) {
    // SAFETY: zeros are valid for this structure.
    let mut event: libc::sigevent = unsafe { std::mem::zeroed() };
    event.sigev_notify = libc::SIGEV_SIGNAL;
    event.sigev_signo = libc::SIGUSR1;
    let number = queue.as_raw_fd();
    // SAFETY: the kernel reads the structure.
    let answer = unsafe { libc::syscall(libc::SYS_mq_notify, number, &raw const event) };
    assert_eq!(answer, 0);
}

/// Returns whether this process is registered for messages of the queue.
fn is_registered(queue: &File) -> bool {
    let mut text = [0; 200];
    let length = queue.read_at(&mut text, 0).expect("the queue's state");
    let text = String::from_utf8_lossy(&text[..length]).into_owned();
    let (_, process) = text.split_once("NOTIFY_PID:").expect("a process");
    process.trim() == std::process::id().to_string()
}

#[test]
fn registration_with_a_message_queue_survives_a_session_and_a_save() {
    isolated(|| {
        let Some(queue) = open_queue() else {
            println!("!!! SKIPPED: the kernel has no message queues");
            return;
        };
        register(&queue);
        assert!(is_registered(&queue));
        let sampled = Sampled::start(1);
        assert!(is_registered(&queue), "after the sampler has begun");
        drop(sampled.sleepers);
        let profile = sampled.session.finish().expect("profile");
        let path = std::env::temp_dir().join(format!("gekkota-queue-{}", std::process::id()));
        profile.save(&path).expect("saved");
        std::fs::remove_file(&path).expect("removed");
        assert!(is_registered(&queue), "after the profile was saved");
    });
}
