//! The gate through which the process ends: who has asked for the save, who does it, and whether it
//! is done.
//!
//! An end of the process may come at any instruction: in a signal handler, under any lock, on a
//! small stack, after the thread's own variables are gone. So the thread on which the process ends
//! only asks a thread of the profiler, the *server*, for the save, and waits on a futex. A futex
//! needs no descriptor, which the application might close.
//!
//! The interrupted thread may hold a lock that the save needs, such as the allocator's. So a wait
//! ends once the saving thread has not run for [`MAX_STILL_NS`].
//!
//! Runs in the signal handler: the functions named `…_in_handler`.
//!
//! **Contract of the calls** (cited below):
//! - *own words*: the futex words are statics of this file, and the timeout is a local.

use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};

use crate::platform::clock::system_clock::{monotonic_now, thread_cpu_ns};
use crate::platform::identity::current_thread_id;
use crate::types::ThreadId;

/// The process whose gate is open; 0 for none. A child of `fork` inherits the number, and has no
/// server.
static OWNER: AtomicI32 = AtomicI32::new(0);
/// The server's thread id; 0 before it runs.
static SERVER: AtomicI32 = AtomicI32::new(0);
/// The thread that saves or has saved; 0 before a save has begun.
static SAVER: AtomicI32 = AtomicI32::new(0);

/// A futex: what the server is asked to do.
static REQUESTS: AtomicU32 = AtomicU32::new(0);
/// A thread waits for the save.
const SAVE_REQUEST: u32 = 1;
/// The server's thread is to end.
const CLOSE_REQUEST: u32 = 2;
/// The first signal that ends the process is above this many bits.
const SIGNAL_SHIFT: u32 = 8;

/// A futex: how far the save is.
static SAVE: AtomicU32 = AtomicU32::new(NOT_BEGUN);
const NOT_BEGUN: u32 = 0;
const BEGUN: u32 = 1;
const DONE: u32 = 2;

/// When the first signal arrived, in ns; 0 for not yet.
static FIRST_SIGNAL_NS: AtomicU64 = AtomicU64::new(0);

/// A wait ends once the saving thread has used no CPU time for this long. A slow disk may hold it up
/// for some seconds.
const MAX_STILL_NS: u64 = 10_000_000_000;
/// A wait ends after this long in any case: a thread that polls for a lock uses CPU time, too, and a
/// sandbox may hide the CPU clock.
const MAX_WAIT_NS: u64 = 120_000_000_000;
/// Time between two looks at the saving thread.
const LOOK_NS: i64 = 50_000_000;

/// Signals within this time of the first one are copies, not a second request: `timeout` sends
/// `SIGTERM` twice, and a terminal that closes sends `SIGHUP` twice.
const COPY_NS: u64 = 250_000_000;

/// What the server is asked to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct EndRequest {
    /// A signal that is to end the process once the profile is saved.
    pub(crate) signal: Option<i32>,
    pub(crate) closes: bool,
}

impl EndRequest {
    fn from_bits_in_handler(bits: u32) -> Self {
        let signal = (bits >> SIGNAL_SHIFT) as i32;
        Self {
            signal: (signal != 0).then_some(signal),
            closes: bits & CLOSE_REQUEST != 0,
        }
    }
}

/// How a wait for the save has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum WaitEnd {
    Saved,
    /// The saving thread does not run any more, and may never do so. The signal, if any, is to end
    /// the process.
    Stuck(Option<i32>),
}

/// Opens the gate for this process. The caller is the only one that opens and closes it now.
pub(crate) fn open_gate() {
    REQUESTS.store(0, Ordering::SeqCst);
    SAVE.store(NOT_BEGUN, Ordering::SeqCst);
    SAVER.store(0, Ordering::SeqCst);
    SERVER.store(0, Ordering::SeqCst);
    FIRST_SIGNAL_NS.store(0, Ordering::SeqCst);
    OWNER.store(process_in_handler(), Ordering::SeqCst);
}

/// Closes the gate, and asks the server to end. A signal that arrives from now on takes its default
/// action.
pub(crate) fn close_gate() {
    REQUESTS.fetch_or(CLOSE_REQUEST, Ordering::SeqCst);
    OWNER.store(0, Ordering::SeqCst);
    wake_in_handler(&REQUESTS);
}

/// Returns whether the gate of this process is open.
pub(crate) fn is_open_in_handler() -> bool {
    OWNER.load(Ordering::SeqCst) == process_in_handler()
}

/// Returns whether the calling thread is the one that saves, or would save. It must not wait for
/// the save.
pub(crate) fn is_saving_thread_in_handler() -> bool {
    let own = current_thread_id().to_number();
    let saves = SAVER.load(Ordering::SeqCst) == own && SAVE.load(Ordering::SeqCst) == BEGUN;
    saves || SERVER.load(Ordering::SeqCst) == own
}

/// Declares the calling thread to be the server.
pub(crate) fn serve_gate() {
    SERVER.store(current_thread_id().to_number(), Ordering::SeqCst);
}

/// Waits for requests, and takes them. The signal and the wish to close stay set.
pub(crate) fn wait_for_request() -> EndRequest {
    loop {
        let bits = REQUESTS.fetch_and(!SAVE_REQUEST, Ordering::SeqCst);
        if bits != 0 {
            return EndRequest::from_bits_in_handler(bits);
        }
        futex_wait_in_handler(&REQUESTS, 0, None);
    }
}

/// Asks the server for the save.
pub(crate) fn request_save_in_handler() {
    REQUESTS.fetch_or(SAVE_REQUEST, Ordering::SeqCst);
    wake_in_handler(&REQUESTS);
}

/// What a handler does with a signal that ends the process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum SignalAnswer {
    /// The server saves the profile, and then ends the process by the signal.
    Handed,
    /// The process is to end at once: by a second wish, or because the gate has closed.
    EndNow,
}

/// Hands a signal to the server. `may_insist` is whether a second one of its kind ends the process
/// at once, and `is_typed` whether a person typed it at the terminal, so that it is no copy.
pub(super) fn hand_over_signal_in_handler(
    signal: i32,
    may_insist: bool,
    is_typed: bool,
) -> SignalAnswer {
    let now_ns = monotonic_now().0;
    loop {
        let bits = REQUESTS.load(Ordering::SeqCst);
        if bits & CLOSE_REQUEST != 0 {
            return SignalAnswer::EndNow;
        }
        if bits >> SIGNAL_SHIFT != 0 {
            let first_ns = FIRST_SIGNAL_NS.load(Ordering::SeqCst);
            // 0: the other handler is about to store it.
            let is_later = first_ns != 0 && now_ns.saturating_sub(first_ns) > COPY_NS;
            return if may_insist && (is_typed || is_later) {
                SignalAnswer::EndNow
            } else {
                SignalAnswer::Handed
            };
        }
        let with_signal = bits | (signal as u32) << SIGNAL_SHIFT;
        let exchange =
            REQUESTS.compare_exchange(bits, with_signal, Ordering::SeqCst, Ordering::SeqCst);
        if exchange.is_ok() {
            FIRST_SIGNAL_NS.store(now_ns, Ordering::SeqCst);
            wake_in_handler(&REQUESTS);
            return SignalAnswer::Handed;
        }
    }
}

/// Makes the gate as it was before the signal. The kernel does not end the first process of a PID
/// namespace by a signal that it does not handle.
pub(crate) fn signal_survived() {
    FIRST_SIGNAL_NS.store(0, Ordering::SeqCst);
    SAVE.store(NOT_BEGUN, Ordering::SeqCst);
    REQUESTS.fetch_and((1 << SIGNAL_SHIFT) - 1, Ordering::SeqCst);
}

/// Claims the save for the calling thread. Returns false if another thread has begun it.
pub(crate) fn begin_save() -> bool {
    let begins = SAVE
        .compare_exchange(NOT_BEGUN, BEGUN, Ordering::SeqCst, Ordering::SeqCst)
        .is_ok();
    if begins {
        SAVER.store(current_thread_id().to_number(), Ordering::SeqCst);
    }
    begins
}

/// Ends the save that the calling thread began.
pub(crate) fn finish_save() {
    SAVE.store(DONE, Ordering::SeqCst);
    wake_in_handler(&SAVE);
}

/// Waits until the save is done, if one has begun.
pub(crate) fn wait_for_running_save() -> WaitEnd {
    match SAVE.load(Ordering::SeqCst) {
        BEGUN => wait_for_save_in_handler(true),
        _ => WaitEnd::Saved,
    }
}

/// Waits until the save is done. If a signal is to end the process, waits until it does, unless
/// `only_save`.
pub(crate) fn wait_for_save_in_handler(only_save: bool) -> WaitEnd {
    let mut last_cpu_ns = None;
    let begin_ns = monotonic_now().0;
    let mut since_ns = begin_ns;
    loop {
        let signal = EndRequest::from_bits_in_handler(REQUESTS.load(Ordering::SeqCst)).signal;
        let save = SAVE.load(Ordering::SeqCst);
        if save == DONE && (only_save || signal.is_none()) {
            return WaitEnd::Saved;
        }
        futex_wait_in_handler(&SAVE, save, Some(LOOK_NS));
        let saver = match SAVER.load(Ordering::SeqCst) {
            0 => SERVER.load(Ordering::SeqCst),
            saver => saver,
        };
        let cpu_ns = thread_cpu_ns(ThreadId::from_number(saver));
        let now_ns = monotonic_now().0;
        if cpu_ns.is_some() && cpu_ns != last_cpu_ns {
            (last_cpu_ns, since_ns) = (cpu_ns, now_ns);
        }
        let is_still = cpu_ns.is_some() && now_ns.saturating_sub(since_ns) > MAX_STILL_NS;
        if is_still || now_ns.saturating_sub(begin_ns) > MAX_WAIT_NS {
            return WaitEnd::Stuck(signal);
        }
    }
}

/// Waits until the word is woken, if it has this value. May return early.
fn futex_wait_in_handler(word: &AtomicU32, value: u32, timeout_ns: Option<i64>) {
    let timeout = timeout_ns.map(|tv_nsec| libc::timespec { tv_sec: 0, tv_nsec });
    let timeout = timeout
        .as_ref()
        .map_or(std::ptr::null(), std::ptr::from_ref);
    let operation = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: *own words*.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), operation, value, timeout) };
}

fn wake_in_handler(word: &AtomicU32) {
    let operation = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: *own words*; the call only reads the address.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), operation, i32::MAX) };
}

fn process_in_handler() -> i32 {
    // SAFETY: async-signal-safe, accesses no memory.
    unsafe { libc::getpid() }
}
