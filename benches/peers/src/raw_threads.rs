//! What the measurements ask of the kernel about other threads and processes: their clocks, waits that tell when a signal
//! has broken them off, and forks.
//!
//! **Contract** (cited below):
//! - *own memory*: the kernel reads and writes locals of the call alone.
#![allow(
    unsafe_code,
    reason = "clocks, raw waits and forks have no safe interface"
)]

use std::io::{Error, Result};
use std::os::fd::{AsRawFd, BorrowedFd};

/// CPU time of a thread of this process, by `CLOCK_THREAD_CPUTIME_ID` as the thread itself would read it; `None` when
/// there is no such thread.
pub(crate) fn cpu_ns_of(thread: i32) -> Option<u64> {
    // The kernel's encoding: the id's complement above three bits, 4 for "a thread" and 2 for "as the scheduler counts".
    let clock: libc::clockid_t = (!thread << 3) | 6;
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: *own memory*.
    let answer = unsafe { libc::clock_gettime(clock, &mut time) };
    (answer == 0).then(|| time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

/// A system call that lasts for ever, unless a signal's handler breaks it off.
#[derive(Clone, Copy, Debug)]
pub(crate) enum EndlessCall {
    /// Of a descriptor on which nothing comes.
    Poll,
    Futex,
    Nanosleep,
    /// Of the same descriptor. It is the one that goes on by itself after a handler with `SA_RESTART`.
    Read,
}

impl EndlessCall {
    pub(crate) const ALL: [Self; 4] = [Self::Poll, Self::Futex, Self::Nanosleep, Self::Read];

    /// Makes it once, on a pipe that nobody writes to; true when it was broken off.
    pub(crate) fn make(self, pipe: BorrowedFd<'_>) -> bool {
        let for_ever = libc::timespec {
            tv_sec: 1_000_000,
            tv_nsec: 0,
        };
        let descriptor = pipe.as_raw_fd();
        // SAFETY: *own memory* in all four; the descriptor is open as long as it is borrowed.
        let answer = unsafe {
            match self {
                Self::Poll => {
                    let mut asked = libc::pollfd {
                        fd: descriptor,
                        events: libc::POLLIN,
                        revents: 0,
                    };
                    libc::poll(&mut asked, 1, -1).into()
                }
                Self::Futex => {
                    let word = 0u32;
                    let operation = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
                    libc::syscall(libc::SYS_futex, &word, operation, word, &for_ever)
                }
                Self::Nanosleep => libc::nanosleep(&for_ever, std::ptr::null_mut()).into(),
                Self::Read => {
                    let mut byte = 0u8;
                    libc::read(descriptor, (&raw mut byte).cast(), 1) as libc::c_long
                }
            }
        };
        answer == -1 && Error::last_os_error().raw_os_error() == Some(libc::EINTR)
    }
}

/// Forks, has the child end at once, and waits until it has.
pub(crate) fn fork_and_wait() -> Result<()> {
    // SAFETY: the child calls nothing but `_exit`, which is async-signal-safe; *own memory*.
    unsafe {
        let child = libc::fork();
        if child == 0 {
            libc::_exit(0);
        }
        if child < 0 {
            return Err(Error::last_os_error());
        }
        let mut status = 0;
        while libc::waitpid(child, &mut status, 0) < 0 {
            let error = Error::last_os_error();
            if error.raw_os_error() != Some(libc::EINTR) {
                return Err(error);
            }
        }
        if libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0 {
            return Ok(());
        }
        Err(Error::other(format!(
            "a forked child ended with the status {status:#x}"
        )))
    }
}

/// From now on, memory comes in the smallest pages alone, so that a fork has all of their entries to copy.
pub(crate) fn use_small_pages() -> Result<()> {
    let (on, unused): (libc::c_ulong, libc::c_ulong) = (1, 0);
    // SAFETY: the option takes numbers alone.
    let answer = unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, on, unused, unused, unused) };
    if answer < 0 {
        Err(Error::last_os_error())
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::raw;

    #[test]
    fn a_threads_clock_is_found_by_its_id() {
        let own = raw::thread_id();
        let before = cpu_ns_of(own).expect("own clock");
        while cpu_ns_of(own).expect("own clock") < before + 1_000_000 {}
        assert!(raw::thread_cpu_ns() >= before + 1_000_000);
    }

    #[test]
    fn a_fork_comes_back() {
        fork_and_wait().expect("a fork");
    }
}
