//! Process and thread ids, the rights of the program, and thread settings: signal masks and
//! scheduling.
//!
//! Runs in the signal handler: [`process_number_in_handler`] and [`current_thread_id`].

use std::cell::Cell;
use std::io;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Instant;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sched::sched_getcpu;
use nix::sys::prctl::set_timerslack;
use nix::sys::signal::{SigSet, SigmaskHow, Signal};
use nix::unistd::getpid;

use crate::platform::procfs::own_nice;
use crate::platform::sandbox::may_make_uncommon_call;
use crate::types::{ProcessId, ThreadId};

/// Returns the process id. Asks the kernel each time, because a child of `fork` has another id.
/// Cost: one system call.
pub(crate) fn current_process_id() -> ProcessId {
    ProcessId::from_number(getpid().as_raw())
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

/// Returns the id of the calling thread. Async-signal-safe. Cost: one system call.
pub(crate) fn current_thread_id() -> ThreadId {
    // SAFETY: async-signal-safe, accesses no memory.
    let id = unsafe { libc::syscall(libc::SYS_gettid) };
    ThreadId::from_number(id as i32)
}

thread_local! {
    /// The process that the calling thread was in when it asked for its id, and the id.
    static CACHED_THREAD_ID: Cell<(i32, i32)> = const { Cell::new((0, 0)) };
}

/// Returns the id of the calling thread, without a system call from the second call on. In the child
/// of a fork, the thread has another one.
///
/// Not for handlers: in a library that was loaded later, the first access allocates.
pub(crate) fn cached_thread_id() -> ThreadId {
    let process = CACHED_PROCESS_ID.load(Ordering::Relaxed);
    let (in_process, thread) = CACHED_THREAD_ID.get();
    if process != 0 && in_process == process {
        return ThreadId::from_number(thread);
    }
    let thread = current_thread_id();
    CACHED_THREAD_ID.set((process, thread.to_number()));
    thread
}

/// Returns whether the process has this thread. If a seccomp filter denies the system call, looks
/// in `/proc`; without `/proc`, the thread counts as existing. Cost: one system call.
pub(crate) fn thread_exists(process: ProcessId, thread: ThreadId) -> bool {
    match look_for_thread(process, thread) {
        Ok(()) => true,
        Err(Errno::ESRCH) => false,
        Err(_) => {
            let tasks = Path::new("/proc/self/task");
            tasks.join(thread.to_number().to_string()).exists() || !tasks.exists()
        }
    }
}

/// Returns whether the kernel says that the process does not have this thread. Cost: one system
/// call.
pub(crate) fn thread_has_ended(process: ProcessId, thread: ThreadId) -> bool {
    look_for_thread(process, thread) == Err(Errno::ESRCH)
}

fn look_for_thread(process: ProcessId, thread: ThreadId) -> nix::Result<()> {
    let no_signal: libc::c_int = 0;
    // SAFETY: signal 0 only checks for existence; no memory is accessed.
    let answer = unsafe {
        libc::syscall(
            libc::SYS_tgkill,
            process.to_number(),
            thread.to_number(),
            no_signal,
        )
    };
    Errno::result(answer).map(drop)
}

/// Returns whether the C library has made a thread of this process, as far as that can be told. The
/// handler needs the thread-local memory of such a thread, which one that the program has made by
/// `clone` may not have.
///
/// glibc tells the kernel of a list of locks when a thread begins. Cost: one system call.
pub(crate) fn is_thread_of_c_library(thread: ThreadId) -> bool {
    if !cfg!(target_env = "gnu") || !may_make_uncommon_call() {
        return true;
    }
    let (mut head, mut bytes) = (std::ptr::null::<libc::c_void>(), 0usize);
    // SAFETY: the kernel writes a pointer and a size to the two locals, and reads nothing.
    let answer = unsafe {
        libc::syscall(
            libc::SYS_get_robust_list,
            thread.to_number(),
            &raw mut head,
            &raw mut bytes,
        )
    };
    answer != 0 || !head.is_null()
}

/// Returns whether the program runs with more rights than the user who started it: it is
/// set-user-id, for example, or has file capabilities. The kernel reports that as `AT_SECURE`.
///
/// Such a program does not trust its environment, which that user chose.
pub(crate) fn has_rights_of_another_user() -> bool {
    // SAFETY: reads a value that the kernel passed to the process; accesses no other memory.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

/// Runs `write` without letting it raise a signal that would end the program. If a pipe or socket
/// has no reader (`SIGPIPE`), or a file reaches its maximum size (`SIGXFSZ`), `write` only returns
/// an error, or the number of bytes that were written before.
///
/// The kernel sends these signals to the calling thread, which blocks and discards them. A signal
/// that was pending before stays pending.
pub(crate) fn without_write_signals<T>(write: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    const SIGNALS: [Signal; 2] = [Signal::SIGPIPE, Signal::SIGXFSZ];
    let before = SigSet::from_iter(SIGNALS).thread_swap_mask(SigmaskHow::SIG_BLOCK);
    // A signal that was not blocked cannot have been pending.
    let was_blocked = |signal| before.is_ok_and(|before| before.contains(signal));
    let was_pending = SIGNALS.map(|signal| was_blocked(signal) && is_pending(signal));
    let answer = write();
    // The kernel also raises the signal if a part was written.
    for (signal, was_pending) in SIGNALS.into_iter().zip(was_pending) {
        if !was_pending && is_pending(signal) {
            discard_pending(signal);
        }
    }
    restore_mask(&before);
    answer
}

/// Waits until the file accepts bytes or reports an error, so that a `write` of at most 4 KiB to a
/// pipe returns at once. Returns false if that takes until `until`; looks once if that has passed. If
/// the kernel refuses to wait, returns true.
pub(crate) fn wait_until_writable(file: BorrowedFd<'_>, until: Instant) -> bool {
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let left = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
        match poll(&mut [PollFd::new(file, PollFlags::POLLOUT)], left) {
            Err(Errno::EINTR) => {}
            answer => return answer != Ok(0),
        }
    }
}

/// Returns whether a signal is pending for the calling thread or for the process.
fn is_pending(signal: Signal) -> bool {
    let mut pending = *SigSet::empty().as_ref();
    // SAFETY: the kernel writes to the local, which is an initialized set.
    unsafe {
        libc::sigpending(&mut pending) == 0 && libc::sigismember(&pending, signal as i32) == 1
    }
}

/// Discards a pending signal, if any. The calling thread blocks the signal.
fn discard_pending(signal: Signal) {
    let set = SigSet::from(signal);
    let no_time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the kernel reads locals, and a null pointer asks for no information on the signal.
    let wait =
        || unsafe { libc::sigtimedwait(set.as_ref(), std::ptr::null_mut(), &raw const no_time) };
    while wait() < 0 && Errno::last() == Errno::EINTR {}
}

/// Returns the number of the processor that the calling thread runs on, if the kernel reports it.
pub(crate) fn current_processor() -> Option<u32> {
    u32::try_from(sched_getcpu().ok()?).ok()
}

/// Returns the id of the main thread, which the kernel sets to the process id.
pub(crate) fn main_thread_id() -> ThreadId {
    ThreadId::from_number(process_number_in_handler())
}

/// Returns whether the calling thread is the main thread.
pub(crate) fn is_main_thread() -> bool {
    cached_thread_id() == main_thread_id()
}

/// Configures the calling thread for sampling, and returns its nice value; 0 if it is unknown.
///
/// - A timer slack of 1 ns instead of 50 µs, so that the kernel does not delay a tick to group it
///   with other timers.
/// - A short time slice, so that the scheduler runs the thread soon after it wakes.
/// - A low nice value, so that the thread also runs soon when many threads share few processors.
///   This needs a privilege or a sufficient limit.
/// - If `is_gentle`, a value that is only a little lower. The kernel's load balancer takes a thread
///   with the nice value -20 for one that is 87 times as heavy as others, and may move
///   the application's threads between processors because of it.
///
/// Each setting is best effort: a refusal only costs accuracy. A sandbox may kill the process for
/// these calls, so they are left out there.
pub(crate) fn prepare_sampler_thread(is_gentle: bool) -> i32 {
    if may_make_uncommon_call() {
        let _ = set_timerslack(1);
    }
    set_scheduling(is_gentle).or_else(own_nice).unwrap_or(0)
}

/// The kernel's `struct sched_attr`, in its first published version. `nix` does not have it, nor
/// does glibc before 2.41.
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

/// Requested time slice, in ns. It is shorter than the default (0.7 ms on one processor, 2.8 ms
/// from eight on), so that the sampler preempts the running thread. It is long enough for a tick
/// over many threads: a tick that outlasts its slice waits for the whole slice of another thread.
const SHORT_SLICE_NS: u64 = 500_000;

/// Nice values to try, best first. The kernel grants what the limit of the process allows.
const NICE_VALUES: [i32; 4] = [-20, -15, -10, GENTLE_NICE_VALUE];
/// The lowest nice value of a thread that is to disturb the application little.
const GENTLE_NICE_VALUE: i32 = -5;

/// Sets the time slice and the nice value of the calling thread, and returns the latter. Returns
/// `None` in a sandbox, and if the kernel does not tell the thread's settings.
fn set_scheduling(is_gentle: bool) -> Option<i32> {
    let mut attributes = scheduling()?;
    let own = attributes.nice;
    if attributes.policy != libc::SCHED_OTHER as u32 {
        return Some(own);
    }
    attributes.runtime_ns = SHORT_SLICE_NS;
    let is_allowed = |nice: &i32| *nice < own && (!is_gentle || *nice >= GENTLE_NICE_VALUE);
    let better = NICE_VALUES.into_iter().filter(is_allowed);
    for nice in better.chain([own]) {
        attributes.nice = nice;
        if apply_scheduling(&attributes) {
            return Some(nice);
        }
    }
    Some(own)
}

/// Gives the calling thread the normal scheduling policy. A thread begins with its creator's, and one of
/// the profiler must neither run before all of the application's threads nor wait for them all. Best
/// effort, like [`prepare_sampler_thread`]: to leave `SCHED_IDLE` needs a right.
pub(crate) fn take_normal_policy() {
    let normal = libc::SCHED_OTHER;
    if scheduling().is_some_and(|attributes| attributes.policy != normal as u32) {
        let (this_thread, no_priority) = (0, 0 as libc::c_int);
        // Unlike `sched_setattr`, keeps the nice value. musl's function does nothing.
        // SAFETY: the kernel reads the local: a `sched_param` begins with the priority.
        unsafe {
            libc::syscall(
                libc::SYS_sched_setscheduler,
                this_thread,
                normal,
                &raw const no_priority,
            )
        };
    }
}

/// Returns whether the calling thread has the usual scheduling class. False in a sandbox, where the
/// kernel is not asked.
pub(crate) fn has_usual_scheduling() -> bool {
    scheduling().is_some_and(|attributes| attributes.policy == libc::SCHED_OTHER as u32)
}

/// Adds to the calling thread's nice value, which lowers its priority. Does nothing in a sandbox, and
/// has no effect on a thread of a real-time class.
pub(crate) fn lower_priority(more_nice: i32) {
    if may_make_uncommon_call() {
        // SAFETY: the call reads and writes no memory.
        unsafe { libc::nice(more_nice) };
    }
}

/// Asks the kernel for the calling thread's settings.
fn scheduling() -> Option<SchedAttributes> {
    let mut attributes = SchedAttributes::default();
    let (this_thread, no_flags) = (0, 0);
    let bytes = size_of::<SchedAttributes>();
    if !may_make_uncommon_call() {
        return None;
    }
    // SAFETY: the kernel writes at most `bytes` bytes to the local.
    let answer = unsafe {
        libc::syscall(
            libc::SYS_sched_getattr,
            this_thread,
            &raw mut attributes,
            bytes,
            no_flags,
        )
    };
    (answer == 0).then_some(attributes)
}

/// Gives the calling thread these settings. Returns false in a sandbox, and if the kernel refuses.
fn apply_scheduling(attributes: &SchedAttributes) -> bool {
    let (this_thread, no_flags) = (0, 0);
    let attributes: *const SchedAttributes = attributes;
    // SAFETY: the kernel reads the structure, whose first field is its size.
    may_make_uncommon_call()
        && unsafe { libc::syscall(libc::SYS_sched_setattr, this_thread, attributes, no_flags) } == 0
}

/// Signals that an instruction of the thread itself causes. If one of them is blocked then, the
/// kernel ends the process without calling the application's handler. Such a handler may answer a
/// system call for a sandbox (`SIGSYS`), or make memory accessible that the application protects.
const FAULTS: [Signal; 6] = [
    Signal::SIGSYS,
    Signal::SIGSEGV,
    Signal::SIGBUS,
    Signal::SIGILL,
    Signal::SIGFPE,
    Signal::SIGTRAP,
];

/// Returns the signals that the profiler's own threads and the sampling handler block: all but
/// those of faults.
pub(crate) fn signals_to_block() -> SigSet {
    let mut signals = SigSet::all();
    FAULTS.into_iter().for_each(|fault| signals.remove(fault));
    signals
}

/// Runs `body` with all signals blocked on the calling thread. Those of faults stay as they are.
/// Threads created in `body` inherit the mask, so only the signals of faults are delivered to them.
pub(crate) fn with_signals_blocked<T>(body: impl FnOnce() -> T) -> T {
    struct Restore(nix::Result<SigSet>);
    impl Drop for Restore {
        fn drop(&mut self) {
            restore_mask(&self.0);
        }
    }
    let _restore = Restore(signals_to_block().thread_swap_mask(SigmaskHow::SIG_BLOCK));
    body()
}

/// Restores the mask that `thread_swap_mask` replaced. Setting a mask fails only for an unknown
/// operation.
fn restore_mask(before: &nix::Result<SigSet>) {
    let _ = before.as_ref().map(SigSet::thread_set_mask);
}
