//! A timer that runs while its thread runs, and interrupts it on the spot: no other processor has to.
//!
//! It is the kernel's software CPU clock (`perf_event_open`), which sends a signal after each interval of the thread's CPU
//! time. The event lives as long as its page is mapped, so that no descriptor is kept for each thread (async-profiler
//! #855). Where the kernel does not let ordinary users do so, or a sandbox forbids it, there are none.
//!
//! **Contract** (cited below):
//! - *kernel's layouts*: the structures are those of `linux/perf_event.h` and `fcntl.h`, and live as long as the call;
//! - *ours*: the page was mapped here, and is unmapped once, by the drop.

use std::io;
use std::ptr::NonNull;

use crate::base::ThreadId;

/// The kernel's `struct perf_event_attr`, as it was first published.
#[repr(C)]
#[derive(Default)]
struct EventAttributes {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_events: u32,
    breakpoint_type: u32,
    breakpoint_address: u64,
}
const _: () = assert!(size_of::<EventAttributes>() == 64);

const SOFTWARE: u32 = 1;
const CPU_CLOCK: u64 = 0;
const DISABLED: u64 = 1;
/// Where the kernel lets ordinary users count only what they run themselves; a stop in the kernel is lost then.
const EXCLUDE_KERNEL: u64 = 1 << 5;
const EXCLUDE_HYPERVISOR: u64 = 1 << 6;
/// Signals carry an event's number, which is free again at once; so high a one is unlikely to be the host's.
const LEAST_NUMBER: libc::c_int = 700;
const CLOSE_ON_EXEC: libc::c_ulong = 1 << 3;
const ENABLE: libc::c_ulong = 0x2400;
const PAGE: usize = 4096;

/// The kernel's `struct f_owner_ex`.
#[repr(C)]
struct Owner {
    kind: libc::c_int,
    thread: libc::pid_t,
}
const A_THREAD: libc::c_int = 0;
const SET_OWNER: libc::c_int = 15;
const SET_SIGNAL: libc::c_int = 10;

/// A timer of one thread. It ends with this.
#[derive(Debug)]
pub(crate) struct ThreadTimer {
    page: NonNull<libc::c_void>,
}

// SAFETY: *ours*: a mapping belongs to the process, not to a thread.
unsafe impl Send for ThreadTimer {}

impl ThreadTimer {
    /// Starts one that sends `signal` to a thread of this process after each `interval_ns` of its CPU time, and tells before
    /// that the number that its signals carry. About 60 µs.
    ///
    /// # Errors
    /// The system's refusal.
    pub(crate) fn start_as(
        thread: ThreadId,
        interval_ns: u64,
        signal: i32,
        tell: impl FnOnce(i32),
    ) -> io::Result<Self> {
        // For a real-time signal that finds the queue full the kernel sends SIGIO instead, which kills.
        if signal >= libc::SIGRTMIN() {
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
        let event = open_event(&attributes, thread).or_else(|error| {
            attributes.flags |= EXCLUDE_KERNEL;
            match error.raw_os_error() {
                Some(libc::EACCES | libc::EPERM) => open_event(&attributes, thread),
                _ => Err(error),
            }
        })?;
        let timer = Self::keep_by_mapping(event).and_then(|timer| {
            tell(event);
            direct(event, thread, signal)?;
            Ok(timer)
        });
        // SAFETY: opened above; the mapping keeps the event.
        unsafe { libc::close(event) };
        timer
    }

    fn keep_by_mapping(event: libc::c_int) -> io::Result<Self> {
        // SAFETY: a new mapping at a place of the kernel's choice touches no memory that is in use.
        let page = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                PAGE,
                libc::PROT_READ,
                libc::MAP_SHARED,
                event,
                0,
            )
        };
        if page == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let page = NonNull::new(page).ok_or_else(|| io::Error::from(io::ErrorKind::OutOfMemory))?;
        Ok(Self { page })
    }
}

fn open_event(attributes: &EventAttributes, thread: ThreadId) -> io::Result<libc::c_int> {
    let (any_cpu, no_group) = (-1, -1);
    let attributes: *const EventAttributes = attributes;
    // SAFETY: *kernel's layouts*; the two descriptors are this function's own.
    unsafe {
        let call = libc::SYS_perf_event_open;
        let event = libc::syscall(
            call,
            attributes,
            thread.to_number(),
            any_cpu,
            no_group,
            CLOSE_ON_EXEC,
        );
        if event < 0 {
            return Err(io::Error::last_os_error());
        }
        let event = event as libc::c_int;
        let high = libc::fcntl(event, libc::F_DUPFD_CLOEXEC, LEAST_NUMBER);
        if high < 0 {
            return Ok(event);
        }
        libc::close(event);
        Ok(high)
    }
}

/// Has an event's signals sent to the thread, and starts it.
fn direct(event: libc::c_int, thread: ThreadId, signal: i32) -> io::Result<()> {
    let owner = Owner {
        kind: A_THREAD,
        thread: thread.to_number(),
    };
    // SAFETY: *kernel's layouts*.
    let refused = unsafe {
        libc::fcntl(event, SET_OWNER, &raw const owner) != 0
            || libc::fcntl(event, SET_SIGNAL, signal) != 0
            || libc::fcntl(event, libc::F_SETFL, libc::O_ASYNC | libc::O_NONBLOCK) != 0
            || libc::ioctl(event, ENABLE, 0) != 0
    };
    if refused {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

impl Drop for ThreadTimer {
    fn drop(&mut self) {
        // SAFETY: *ours*. Its end ends the event.
        unsafe { libc::munmap(self.page.as_ptr(), PAGE) };
    }
}
