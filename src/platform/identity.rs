//! Process and thread ids, and thread settings: signal masks and scheduling.

use std::sync::atomic::{AtomicI32, Ordering};

use crate::types::{ProcessId, ThreadId};

/// Returns the process id. Asks the kernel each time, because a child of `fork` has another id.
/// Cost: one system call.
pub(crate) fn current_process_id() -> ProcessId {
    // SAFETY: accesses no memory.
    ProcessId::from_number(unsafe { libc::getpid() })
}

/// Cached process id, which saves the handler a system call; 0 until [`note_process`] runs.
static CACHED_PROCESS_ID: AtomicI32 = AtomicI32::new(0);

/// Updates the cached process id. Called before the handler is installed, and in the child of a
/// fork.
pub(crate) fn note_process() {
    CACHED_PROCESS_ID.store(current_process_id().to_number(), Ordering::Relaxed);
}

/// Returns the cached process id. Makes a system call only before the first [`note_process`], when
/// no handler runs.
pub(crate) fn process_number_in_handler() -> i32 {
    match CACHED_PROCESS_ID.load(Ordering::Relaxed) {
        // SAFETY: async-signal-safe, accesses no memory.
        0 => unsafe { libc::getpid() },
        cached => cached,
    }
}

/// Returns the id of the calling thread. Cost: one system call.
pub(crate) fn current_thread_id() -> ThreadId {
    // SAFETY: accesses no memory.
    ThreadId::from_number(unsafe { libc::gettid() })
}

/// A standard stream of the process.
#[derive(Clone, Copy, Debug)]
#[repr(i32)]
pub(crate) enum StandardStream {
    Output = libc::STDOUT_FILENO,
    Error = libc::STDERR_FILENO,
}

/// Writes `text` to a standard stream, stopping at the first error. Takes no lock and bypasses the
/// application's own buffer, so the text appears before what is buffered there.
pub(crate) fn write_to_standard(stream: StandardStream, mut text: &[u8]) {
    while !text.is_empty() {
        // SAFETY: the kernel reads at most `text.len()` bytes of the slice.
        let written = unsafe { libc::write(stream as i32, text.as_ptr().cast(), text.len()) };
        match usize::try_from(written) {
            Ok(0) => return,
            Ok(written) => text = text.get(written..).unwrap_or_default(),
            Err(_) if std::io::Error::last_os_error().kind() == std::io::ErrorKind::Interrupted => {
            }
            Err(_) => return,
        }
    }
}

/// Returns the effective user id, which owns the files that the process creates. Cost: one system
/// call.
pub(crate) fn current_user_id() -> u32 {
    // SAFETY: accesses no memory.
    unsafe { libc::geteuid() }
}

/// Returns the number of the processor that the calling thread runs on, if the kernel reports it.
pub(crate) fn current_processor() -> Option<u32> {
    // SAFETY: accesses no memory of this crate.
    unsafe { libc::sched_getcpu() }.try_into().ok()
}

/// Returns whether the calling thread is the main thread, whose id the kernel sets to the process
/// id.
pub(crate) fn is_main_thread() -> bool {
    current_thread_id().to_number() == current_process_id().to_number()
}

/// Configures the calling thread for sampling, and returns its nice value.
///
/// - A timer slack of 1 ns instead of 50 µs, so that the kernel does not group ticks.
/// - A short time slice, so that the scheduler runs the thread soon after it wakes.
/// - A low nice value, so that this also holds when many threads share few processors. This needs a
///   privilege or a sufficient limit.
///
/// Each setting is best effort: a refusal only costs accuracy.
pub(crate) fn prepare_sampler_thread() -> i32 {
    // SAFETY: this option takes one number and accesses no memory.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1 as libc::c_ulong) };
    set_scheduling()
}

/// The kernel's `struct sched_attr`, in its first published version.
#[repr(C)]
#[derive(Default)]
struct SchedAttributes {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    /// Length of the time slice in ns, for a thread of `SCHED_OTHER` since Linux 6.12.
    runtime_ns: u64,
    deadline_ns: u64,
    period_ns: u64,
}

/// Requested time slice, in ns. It is shorter than the default one (0.7 ms on one processor, 2.8 ms
/// from eight on), so that the thread preempts the running one. It is long enough for a tick of
/// many threads: a tick that outlasts its slice waits for the whole slice of another thread.
const SHORT_SLICE_NS: u64 = 500_000;

/// Nice values to try, best first. The kernel grants what the limit of the process allows.
const NICE_VALUES: [i32; 4] = [-20, -15, -10, -5];

fn set_scheduling() -> i32 {
    let mut attributes = SchedAttributes::default();
    let bytes = size_of::<SchedAttributes>();
    // SAFETY: the kernel writes at most `bytes` bytes to the local, and reads as many from it.
    unsafe {
        let this_thread = 0;
        let read = libc::syscall(
            libc::SYS_sched_getattr,
            this_thread,
            &raw mut attributes,
            bytes,
            0,
        );
        if read == 0 && attributes.policy == libc::SCHED_OTHER as u32 {
            attributes.runtime_ns = SHORT_SLICE_NS;
            let own = attributes.nice;
            for nice in NICE_VALUES
                .into_iter()
                .filter(|&nice| nice < own)
                .chain([own])
            {
                attributes.nice = nice;
                if libc::syscall(
                    libc::SYS_sched_setattr,
                    this_thread,
                    &raw const attributes,
                    0,
                ) == 0
                {
                    return nice;
                }
            }
            return own;
        }
    }
    attributes.nice
}

/// Runs `body` with `signal` unblocked on the calling thread.
pub(crate) fn with_signal_unblocked<T>(signal: i32, body: impl FnOnce() -> T) -> T {
    // SAFETY: both sets are locals; a zeroed `sigset_t` is a valid set.
    let before = unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        let mut before: libc::sigset_t = std::mem::zeroed();
        libc::sigaddset(&mut set, signal);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &set, &mut before);
        before
    };
    let answer = body();
    // SAFETY: the set was filled in by `pthread_sigmask` and is alive.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &before, std::ptr::null_mut()) };
    answer
}

/// Runs `body` with all signals blocked on the calling thread. Threads created in `body` inherit
/// the mask, so signals for the application are never delivered to them.
pub(crate) fn with_signals_blocked<T>(body: impl FnOnce() -> T) -> T {
    struct Restore(libc::sigset_t);
    impl Drop for Restore {
        fn drop(&mut self) {
            // SAFETY: the set was filled in by `pthread_sigmask` and is alive.
            unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.0, std::ptr::null_mut()) };
        }
    }
    // SAFETY: both sets are locals; a zeroed `sigset_t` is a valid set, and `sigfillset` fills it.
    let _restore = unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        let mut before: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
        Restore(before)
    };
    body()
}
