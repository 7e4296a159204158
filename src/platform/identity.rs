//! Who is running: process and thread ids, and what the sampler's own thread asks of the kernel for itself.

use std::sync::atomic::{AtomicI32, Ordering};

use crate::base::{ProcessId, ThreadId};

/// The process's id. One system call, since a child of `fork` has another one.
pub(crate) fn current_process_id() -> ProcessId {
    // SAFETY: takes and touches no memory.
    ProcessId::from_number(unsafe { libc::getpid() })
}

/// This process's id as it was noted, since to ask for it is a system call; 0 before.
static NOTED: AtomicI32 = AtomicI32::new(0);

/// Notes the process's id: before the handler needs it, and in the child of a fork.
pub(super) fn note_process() {
    NOTED.store(current_process_id().to_number(), Ordering::Relaxed);
}

/// The process's id as a number. A system call only before the first [`note_process`], when no handler runs.
pub(super) fn process_number_in_handler() -> i32 {
    match NOTED.load(Ordering::Relaxed) {
        // SAFETY: async-signal-safe, takes and touches no memory.
        0 => unsafe { libc::getpid() },
        noted => noted,
    }
}

/// The calling thread's id. One system call.
pub(crate) fn current_thread_id() -> ThreadId {
    // SAFETY: takes and touches no memory.
    ThreadId::from_number(unsafe { libc::gettid() })
}

/// A file that every program has open from its beginning.
#[derive(Clone, Copy, Debug)]
#[repr(i32)]
pub(crate) enum StandardStream {
    Output = libc::STDOUT_FILENO,
    Error = libc::STDERR_FILENO,
}

/// Writes it all, as far as the stream takes it, without a lock, and before what the host has in its own buffer for it.
pub(crate) fn write_to_standard(stream: StandardStream, mut text: &[u8]) {
    while !text.is_empty() {
        // SAFETY: the kernel reads so many bytes of the slice.
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

/// The user in whose name the process makes and opens files. One system call.
pub(super) fn current_user_id() -> u32 {
    // SAFETY: takes and touches no memory.
    unsafe { libc::geteuid() }
}

/// Whether the calling thread is the one that `main` runs on: the kernel gives it the process's id.
pub(crate) fn is_main_thread() -> bool {
    current_thread_id().to_number() == current_process_id().to_number()
}

/// Asks for the finest timer, so that ticks are not bunched by the default slack of 50 µs, for a short time slice, so that
/// the scheduler lets the calling thread in soon after it wakes, and for a low nice value, so that it does so also where
/// many threads share few processors. The last needs a privilege or a limit that allows it; a refusal of any costs accuracy
/// and nothing else. Gives the nice value.
pub(crate) fn prepare_sampler_thread() -> i32 {
    // SAFETY: this option takes one number and touches no memory.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1 as libc::c_ulong) };
    ask_for_short_slice()
}

/// The kernel's `struct sched_attr`, as it was first published.
#[repr(C)]
#[derive(Default)]
struct SchedAttributes {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    /// For an ordinary thread, since Linux 6.12, the length of its slice in nanoseconds.
    runtime_ns: u64,
    deadline_ns: u64,
    period_ns: u64,
}

/// Shorter than the usual one (0.7 ms on one processor, 2.8 ms from eight on), so that who runs is interrupted; enough for a
/// tick of many threads, since one that outlasts its slice waits for the whole one of the next.
const SHORT_SLICE_NS: u64 = 500_000;

/// From the best on; the kernel grants what the process's limit allows.
const NICE_VALUES: [i32; 4] = [-20, -15, -10, -5];

fn ask_for_short_slice() -> i32 {
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

/// Runs `body` with this signal let through on this thread.
pub(crate) fn with_signals_unblocked<T>(signal: i32, body: impl FnOnce() -> T) -> T {
    // SAFETY: both sets are on this stack; a zeroed `sigset_t` is a set.
    let before = unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        let mut before: libc::sigset_t = std::mem::zeroed();
        libc::sigaddset(&mut set, signal);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &set, &mut before);
        before
    };
    let answer = body();
    // SAFETY: the set was filled in by `pthread_sigmask` and lives on this stack.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &before, std::ptr::null_mut()) };
    answer
}

/// Runs `body` with every signal blocked on this thread, so that a thread born in it has them blocked for life and the
/// host's signals never land there.
pub(crate) fn with_signals_blocked<T>(body: impl FnOnce() -> T) -> T {
    struct Restore(libc::sigset_t);
    impl Drop for Restore {
        fn drop(&mut self) {
            // SAFETY: the set was filled in by `pthread_sigmask` and lives on this stack.
            unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.0, std::ptr::null_mut()) };
        }
    }
    // SAFETY: both sets are on this stack; a zeroed `sigset_t` is a set, and `sigfillset` fills it.
    let _restore = unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        let mut before: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
        Restore(before)
    };
    body()
}
