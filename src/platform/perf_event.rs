//! Opens events of the kernel's subsystem `perf`.
//!
//! **Contract** (cited below):
//! - *kernel's layouts*: the structure is that of `linux/perf_event.h`, and lives as long as the
//!   call;
//! - *just opened*: the kernel has just returned the descriptor.

use std::os::fd::{FromRawFd, OwnedFd};

use nix::errno::Errno;

/// The kernel's `struct perf_event_attr`, in its first published version.
#[repr(C)]
#[derive(Default)]
pub(super) struct EventAttributes {
    pub(super) kind: u32,
    pub(super) size: u32,
    pub(super) config: u64,
    pub(super) sample_period: u64,
    pub(super) sample_type: u64,
    pub(super) read_format: u64,
    pub(super) flags: u64,
    pub(super) wakeup_events: u32,
    pub(super) breakpoint_type: u32,
    pub(super) breakpoint_address: u64,
}
const _: () = assert!(size_of::<EventAttributes>() == 64);

/// `PERF_FLAG_FD_CLOEXEC`.
const CLOSE_ON_EXEC: libc::c_ulong = 1 << 3;

/// Where an event counts.
#[derive(Clone, Copy, Debug)]
pub(super) enum EventPlace {
    /// One thread, on any processor.
    Thread(i32),
    /// One processor, for all processes.
    Processor(u32),
}

/// Opens an event. The caller has made sure that the calling thread may make an uncommon call, and
/// that the application cannot replace the descriptor.
///
/// # Errors
/// The error of the operating system.
pub(super) fn open_event(attributes: &EventAttributes, place: EventPlace) -> nix::Result<OwnedFd> {
    const ANY: i32 = -1;
    let (thread, processor) = match place {
        EventPlace::Thread(thread) => (thread, ANY),
        EventPlace::Processor(processor) => {
            let number = i32::try_from(processor).map_err(|_| Errno::EINVAL)?;
            (ANY, number)
        }
    };
    let no_group = -1;
    let attributes: *const EventAttributes = attributes;
    // SAFETY: *kernel's layouts*.
    let event = Errno::result(unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            attributes,
            thread,
            processor,
            no_group,
            CLOSE_ON_EXEC,
        )
    })? as i32;
    // SAFETY: *just opened*.
    Ok(unsafe { OwnedFd::from_raw_fd(event) })
}
