//! A CPU timer of one thread. It interrupts the thread on the thread's own processor; no other
//! processor takes part.
//!
//! The timer is an event of the kernel's software CPU clock (`perf_event_open`), which sends a
//! signal after each interval of the thread's CPU time. The event lives as long as its page is
//! mapped, so the descriptor need not stay open (async-profiler #855). A timer cannot be created
//! where the kernel denies such events to ordinary users, or where a sandbox forbids the call. Only
//! a thread with a descriptor table of its own creates timers: the child of a fork would inherit an
//! open event, and the application could replace its descriptor.
//!
//! **Contract** (cited below):
//! - *kernel's layouts*: the structures are those of `linux/perf_event.h` and `fcntl.h`, and live
//!   as long as the call;
//! - *ours*: the page is mapped here, and unmapped once, on drop;
//! - *just opened*: the kernel has just returned the descriptor, in a table that only threads of
//!   the profiler use.

use std::io;
use std::num::NonZeroUsize;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};
use nix::sys::resource::{Resource, getrlimit};

use crate::platform::perf_event::{EventAttributes, EventPlace, open_event};
use crate::platform::sandbox::may_make_uncommon_call;
use crate::platform::thread::has_own_descriptors;
use crate::types::ThreadId;

/// `PERF_TYPE_SOFTWARE`.
const SOFTWARE: u32 = 1;
/// `PERF_COUNT_SW_CPU_CLOCK`.
const CPU_CLOCK: u64 = 0;
const DISABLED: u64 = 1;
/// Excludes time in the kernel. Set only if the kernel allows ordinary users nothing else. An
/// expiry during a system call is then lost.
const EXCLUDE_KERNEL: u64 = 1 << 5;
const EXCLUDE_HYPERVISOR: u64 = 1 << 6;
/// Limit of open files above which events get no higher numbers. Signals carry an event's number,
/// which is free again once the event is mapped. A number near the middle is unlikely to be a
/// descriptor of the application.
const MAX_LIMIT: u64 = 1024;
/// `PERF_EVENT_IOC_ENABLE`.
const ENABLE: libc::Ioctl = 0x2400;
const PAGE: NonZeroUsize = NonZeroUsize::new(4096).unwrap();

/// The kernel's `struct f_owner_ex`.
#[repr(C)]
struct Owner {
    kind: libc::c_int,
    thread: libc::pid_t,
}
/// `F_OWNER_TID`.
const A_THREAD: libc::c_int = 0;
/// `F_SETOWN_EX`.
const SET_OWNER: libc::c_int = 15;
/// `F_SETSIG`.
const SET_SIGNAL: libc::c_int = 10;

/// A timer of one thread, deleted on drop.
#[derive(Debug)]
pub(crate) struct ThreadTimer {
    page: NonNull<libc::c_void>,
}

// SAFETY: *ours*: a mapping belongs to the process, not to a thread.
unsafe impl Send for ThreadTimer {}

impl ThreadTimer {
    /// Starts a timer that sends `signal` to a thread of this process after each `interval_ns` of
    /// its CPU time. Calls `announce` with the descriptor number that the signals carry, before the
    /// first signal is sent. Cost: about 60 µs.
    ///
    /// # Errors
    /// The error of the operating system; `Unsupported` for a real-time signal, in a sandbox, and
    /// if the calling thread shares the application's descriptor table.
    pub(crate) fn start(
        thread: ThreadId,
        interval_ns: u64,
        signal: i32,
        announce: impl FnOnce(i32),
    ) -> io::Result<Self> {
        // If a real-time signal finds its queue full, the kernel sends SIGIO instead, whose default
        // action kills the process.
        if signal >= libc::SIGRTMIN() || !has_own_descriptors() || !may_make_uncommon_call() {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let mut attributes = EventAttributes {
            kind: SOFTWARE,
            size: size_of::<EventAttributes>() as u32,
            config: CPU_CLOCK,
            sample_period: interval_ns,
            flags: DISABLED | EXCLUDE_HYPERVISOR,
            wakeup_events: 1,
            ..EventAttributes::default()
        };
        let event = open_timer_event(&attributes, thread).or_else(|error| {
            attributes.flags |= EXCLUDE_KERNEL;
            match error {
                Errno::EACCES | Errno::EPERM => open_timer_event(&attributes, thread),
                _ => Err(error),
            }
        })?;
        // The mapping keeps the event alive when its descriptor is closed.
        let timer = Self::map(&event)?;
        announce(event.as_raw_fd());
        enable_for_thread(&event, thread, signal)?;
        Ok(timer)
    }

    /// Maps the event's page.
    fn map(event: &OwnedFd) -> nix::Result<Self> {
        let (protection, flags) = (ProtFlags::PROT_READ, MapFlags::MAP_SHARED);
        // SAFETY: a new mapping at an address chosen by the kernel does not affect memory in use.
        let page = unsafe { mmap(None, PAGE, protection, flags, event, 0) }?;
        Ok(Self { page })
    }
}

/// Returns the lowest descriptor number for an event of this copy of the crate: one in the third
/// quarter of the numbers below `limit`. Two copies in a process whose numbers are equal, once in
/// 256 pairs with the usual limit, take each other's events for their own.
fn min_descriptor(limit: u64) -> libc::c_int {
    let quarter = (limit.min(MAX_LIMIT) / 4).max(1) as libc::c_int;
    let page = (min_descriptor as fn(u64) -> libc::c_int as usize / PAGE.get()) as libc::c_int;
    2 * quarter + page.rem_euclid(quarter)
}

/// Opens the event on a descriptor of at least [`min_descriptor`].
///
/// # Errors
/// The kernel refuses the event, or no such descriptor is free.
fn open_timer_event(attributes: &EventAttributes, thread: ThreadId) -> nix::Result<OwnedFd> {
    let event = open_event(attributes, EventPlace::Thread(thread.to_number()))?;
    let (limit, _) = getrlimit(Resource::RLIMIT_NOFILE)?;
    let high = fcntl(&event, FcntlArg::F_DUPFD_CLOEXEC(min_descriptor(limit)))?;
    // SAFETY: *just opened*.
    Ok(unsafe { OwnedFd::from_raw_fd(high) })
}

/// Directs the event's signals to the thread, and enables the event. `nix` lacks the requests that
/// set a descriptor's owner and signal, and the one that enables an event.
fn enable_for_thread(event: &OwnedFd, thread: ThreadId, signal: i32) -> nix::Result<()> {
    let owner = Owner {
        kind: A_THREAD,
        thread: thread.to_number(),
    };
    let number = event.as_raw_fd();
    // SAFETY: *kernel's layouts*.
    Errno::result(unsafe { libc::fcntl(number, SET_OWNER, &raw const owner) })?;
    // SAFETY: accesses no memory.
    Errno::result(unsafe { libc::fcntl(number, SET_SIGNAL, signal) })?;
    let flags = OFlag::O_ASYNC | OFlag::O_NONBLOCK;
    fcntl(event, FcntlArg::F_SETFL(flags))?;
    // The calls since the last question took some tens of microseconds.
    if !may_make_uncommon_call() {
        return Err(Errno::EPERM);
    }
    // SAFETY: accesses no memory.
    Errno::result(unsafe { libc::ioctl(number, ENABLE, 0) }).map(drop)
}

impl Drop for ThreadTimer {
    fn drop(&mut self) {
        // SAFETY: *ours*. Unmapping the page deletes the event.
        let _ = unsafe { munmap(self.page, PAGE.get()) };
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{RecvError, channel};

    use nix::sys::wait::{WaitStatus, waitpid};
    use nix::unistd::{ForkResult, fork};

    use super::*;
    use crate::platform::current_thread_id;
    use crate::platform::thread::use_own_descriptors;

    const NEVER_NS: u64 = 1 << 60;

    /// Returns the number of events among the descriptors of this process.
    fn open_events() -> usize {
        let entries = std::fs::read_dir("/proc/self/fd").expect("descriptors");
        let targets = entries.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
        targets
            .filter(|target| target.to_string_lossy().contains("perf_event"))
            .count()
    }

    #[test]
    fn child_that_is_forked_while_a_timer_starts_has_no_event() {
        let (ask, asked) = channel();
        let (answer, answered) = channel();
        let starts = std::thread::spawn(move || {
            assert!(use_own_descriptors());
            // The event is open during this call.
            let announce = |_| {
                ask.send(()).expect("the test forks");
                answered.recv().expect("the test has forked");
            };
            ThreadTimer::start(current_thread_id(), NEVER_NS, libc::SIGURG, announce)
        });
        if asked.recv() == Err(RecvError) {
            let refusal = starts
                .join()
                .expect("thread")
                .expect_err("nothing was announced");
            println!("!!! SKIPPED: the kernel refuses timers: {refusal}");
            return;
        }
        // SAFETY: glibc lets the child of a program with threads call any function.
        let child = match unsafe { fork() }.expect("a child") {
            ForkResult::Parent { child } => child,
            ForkResult::Child => {
                let events = std::panic::catch_unwind(open_events).unwrap_or(99);
                // SAFETY: ends the process.
                unsafe { libc::_exit(events as i32) }
            }
        };
        let status = waitpid(child, None).expect("the child's status");
        answer.send(()).expect("the thread waits");
        starts.join().expect("thread").expect("a timer");
        assert_eq!(status, WaitStatus::Exited(child, 0), "events in the child");
    }

    #[test]
    fn events_get_numbers_below_any_limit() {
        for limit in [4, 5, 64, 256, 512, 1024, 1 << 20] {
            let number = u64::from(min_descriptor(limit).unsigned_abs());
            let half = limit.min(MAX_LIMIT) / 4 * 2;
            assert!((half..limit).contains(&number), "{number} of {limit}");
        }
    }

    #[test]
    fn thread_that_shares_its_descriptors_gets_no_timer() {
        let announce = |number| panic!("event {number} is open");
        let error = ThreadTimer::start(current_thread_id(), NEVER_NS, libc::SIGURG, announce)
            .expect_err("the application could replace the event's descriptor");
        assert_eq!(error.kind(), io::ErrorKind::Unsupported);
    }
}
