//! A CPU timer of one thread. It interrupts the thread on the processor that it runs on, without
//! another processor taking part.
//!
//! It is the kernel's software CPU clock (`perf_event_open`), which sends a signal after each
//! interval of the thread's CPU time. The event lives as long as its page is mapped, so the
//! descriptor need not stay open (async-profiler #855). No timer can be created where the kernel
//! denies this to ordinary users or a sandbox forbids it.
//!
//! **Contract** (cited below):
//! - *kernel's layouts*: the structures are those of `linux/perf_event.h` and `fcntl.h`, and live
//!   as long as the call;
//! - *ours*: the page is mapped here, and unmapped once, on drop.

use std::io;
use std::ptr::NonNull;

use crate::types::ThreadId;

/// The kernel's `struct perf_event_attr`, in its first published version.
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
/// Excludes time in the kernel, where ordinary users may count only their own code. An expiry
/// during a system call is then lost.
const EXCLUDE_KERNEL: u64 = 1 << 5;
const EXCLUDE_HYPERVISOR: u64 = 1 << 6;
/// Lowest descriptor number for an event. Signals carry the number, which is free again once the
/// event is mapped. A number this high is unlikely to be a descriptor of the application.
const MIN_DESCRIPTOR: libc::c_int = 700;
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

/// A timer of one thread, deleted on drop.
#[derive(Debug)]
pub(crate) struct ThreadTimer {
    page: NonNull<libc::c_void>,
}

// SAFETY: *ours*: a mapping belongs to the process, not to a thread.
unsafe impl Send for ThreadTimer {}

impl ThreadTimer {
    /// Starts a timer that sends `signal` to a thread of this process after each `interval_ns` of
    /// its CPU time. Calls `announce` with the number that the signals carry, before the first one
    /// is sent. Cost: about 60 µs.
    ///
    /// # Errors
    /// The error of the operating system; `Unsupported` for a real-time signal.
    pub(crate) fn start(
        thread: ThreadId,
        interval_ns: u64,
        signal: i32,
        announce: impl FnOnce(i32),
    ) -> io::Result<Self> {
        // If a real-time signal finds its queue full, the kernel sends SIGIO instead, whose default
        // action kills the process.
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
            announce(event);
            enable_for_thread(event, thread, signal)?;
            Ok(timer)
        });
        // SAFETY: the descriptor was opened above; the mapping keeps the event alive.
        unsafe { libc::close(event) };
        timer
    }

    /// Maps the event's page, which keeps the event alive without its descriptor.
    fn keep_by_mapping(event: libc::c_int) -> io::Result<Self> {
        // SAFETY: a new mapping at an address chosen by the kernel does not affect memory in use.
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

/// Opens the event on a descriptor of at least [`MIN_DESCRIPTOR`], if one is free.
fn open_event(attributes: &EventAttributes, thread: ThreadId) -> io::Result<libc::c_int> {
    let (any_cpu, no_group) = (-1, -1);
    let attributes: *const EventAttributes = attributes;
    // SAFETY: *kernel's layouts*; both descriptors are owned by this function.
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
        let high = libc::fcntl(event, libc::F_DUPFD_CLOEXEC, MIN_DESCRIPTOR);
        if high < 0 {
            return Ok(event);
        }
        libc::close(event);
        Ok(high)
    }
}

/// Directs the event's signals to the thread, and enables the event.
fn enable_for_thread(event: libc::c_int, thread: ThreadId, signal: i32) -> io::Result<()> {
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
        // SAFETY: *ours*. Unmapping the page deletes the event.
        unsafe { libc::munmap(self.page.as_ptr(), PAGE) };
    }
}
