//! An event of one thread's own CPU clock. It interrupts the thread on the thread's own processor.
//!
//! The event is one of the kernel's task clock (`perf_event_open`), which sends a signal after each
//! period of the thread's CPU time: exactly then, while a POSIX timer would wait for the kernel's
//! next tick, which may be in step with the application. An event cannot be created where the kernel
//! denies events to ordinary users, or where a sandbox forbids the call. Only a thread with a
//! descriptor table of its own creates events: the child of a fork would inherit them, and the
//! application could replace their descriptors (async-profiler #855).
//!
//! **Contract** (cited below):
//! - *kernel's layouts*: the structures are those of `linux/perf_event.h` and `fcntl.h`, and live
//!   as long as the call;
//! - *just opened*: the kernel has just returned the descriptor, in a table that only threads of
//!   the profiler use.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::resource::{Resource, getrlimit};

use crate::platform::perf_event::{EventAttributes, EventPlace, open_event};
use crate::platform::sandbox::may_make_uncommon_call;
use crate::platform::thread::own_descriptors::has_own_descriptors;
use crate::types::ThreadId;

/// `PERF_TYPE_SOFTWARE`.
const SOFTWARE: u32 = 1;
/// `PERF_COUNT_SW_TASK_CLOCK`.
const TASK_CLOCK: u64 = 1;
const DISABLED: u64 = 1;
/// Excludes time in the kernel. Set only if the kernel allows ordinary users nothing else. A period
/// that ends during a system call has no signal then.
const EXCLUDE_KERNEL: u64 = 1 << 5;
const EXCLUDE_HYPERVISOR: u64 = 1 << 6;
/// Limit of the numbers of events. A signal carries its event's number. One near the middle is
/// unlikely to be a descriptor of an event of the application.
pub(crate) const EVENT_NUMBERS: usize = 1024;
/// `PERF_EVENT_IOC_ENABLE`.
const ENABLE: libc::Ioctl = 0x2400;
/// `PERF_EVENT_IOC_PERIOD`.
const SET_PERIOD: libc::Ioctl = 0x4008_2404;

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

/// An event of one thread, deleted on drop. It is dropped on the thread that created it.
#[derive(Debug)]
pub(crate) struct TaskClock {
    event: OwnedFd,
    counts_kernel: bool,
}

/// Why a thread gets no event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RefusedClock {
    /// No thread of the process may have one.
    Process,
    /// The thread has ended, or there are too many events.
    Thread,
}

impl TaskClock {
    /// Returns whether the calling thread may ask the kernel for an event that sends this signal.
    pub(crate) fn may_ask(signal: i32) -> bool {
        // The application may remove the handler, or call exec, while the event runs. The default
        // action of another signal ends the process then.
        signal == libc::SIGURG && has_own_descriptors() && may_make_uncommon_call()
    }

    /// Starts an event that sends `signal` to a thread of this process after each `period_ns` of its
    /// CPU time. Calls `announce` with the number that the signals carry, before the first signal is
    /// sent. Cost: about 60 µs.
    ///
    /// # Errors
    /// The kernel refuses, the process is in a sandbox, the calling thread shares the application's
    /// descriptor table, the signal is not `SIGURG`, or the thread has a real-time priority.
    pub(crate) fn start(
        thread: ThreadId,
        period_ns: u64,
        signal: i32,
        announce: impl FnOnce(i32),
    ) -> Result<Self, RefusedClock> {
        if !Self::may_ask(signal) {
            return Err(RefusedClock::Process);
        }
        // A real-time kernel sends an event's signal from a thread of its own. It reaches a thread
        // of a higher priority only in its next sleep, and ends that.
        // The system call is made directly, because musl's function does not ask the kernel.
        // SAFETY: accesses no memory.
        let policy = unsafe { libc::syscall(libc::SYS_sched_getscheduler, thread.to_number()) };
        let policy = policy as i32 & !libc::SCHED_RESET_ON_FORK;
        if [libc::SCHED_FIFO, libc::SCHED_RR, libc::SCHED_DEADLINE].contains(&policy) {
            return Err(RefusedClock::Thread);
        }
        let start = || {
            let clock = Self::open(thread, period_ns)?;
            announce(clock.event.as_raw_fd());
            enable_for_thread(&clock.event, thread, signal)?;
            Ok(clock)
        };
        start().map_err(|error| match error {
            Errno::ESRCH | Errno::EMFILE | Errno::ENFILE | Errno::ENOMEM | Errno::EINVAL => {
                RefusedClock::Thread
            }
            _ => RefusedClock::Process,
        })
    }

    /// Opens the event on a descriptor of at least [`min_descriptor`].
    fn open(thread: ThreadId, period_ns: u64) -> nix::Result<Self> {
        let place = EventPlace::Thread(thread.to_number());
        let mut attributes = EventAttributes {
            kind: SOFTWARE,
            size: size_of::<EventAttributes>() as u32,
            config: TASK_CLOCK,
            sample_period: period_ns,
            flags: DISABLED | EXCLUDE_HYPERVISOR,
            wakeup_events: 1,
            ..EventAttributes::default()
        };
        let event = open_event(&attributes, place).or_else(|error| {
            attributes.flags |= EXCLUDE_KERNEL;
            match error {
                Errno::EACCES | Errno::EPERM => open_event(&attributes, place),
                _ => Err(error),
            }
        })?;
        let (limit, _) = getrlimit(Resource::RLIMIT_NOFILE)?;
        let number = fcntl(&event, FcntlArg::F_DUPFD_CLOEXEC(min_descriptor(limit)))?;
        // SAFETY: *just opened*.
        let event = unsafe { OwnedFd::from_raw_fd(number) };
        if usize::try_from(number).is_ok_and(|number| number >= EVENT_NUMBERS) {
            return Err(Errno::EMFILE);
        }
        Ok(Self {
            event,
            counts_kernel: attributes.flags & EXCLUDE_KERNEL == 0,
        })
    }

    /// Returns whether the event also interrupts the thread in the kernel.
    pub(crate) fn counts_kernel(&self) -> bool {
        self.counts_kernel
    }

    /// Begins a period of this length now, and sets that of the later ones. Does nothing in a
    /// sandbox. Cost: about 1 µs if the thread sleeps; the processor of a running thread is
    /// interrupted.
    pub(crate) fn set_period(&self, period_ns: u64) {
        if may_make_uncommon_call() {
            // SAFETY: *kernel's layouts*: the request reads a number of 64 bits.
            unsafe { libc::ioctl(self.event.as_raw_fd(), SET_PERIOD, &raw const period_ns) };
        }
    }
}

/// Returns the lowest descriptor number for an event of this copy of the crate: one in the third
/// quarter of the numbers below `limit`. Two copies in a process whose numbers are equal, once in
/// 256 pairs with the usual limit, take each other's events for their own.
fn min_descriptor(limit: u64) -> libc::c_int {
    const PAGE_BYTES: usize = 4096;
    let quarter = (limit.min(EVENT_NUMBERS as u64) / 4).max(1) as libc::c_int;
    let page = (min_descriptor as fn(u64) -> libc::c_int as usize / PAGE_BYTES) as libc::c_int;
    2 * quarter + page.rem_euclid(quarter)
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

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{RecvError, channel};

    use nix::sys::wait::{WaitStatus, waitpid};
    use nix::unistd::{ForkResult, fork};

    use super::*;
    use crate::platform::current_thread_id;
    use crate::platform::thread::own_descriptors::use_own_descriptors;

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
    fn child_that_is_forked_while_an_event_starts_has_no_event() {
        let (ask, asked) = channel();
        let (answer, answered) = channel();
        let starts = std::thread::spawn(move || {
            assert!(use_own_descriptors());
            // The event is open during this call.
            let announce = |_| {
                ask.send(()).expect("the test forks");
                answered.recv().expect("the test has forked");
            };
            TaskClock::start(current_thread_id(), NEVER_NS, libc::SIGURG, announce).map(drop)
        });
        if asked.recv() == Err(RecvError) {
            let refusal = starts
                .join()
                .expect("thread")
                .expect_err("nothing was announced");
            println!("!!! SKIPPED: the kernel refuses events: {refusal:?}");
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
        starts.join().expect("thread").expect("an event");
        assert_eq!(status, WaitStatus::Exited(child, 0), "events in the child");
    }

    #[test]
    fn events_get_numbers_below_any_limit() {
        for limit in [4, 5, 64, 256, 512, 1024, 1 << 20] {
            let number = u64::from(min_descriptor(limit).unsigned_abs());
            let half = limit.min(EVENT_NUMBERS as u64) / 4 * 2;
            assert!((half..limit).contains(&number), "{number} of {limit}");
        }
    }

    #[test]
    fn thread_that_shares_its_descriptors_gets_no_event() {
        let announce = |number| panic!("event {number} is open");
        let refused = TaskClock::start(current_thread_id(), NEVER_NS, libc::SIGURG, announce);
        // The application could replace the event's descriptor.
        assert_eq!(refused.err(), Some(RefusedClock::Process));
    }
}
