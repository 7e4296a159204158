//! Leaves the process without free descriptors for some milliseconds, again and again: by a limit
//! below the open ones, which the sampler meets in its own table, too, or by opening all that there
//! are.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;

use crate::crew::Context;
use crate::{gate, tally};

/// Limit of open files in the storm: more than it needs, and few enough to be filled quickly.
const LIMIT: libc::rlim_t = 1024;
const PAUSE_MS: std::ops::Range<u64> = 50..250;
const SHORTAGE_MS: u64 = 12;

fn limits() -> libc::rlimit {
    // SAFETY: a zeroed pair of limits is valid, and a local.
    unsafe {
        let mut limits = std::mem::zeroed();
        assert_eq!(libc::getrlimit(libc::RLIMIT_NOFILE, &mut limits), 0);
        limits
    }
}

fn set_limit(soft: libc::rlim_t) {
    let limits = libc::rlimit {
        rlim_cur: soft,
        ..limits()
    };
    // SAFETY: the limits are a local.
    let answer = unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limits) };
    assert_eq!(answer, 0, "setrlimit: {}", io::Error::last_os_error());
}

/// Sets the limit of open files. Called once, before the first thread starts.
pub fn limit_descriptors() {
    set_limit(LIMIT.min(limits().rlim_max));
}

/// Lets the process open files, whatever the storm is doing. For reports on a storm that hangs.
pub fn end_by_force() {
    set_limit(limits().rlim_max);
}

/// A moment without free descriptors, until it is dropped.
enum Shortage {
    Limited { before: libc::rlim_t },
    Filled(#[expect(dead_code, reason = "keeps the descriptors open")] Vec<OwnedFd>),
}

impl Shortage {
    /// Sets a limit below which all descriptors are in use: the standard streams.
    fn by_limit() -> Self {
        let before = limits().rlim_cur;
        set_limit(3);
        Self::Limited { before }
    }

    /// Opens files until the kernel refuses.
    fn by_filling() -> Self {
        let file = File::open("/dev/null").expect("the gate leaves descriptors");
        let mut opened: Vec<OwnedFd> = Vec::with_capacity(LIMIT as usize);
        let refused = loop {
            // SAFETY: the call accesses no memory, and returns a new descriptor.
            let copy = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_DUPFD_CLOEXEC, 0) };
            if copy < 0 {
                break io::Error::last_os_error();
            }
            // SAFETY: the descriptor is new.
            opened.push(unsafe { OwnedFd::from_raw_fd(copy) });
        };
        assert_eq!(refused.raw_os_error(), Some(libc::EMFILE), "{refused}");
        opened.push(file.into());
        Self::Filled(opened)
    }

    /// Checks that no file can be opened below the limit. A full table gets free again when another
    /// thread closes a file.
    fn check(&self) {
        if let Self::Limited { .. } = self {
            let opened = File::open("/dev/null").map(drop);
            let refused = opened.map_err(|error| error.raw_os_error());
            assert_eq!(refused, Err(Some(libc::EMFILE)), "the limit holds");
        }
    }
}

impl Drop for Shortage {
    fn drop(&mut self) {
        if let Self::Limited { before } = self {
            set_limit(*before);
        }
    }
}

/// Closes the descriptors above the limit, as a part of a program may do that knows only its own.
fn close_range_above_limit() {
    let (first, last, flags) = (limits().rlim_cur as libc::c_uint, libc::c_uint::MAX, 0);
    // SAFETY: the call accesses no memory, and the storm has no descriptor above its limit.
    let answer = unsafe { libc::syscall(libc::SYS_close_range, first, last, flags) };
    assert_eq!(answer, 0, "close_range: {}", io::Error::last_os_error());
}

pub fn shortage_worker(context: &mut Context) {
    while context.goes_on() {
        let pause = PAUSE_MS.start + context.random.below(PAUSE_MS.end - PAUSE_MS.start);
        std::thread::sleep(Duration::from_millis(pause));
        let limits = context.random.once_in(2);
        let span = Duration::from_millis(1 + context.random.below(SHORTAGE_MS));
        gate::without_descriptors(|| {
            let shortage = if limits {
                Shortage::by_limit()
            } else {
                Shortage::by_filling()
            };
            std::thread::sleep(span);
            shortage.check();
        });
        gate::with_descriptors(close_range_above_limit);
        tally::SHORTAGES.one();
    }
}
