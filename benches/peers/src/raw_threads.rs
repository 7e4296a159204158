//! Direct access to threads and processes for the measurements: their CPU clocks and processors,
//! waits that report whether a signal interrupted them, forks, and refused system calls.
//!
//! **Contract** (cited below):
//! - *own memory*: the kernel reads and writes only locals of the call.
#![allow(
    unsafe_code,
    reason = "clocks, processors, raw waits, forks and filters have no safe interface"
)]

use std::io::{Error, Result};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Returns the CPU time of a thread of this process, as the thread itself would read it with
/// `CLOCK_THREAD_CPUTIME_ID`; `None` if there is no such thread.
pub(crate) fn cpu_ns_of(thread: i32) -> Option<u64> {
    // The kernel's encoding: the complement of the id above three bits; 4 means a thread, 2 the
    // scheduler's clock.
    let clock: libc::clockid_t = (!thread << 3) | 6;
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: *own memory*.
    let answer = unsafe { libc::clock_gettime(clock, &mut time) };
    (answer == 0).then(|| time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

/// Lets the calling thread run only on one of the processors that it may use: the one at `place` in
/// their list, which starts again at its end.
pub(crate) fn pin_to(place: usize) -> Result<()> {
    let size = size_of::<libc::cpu_set_t>();
    // SAFETY: all zeros is a valid set.
    let (mut allowed, mut one): (libc::cpu_set_t, libc::cpu_set_t) =
        unsafe { (std::mem::zeroed(), std::mem::zeroed()) };
    // SAFETY: *own memory*.
    if unsafe { libc::sched_getaffinity(0, size, &mut allowed) } != 0 {
        return Err(Error::last_os_error());
    }
    let has = |processor: &usize| {
        // SAFETY: the number is below the size of the set.
        unsafe { libc::CPU_ISSET(*processor, &allowed) }
    };
    let processors: Vec<usize> = (0..libc::CPU_SETSIZE as usize).filter(has).collect();
    let Some(place) = place.checked_rem(processors.len()) else {
        return Err(Error::other("the thread may use no processor"));
    };
    // SAFETY: the number is below the size of the set.
    unsafe { libc::CPU_SET(processors[place], &mut one) };
    // SAFETY: *own memory*.
    match unsafe { libc::sched_setaffinity(0, size, &one) } {
        0 => Ok(()),
        _ => Err(Error::last_os_error()),
    }
}

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
    let (on, unused): (libc::c_ulong, libc::c_ulong) = (1, 0);
    let mode = libc::c_ulong::from(libc::SECCOMP_MODE_FILTER);
    // SAFETY: the first option takes numbers only; *own memory* in the second.
    let is_set = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, on, unused, unused, unused) == 0
            && libc::prctl(libc::PR_SET_SECCOMP, mode, &raw const filter) == 0
    };
    match is_set {
        true => Ok(()),
        false => Err(Error::last_os_error()),
    }
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
        let descriptor = pipe.as_raw_fd();
        // SAFETY: *own memory* in all four; the descriptor is open while it is borrowed.
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
                    libc::syscall(libc::SYS_futex, &word, operation, word, &forever)
                }
                Self::Nanosleep => libc::nanosleep(&forever, std::ptr::null_mut()).into(),
                Self::Read => {
                    let mut byte = 0u8;
                    libc::read(descriptor, (&raw mut byte).cast(), 1) as libc::c_long
                }
            }
        };
        answer == -1 && Error::last_os_error().raw_os_error() == Some(libc::EINTR)
    }
}

/// Forks a child that calls `body` and exits, and waits for it. If the process has several threads,
/// `body` calls only what is allowed in the child then.
pub(crate) fn fork_and_wait(body: impl FnOnce()) -> Result<()> {
    // SAFETY: `_exit` is async-signal-safe; *own memory*.
    unsafe {
        let child = libc::fork();
        if child == 0 {
            let failed = catch_unwind(AssertUnwindSafe(body)).is_err();
            libc::_exit(failed.into());
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
            "a forked child exited with status {status:#x}"
        )))
    }
}

/// Disables huge pages from now on, so that a fork has to copy a page table entry for each small
/// page.
pub(crate) fn use_small_pages() -> Result<()> {
    let (on, unused): (libc::c_ulong, libc::c_ulong) = (1, 0);
    // SAFETY: the option takes numbers only.
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
    fn cpu_ns_of_reads_a_threads_clock_by_its_id() {
        let own = raw::thread_id();
        let before = cpu_ns_of(own).expect("own clock");
        while cpu_ns_of(own).expect("own clock") < before + 1_000_000 {}
        assert!(raw::thread_cpu_ns() >= before + 1_000_000);
    }

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
