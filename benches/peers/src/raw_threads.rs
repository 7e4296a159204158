//! Direct access to threads and processes for the measurements: waits that report whether a signal interrupted them, forks, and refused system calls.
//!
//! **Contract** (cited below):
//! - *own memory*: the kernel reads and writes only locals of the call.
#![allow(
    unsafe_code,
    reason = "raw waits, forks and filters have no safe interface"
)]

use std::io::{Error, Result};
use std::os::fd::BorrowedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::prctl::set_no_new_privs;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, fork, read};

/// Lets the kernel refuse `perf_event_open` to the calling thread and the threads that it makes from
/// now on, as Docker's default filter does. All other calls pass.
pub(crate) fn refuse_perf_events() -> Result<()> {
    const OFFSET_OF_NUMBER: u32 = 0;
    let refusal = libc::SECCOMP_RET_ERRNO | libc::EPERM as u32;
    let number = libc::SYS_perf_event_open as u32;
    let (load, compare, answer) = (
        (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16,
        (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16,
        (libc::BPF_RET | libc::BPF_K) as u16,
    );
    let step = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let mut steps = [
        step(load, 0, 0, OFFSET_OF_NUMBER),
        step(compare, 0, 1, number),
        step(answer, 0, 0, refusal),
        step(answer, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let filter = libc::sock_fprog {
        len: steps.len() as u16,
        filter: steps.as_mut_ptr(),
    };
    set_no_new_privs()?;
    let mode = libc::c_ulong::from(libc::SECCOMP_MODE_FILTER);
    // SAFETY: *own memory*.
    Errno::result(unsafe { libc::prctl(libc::PR_SET_SECCOMP, mode, &raw const filter) })?;
    Ok(())
}

/// A system call that never returns unless a signal handler interrupts it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum EndlessCall {
    /// A poll of a pipe that is never written to.
    Poll,
    Futex,
    Nanosleep,
    /// A read of the same pipe. Only this call resumes by itself after a handler with `SA_RESTART`.
    Read,
}

impl EndlessCall {
    pub(crate) const ALL: [Self; 4] = [Self::Poll, Self::Futex, Self::Nanosleep, Self::Read];

    /// Makes the call once, on a pipe that is never written to. Returns whether a signal
    /// interrupted it.
    pub(crate) fn make(self, pipe: BorrowedFd<'_>) -> bool {
        let forever = libc::timespec {
            tv_sec: 1_000_000,
            tv_nsec: 0,
        };
        let called = |call: &dyn Fn() -> libc::c_long| Errno::result(call()).map(drop);
        let answer = match self {
            Self::Poll => {
                let mut asked = [PollFd::new(pipe, PollFlags::POLLIN)];
                poll(&mut asked, PollTimeout::NONE).map(drop)
            }
            Self::Futex => {
                let word = 0u32;
                let operation = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
                // SAFETY: *own memory*.
                called(&|| unsafe {
                    libc::syscall(libc::SYS_futex, &word, operation, word, &forever)
                })
            }
            // SAFETY: *own memory*.
            Self::Nanosleep => {
                called(&|| unsafe { libc::nanosleep(&forever, std::ptr::null_mut()).into() })
            }
            Self::Read => read(pipe, &mut [0]).map(drop),
        };
        answer == Err(Errno::EINTR)
    }
}

/// Forks a child that calls `body` and exits, and waits for it. If the process has several threads,
/// `body` calls only what is allowed in the child then.
pub(crate) fn fork_and_wait(body: impl FnOnce()) -> Result<()> {
    // SAFETY: the child only calls what the caller allows, and `_exit`, which is async-signal-safe.
    let child = match unsafe { fork()? } {
        ForkResult::Parent { child } => child,
        ForkResult::Child => {
            let failed = catch_unwind(AssertUnwindSafe(body)).is_err();
            // SAFETY: as above.
            unsafe { libc::_exit(failed.into()) }
        }
    };
    loop {
        match waitpid(child, None) {
            Err(Errno::EINTR) => {}
            Ok(WaitStatus::Exited(_, 0)) => return Ok(()),
            other => return Err(Error::other(format!("a forked child ended: {other:?}"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refuse_perf_events_refuses_no_other_call() {
        let refused = std::thread::spawn(|| {
            refuse_perf_events().expect("a filter");
            // SAFETY: the kernel refuses the call before it reads anything.
            let event = unsafe { libc::syscall(libc::SYS_perf_event_open, 0, 0, -1, -1, 0) };
            (event, Error::last_os_error().raw_os_error())
        });
        let refused = refused.join().expect("no panic");
        assert_eq!(refused, (-1, Some(libc::EPERM)));
    }

    #[test]
    fn fork_and_wait_returns() {
        fork_and_wait(|| ()).expect("a fork");
    }
}
