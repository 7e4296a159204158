//! Waits for child processes.

use std::time::{Duration, Instant};

use crate::gate;
use crate::watchdog;

/// Interval between two calls of the caller's function.
const SLICE: Duration = Duration::from_millis(20);

/// Waits until a child ends, calls `meanwhile` from time to time, and returns the status. If the
/// child takes longer than `patience`, reports where its threads are, kills it and panics.
pub fn wait(
    child: libc::pid_t,
    what: &str,
    patience: Duration,
    mut meanwhile: impl FnMut(),
) -> libc::c_int {
    // SAFETY: takes two numbers, and returns a new descriptor.
    let open = || unsafe { libc::syscall(libc::SYS_pidfd_open, child, 0) } as libc::c_int;
    let watch = gate::with_descriptors(open);
    let error = std::io::Error::last_os_error();
    assert!(watch >= 0, "pidfd_open: {error}");
    let end = Instant::now() + patience;
    let mut polled = libc::pollfd {
        fd: watch,
        events: libc::POLLIN,
        revents: 0,
    };
    let mut ended = false;
    while !ended && Instant::now() < end {
        meanwhile();
        // SAFETY: the array of one descriptor is a local.
        ended = unsafe { libc::poll(&mut polled, 1, SLICE.as_millis() as i32) } > 0;
    }
    // SAFETY: the descriptor is closed once.
    unsafe { libc::close(watch) };
    if !ended {
        eprintln!("storm: {what} does not end");
        watchdog::describe_process(child);
        // SAFETY: the child was not waited for yet, so its id is still its own.
        unsafe { libc::kill(child, libc::SIGKILL) };
    }
    let status = status_of(child);
    assert!(ended, "{what} did not end within {patience:?}");
    status
}

fn status_of(child: libc::pid_t) -> libc::c_int {
    let mut status = 0;
    // SAFETY: the kernel writes the status to a local.
    while unsafe { libc::waitpid(child, &mut status, 0) } != child {
        let error = std::io::Error::last_os_error();
        assert_eq!(error.raw_os_error(), Some(libc::EINTR), "waitpid: {error}");
    }
    status
}

/// Forks, and returns the status of the child, which exits with the result of `body`.
pub fn fork_and_wait(body: impl FnOnce() -> libc::c_int) -> libc::c_int {
    // SAFETY: the fork handlers of glibc and of the profiler let the child call any function.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "fork: {}", std::io::Error::last_os_error());
    if child == 0 {
        let code = body();
        // SAFETY: the call ends the process.
        unsafe { libc::_exit(code) };
    }
    status_of(child)
}
