//! Detects a sandbox: a seccomp filter, which decides for its threads which system calls the kernel
//! accepts.
//!
//! Some filters, such as those of a service manager, kill the process for each system call that
//! they do not list. So a thread of the profiler makes an uncommon call only after it has found
//! that it has no filter itself. Another thread may install a filter on all threads
//! (`SECCOMP_FILTER_FLAG_TSYNC`) between that check and the call, which is well below a
//! microsecond later. Code that runs on each tick therefore makes no uncommon call at all. Some
//! checks are for several calls: those of a timer, and that for message queues
//! (`thread/own_descriptors.rs`), which looks at up to 64 descriptors and takes some 20 µs.
//!
//! Runs in the signal handler: [`may_make_uncommon_call_in_handler`].
//!
//! **Contract of the calls** (cited below):
//! - *no memory*: the call reads and writes no memory.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::platform::clock::system_clock::monotonic_now;
use crate::platform::procfs::status_value;
use crate::platform::shared_file::read_bytes;

/// Whether the handler makes no uncommon call on any thread: the sampler has found a filter on
/// itself, which other threads probably have, too, or the kernel has refused such a call.
static HANDLER_AVOIDS_CALLS: AtomicBool = AtomicBool::new(false);

const FILTER_MODE: &str = "2";
/// The mode in which a thread may read, write, return from a handler and end, and not even read the
/// processor's counter.
pub(super) const STRICT_MODE: &str = "1";

thread_local! {
    /// Whether the thread is known to have a filter. A filter stays until its thread ends.
    static HAS_FILTER: Cell<bool> = const { Cell::new(false) };
    /// Time of the thread's last check, in ns.
    static CHECKED_AT_NS: Cell<u64> = const { Cell::new(0) };
}

/// Returns whether the calling thread may make a system call that a sandbox may kill the process
/// for. Called just before that call. Cost: 0.3 µs, or 20 µs if the thread's last check was over
/// 1 ms ago.
pub(crate) fn may_make_uncommon_call() -> bool {
    const MAX_AGE_NS: u64 = 1_000_000;
    let now = monotonic_now().0;
    if now.saturating_sub(CHECKED_AT_NS.get()) > MAX_AGE_NS && !HAS_FILTER.get() {
        CHECKED_AT_NS.set(now);
        // First by a file, because fewer filters forbid to open it than to call `prctl`.
        HAS_FILTER.set(has_mode(
            &read_bytes("/proc/thread-self/status"),
            FILTER_MODE,
        ));
    }
    !HAS_FILTER.get() && has_no_filter_in_handler()
}

/// Checks for a filter on the sampler, which calls this now and then. Once it has one, the handler
/// makes no uncommon call on any thread. Cost: about 20 µs.
pub(crate) fn check_sandbox() {
    if !may_make_uncommon_call() {
        avoid_calls_in_handler();
    }
}

/// Makes the handler avoid uncommon calls from now on.
pub(crate) fn avoid_calls_in_handler() {
    HANDLER_AVOIDS_CALLS.store(true, Ordering::Relaxed);
}

/// Returns whether the handler may make an uncommon system call on the calling thread. Cost: one
/// system call.
pub(crate) fn may_make_uncommon_call_in_handler() -> bool {
    !HANDLER_AVOIDS_CALLS.load(Ordering::Relaxed) && has_no_filter_in_handler()
}

/// Asks the kernel whether the calling thread has no filter. That works without `/proc` and without
/// a descriptor, but a filter may kill the process for this call, too.
fn has_no_filter_in_handler() -> bool {
    // `prctl` itself may not have been bound yet, if the process was in a sandbox then.
    // SAFETY: *no memory*.
    let mode = unsafe { libc::syscall(libc::SYS_prctl, libc::PR_GET_SECCOMP, 0, 0, 0, 0) };
    // A negative number is the answer of a kernel without filters.
    mode <= 0
}

/// Returns whether the `status` file is of a thread in this seccomp mode.
pub(super) fn has_mode(status: &[u8], mode: &str) -> bool {
    status_value(status, b"Seccomp:") == Some(mode)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn has_mode_reads_the_mode_of_the_thread() {
        let in_mode = |mode| format!("Name:\tx\nSeccomp:\t{mode}\nSeccomp_filters:\t1\n");
        for mode in [STRICT_MODE, FILTER_MODE] {
            assert!(has_mode(in_mode(mode).as_bytes(), mode));
            assert!(!has_mode(in_mode("0").as_bytes(), mode) && !has_mode(b"", mode));
        }
    }
}
