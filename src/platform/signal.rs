//! Stops 3 and 4 of the way of a sample, the system's half: a request goes out as a signal with a value, and comes in
//! on the thread it was meant for.
//!
//! Stop 3 of 12: [`send_request`]. The receiving half runs in the signal handler.
//!
//! The handler is installed once for each signal and stays for ever, so a late signal never meets the default action,
//! which kills (pprof-rs #288). A signal that is not ours goes on to the handler that was there before. `errno` is kept.
//!
//! **Contract of the handler** (cited below):
//! - *kernel's arguments*: the kernel calls it with a `siginfo_t` and a `ucontext_t` that live as long as the call;
//! - *published before*: what it reads, the capture function and the previous action, was stored with release ordering
//!   before the handler was installed, and is never freed.

use std::sync::atomic::{AtomicPtr, Ordering};

use crate::base::{ProcessId, StartError, ThreadId};
use crate::platform::clock::{current_thread_cpu_ns_in_handler, monotonic_now};
use crate::platform::guarded_memory::bind_guarded_reads;
use crate::platform::identity::{note_process, process_number_in_handler};

/// What a request carries to its thread: which slot, and which request. A cookie tells it from other programs' values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SignalTicket {
    pub(crate) slot: u16,
    pub(crate) sequence: u32,
}

const COOKIE: u64 = 0x6e6b_u64;

impl SignalTicket {
    const fn to_value(self) -> u64 {
        COOKIE << 48 | (self.slot as u64) << 32 | self.sequence as u64
    }

    const fn from_value(value: u64) -> Option<Self> {
        if value >> 48 != COOKIE {
            return None;
        }
        Some(Self {
            slot: (value >> 32) as u16,
            sequence: value as u32,
        })
    }
}

/// What a signal that may be ours says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SignalSource {
    /// The sampler sent it.
    Request(SignalTicket),
    /// A timer did, of this number: one of the thread's own, or a stranger's.
    Timer(i32),
}

/// A signal that has come in, with the stopped thread's context.
pub(crate) struct ArrivalInHandler<'a> {
    pub(crate) source: SignalSource,
    pub(super) context: &'a libc::ucontext_t,
}

/// Whether it was ours, wanted still or not, so that nobody else shall see it.
type CaptureFn = fn(&ArrivalInHandler<'_>) -> bool;

/// Marks a signal that has been passed on once; the kernel writes 0 there.
const PASSED_ON: libc::c_int = 0x6e6b;

pub(super) const SIGNALS: usize = 65;
static CAPTURE: AtomicPtr<()> = AtomicPtr::new(std::ptr::null_mut());
static PREVIOUS: [AtomicPtr<libc::sigaction>; SIGNALS] =
    [const { AtomicPtr::new(std::ptr::null_mut()) }; SIGNALS];

#[cfg_attr(gekkota_rtsan, sanitize(realtime = "nonblocking"))]
extern "C" fn handle_signal(
    signal: libc::c_int,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) {
    // SAFETY: async-signal-safe; gives the address of this thread's `errno`.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: the thread's own `errno`.
    let kept = unsafe { *errno };
    // SAFETY: *kernel's arguments*.
    if !unsafe { take_in_handler(info, context) } {
        // SAFETY: *kernel's arguments*.
        unsafe { pass_on_in_handler(signal, info, context) };
    }
    // SAFETY: the thread's own `errno`.
    unsafe { *errno = kept };
}

/// Whether the signal was a request of ours, wanted still or not, so that nobody else shall see it.
///
/// # Safety
/// - The arguments are those of the signal handler that runs.
unsafe fn take_in_handler(info: *const libc::siginfo_t, context: *const libc::c_void) -> bool {
    // SAFETY: by this function's contract.
    let Some(source) = (unsafe { source_in_handler(info) }) else {
        return false;
    };
    let capture = CAPTURE.load(Ordering::Acquire);
    if capture.is_null() {
        return false;
    }
    // SAFETY: *published before*: the only values stored are null and a `CaptureFn`; *kernel's arguments*.
    let (capture, context) = unsafe {
        (
            std::mem::transmute::<*mut (), CaptureFn>(capture),
            &*context.cast(),
        )
    };
    capture(&ArrivalInHandler { source, context })
}

/// # Safety
/// - The argument is that of the signal handler that runs.
unsafe fn source_in_handler(info: *const libc::siginfo_t) -> Option<SignalSource> {
    /// The kernel's code for "an event's descriptor has something to read".
    const EVENT: libc::c_int = 1;
    /// Where the descriptor's number stands in the kernel's `siginfo_t`.
    const NUMBER_OFFSET: usize = 24;
    // SAFETY: by this function's contract.
    match unsafe { (*info).si_code } {
        libc::SI_QUEUE => {
            // SAFETY: by this function's contract; a queued signal carries a sender and a value.
            let (sender, value) =
                unsafe { ((*info).si_pid(), (*info).si_value().sival_ptr as u64) };
            let is_own = sender == process_number_in_handler();
            SignalTicket::from_value(value)
                .filter(|_| is_own)
                .map(SignalSource::Request)
        }
        // SAFETY: by this function's contract: 128 bytes, of which these are a number.
        EVENT => Some(SignalSource::Timer(unsafe {
            info.byte_add(NUMBER_OFFSET).cast::<i32>().read()
        })),
        _ => None,
    }
}

/// # Safety
/// - The arguments are those of the signal handler that runs.
unsafe fn pass_on_in_handler(
    signal: libc::c_int,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) {
    // A handler that was installed over ours may pass signals on to us, and be the one that we pass them on to.
    // SAFETY: *kernel's arguments*: the frame's own copy, which nobody else reads meanwhile.
    unsafe {
        if (*info).si_errno == PASSED_ON {
            return;
        }
        (*info).si_errno = PASSED_ON;
    }
    let previous = PREVIOUS
        .get(signal as usize)
        .map_or(std::ptr::null_mut(), |slot| slot.load(Ordering::Acquire));
    if previous.is_null() {
        return;
    }
    // SAFETY: *published before*: a leaked `sigaction`; *kernel's arguments*.
    unsafe { call_in_handler(&*previous, signal, info, context) };
}

/// Whether it is a handler. The default action is never taken: it would kill the host.
pub(super) fn is_function(action: &libc::sigaction) -> bool {
    action.sa_sigaction != libc::SIG_DFL && action.sa_sigaction != libc::SIG_IGN
}

/// Calls another handler, if the action is one.
///
/// # Safety
/// - The kernel held `previous` as a signal's action.
/// - The other arguments are those of the signal handler that runs.
pub(super) unsafe fn call_in_handler(
    previous: &libc::sigaction,
    signal: libc::c_int,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) {
    if !is_function(previous) {
        return;
    }
    if previous.sa_flags & libc::SA_SIGINFO != 0 {
        type Action = extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void);
        // SAFETY: the kernel held this address as a handler of this shape, by its flag.
        let action: Action = unsafe { std::mem::transmute(previous.sa_sigaction) };
        action(signal, info, context);
    } else {
        // SAFETY: the kernel held this address as a handler of this shape, by its flag.
        let action: extern "C" fn(libc::c_int) =
            unsafe { std::mem::transmute(previous.sa_sigaction) };
        action(signal);
    }
}

/// The signal to use when none was asked for.
const DEFAULT_SIGNAL: i32 = libc::SIGPROF;

/// The signal to sample with, if it is one that can be used.
///
/// # Errors
/// [`StartError::BadValue`] for one that is not free for such a use.
pub(crate) fn signal_is_acceptable(asked: Option<i32>) -> Result<i32, StartError> {
    check_signal("signal", asked.unwrap_or(DEFAULT_SIGNAL))
}

/// The signal, if it is one that nobody misses.
///
/// # Errors
/// [`StartError::BadValue`] for `field`.
pub(super) fn check_signal(field: &'static str, signal: i32) -> Result<i32, StartError> {
    // Signals that nobody misses: our handler stays for ever, so the default action of any other, from the interrupt
    // key's to a fault's, would never be taken again.
    let free = [
        libc::SIGPROF,
        libc::SIGVTALRM,
        libc::SIGALRM,
        libc::SIGURG,
        libc::SIGUSR1,
        libc::SIGUSR2,
        libc::SIGIO,
        libc::SIGPWR,
        libc::SIGSTKFLT,
    ];
    if free.contains(&signal) || (libc::SIGRTMIN()..=libc::SIGRTMAX()).contains(&signal) {
        return Ok(signal);
    }
    Err(StartError::BadValue {
        field,
        value: format!("{signal}"),
        accepted: format!(
            "SIGPROF, SIGVTALRM, SIGALRM, SIGURG, SIGUSR1, SIGUSR2, SIGIO, SIGPWR, SIGSTKFLT, or one of \
             {} to {}",
            libc::SIGRTMIN(),
            libc::SIGRTMAX()
        ),
    })
}

/// Who answers a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HandlerCheck {
    InPlace,
    /// Somebody had left the default action or none behind; ours is back.
    PutBack,
    /// Somebody else's handler is there. It is not touched, and not called by us.
    Foreign,
    /// It could not be put back: a request would be a stranger's.
    Lost,
}

/// Looks whether our handler answers the signal. One system call when it does. Another profiler that stops may leave the
/// default action behind, which kills (pprof-rs #288), or none, which silences us: then ours is put back. Over a handler it
/// is not: whoever installed that may take it away with its code.
pub(crate) fn ensure_handler(signal: i32) -> HandlerCheck {
    let Ok(current) = read_action(signal) else {
        return HandlerCheck::Lost;
    };
    if is_ours(&current) {
        return HandlerCheck::InPlace;
    }
    if is_function(&current) {
        return HandlerCheck::Foreign;
    }
    match put_handler(signal) {
        Ok(()) => HandlerCheck::PutBack,
        Err(_) => HandlerCheck::Lost,
    }
}

/// What the system does on this signal.
pub(super) fn read_action(signal: i32) -> Result<libc::sigaction, StartError> {
    // SAFETY: zeroed is a valid `sigaction`, and the out-pointer is to a local.
    unsafe {
        let mut current: libc::sigaction = std::mem::zeroed();
        match libc::sigaction(signal, std::ptr::null(), &mut current) {
            0 => Ok(current),
            _ => Err(refused("read the signal's handler")),
        }
    }
}

fn is_ours(action: &libc::sigaction) -> bool {
    action.sa_sigaction == handle_signal as extern "C" fn(_, _, _) as usize
}

pub(super) fn refused(action: &'static str) -> StartError {
    StartError::System {
        action,
        answer: std::io::Error::last_os_error().to_string(),
    }
}

/// Makes `capture` answer the requests that come by `signal`, from now on for ever. Calling it again costs two system
/// calls and changes nothing, unless somebody else has installed a handler meanwhile: that one is then kept as the
/// previous one.
pub(crate) fn install_handler(signal: i32, capture: CaptureFn) -> Result<(), StartError> {
    note_process();
    bind_what_the_handler_calls();
    CAPTURE.store(capture as *mut (), Ordering::Release);
    put_handler(signal)
}

/// Calls each function of the C library that the handler calls: a function of another library may be bound at its first
/// call, and that takes the loader's lock.
fn bind_what_the_handler_calls() {
    let from = [0u8; 64];
    let mut to = [0u8; 64];
    let bytes = std::hint::black_box(from.len());
    // SAFETY: both have so many bytes; the kernel writes to locals.
    unsafe {
        std::ptr::copy_nonoverlapping(from.as_ptr(), to.as_mut_ptr(), bytes);
        std::hint::black_box(libc::__errno_location());
    }
    std::hint::black_box((to, monotonic_now(), current_thread_cpu_ns_in_handler()));
    bind_guarded_reads();
}

fn put_handler(signal: i32) -> Result<(), StartError> {
    let current = read_action(signal)?;
    if is_ours(&current) {
        return Ok(());
    }
    PREVIOUS[signal as usize].store(keep_action(current), Ordering::Release);
    // SAFETY: the action is on this stack, and the handler has the shape that `SA_SIGINFO` asks for. Every signal is
    // blocked while it runs, so that no other handler can jump out of it; there is no `SA_ONSTACK`, since the
    // alternate stacks that Rust makes are too small for foreign handlers (coz #110).
    let (answer, replaced) = unsafe {
        let (mut action, mut replaced): (libc::sigaction, libc::sigaction) = std::mem::zeroed();
        action.sa_sigaction = handle_signal as extern "C" fn(_, _, _) as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
        libc::sigfillset(&mut action.sa_mask);
        (libc::sigaction(signal, &action, &mut replaced), replaced)
    };
    if answer != 0 {
        return Err(refused("install the signal's handler"));
    }
    // One that was installed since ours was looked for.
    if replaced.sa_sigaction != current.sa_sigaction && !is_ours(&replaced) {
        PREVIOUS[signal as usize].store(keep_action(replaced), Ordering::Release);
    }
    Ok(())
}

/// Never freed, since a handler that runs may be reading the one before; so the same action is kept once. Without a lock,
/// which a fork could leave held.
pub(super) fn keep_action(current: libc::sigaction) -> *mut libc::sigaction {
    static KEPT: [AtomicPtr<libc::sigaction>; 64] =
        [const { AtomicPtr::new(std::ptr::null_mut()) }; 64];
    let fresh = Box::into_raw(Box::new(current));
    let known = KEPT.iter().find_map(|place| {
        let null = std::ptr::null_mut();
        match place.compare_exchange(null, fresh, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => Some(fresh),
            Err(known) => {
                // SAFETY: *published before*: what is in the list is leaked.
                let action = unsafe { &*known };
                is_same_action(action, &current).then_some(known)
            }
        }
    });
    if known.is_some_and(|known| known != fresh) {
        // SAFETY: made above, and nobody has seen it.
        drop(unsafe { Box::from_raw(fresh) });
    }
    known.unwrap_or(fresh)
}

fn is_same_action(one: &libc::sigaction, other: &libc::sigaction) -> bool {
    let blocks = |action: &libc::sigaction, signal| {
        // SAFETY: reads a whole set.
        unsafe { libc::sigismember(&action.sa_mask, signal) }
    };
    one.sa_sigaction == other.sa_sigaction
        && one.sa_flags == other.sa_flags
        && (1..SIGNALS as i32).all(|signal| blocks(one, signal) == blocks(other, signal))
}

/// Whether threads are or were asked for their stacks by this signal. Its handler stays for ever.
pub(super) fn is_sampling_signal(signal: i32) -> bool {
    PREVIOUS
        .get(signal as usize)
        .is_some_and(|previous| !previous.load(Ordering::Acquire).is_null())
}

/// Whether each signal of this number is kept until the thread takes it. Of the others a thread has one pending at most,
/// and those that come meanwhile are lost.
pub(crate) fn signal_is_queued(signal: i32) -> bool {
    signal >= libc::SIGRTMIN()
}

/// Whether the process has such a thread. One system call.
pub(crate) fn thread_exists(process: ProcessId, thread: ThreadId) -> bool {
    // SAFETY: signal 0 is none; no memory is touched.
    let answer = unsafe {
        libc::syscall(
            libc::SYS_tgkill,
            process.to_number(),
            thread.to_number(),
            0 as libc::c_int,
        )
    };
    answer == 0
}

/// Whether a request could be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    Yes,
    /// The thread is no more.
    NoSuchThread,
    /// The kernel would not: the process has too many signals pending, say.
    Refused,
}

/// The kernel's `siginfo_t` of a queued signal.
#[repr(C)]
struct QueuedInfo {
    signo: i32,
    errno: i32,
    code: i32,
    padding: i32,
    sender: i32,
    user: u32,
    value: u64,
    rest: [u64; 12],
}
const _: () = assert!(size_of::<QueuedInfo>() == 128);

/// Sends a request to a thread of this process. One system call; never blocks.
pub(crate) fn send_request(
    process: ProcessId,
    thread: ThreadId,
    signal: i32,
    ticket: SignalTicket,
) -> Sent {
    let info = QueuedInfo {
        signo: signal,
        errno: 0,
        code: libc::SI_QUEUE,
        padding: 0,
        sender: process.to_number(),
        // SAFETY: touches no memory.
        user: unsafe { libc::getuid() },
        value: ticket.to_value(),
        rest: [0; 12],
    };
    // SAFETY: the kernel reads 128 bytes from `info`.
    let answer = unsafe {
        libc::syscall(
            libc::SYS_rt_tgsigqueueinfo,
            process.to_number(),
            thread.to_number(),
            signal,
            &raw const info,
        )
    };
    if answer == 0 {
        return Sent::Yes;
    }
    match std::io::Error::last_os_error().raw_os_error() {
        Some(libc::ESRCH) => Sent::NoSuchThread,
        _ => Sent::Refused,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ticket_survives_the_journey_and_a_strangers_value_is_none() {
        let ticket = SignalTicket {
            slot: 65_535,
            sequence: u32::MAX,
        };
        assert_eq!(SignalTicket::from_value(ticket.to_value()), Some(ticket));
        assert_eq!(SignalTicket::from_value(0), None);
        assert_eq!(SignalTicket::from_value(u64::MAX), None);
    }

    #[test]
    fn signals_that_cannot_be_caught_are_refused_in_words() {
        assert_eq!(signal_is_acceptable(None), Ok(libc::SIGPROF));
        assert_eq!(signal_is_acceptable(Some(libc::SIGUSR2)), Ok(libc::SIGUSR2));
        for signal in [0, -1, 33, 65, libc::SIGKILL, libc::SIGSEGV, libc::SIGINT] {
            let error = signal_is_acceptable(Some(signal)).unwrap_err().to_string();
            assert!(
                error.contains("signal is") && error.contains("accepted"),
                "{error}"
            );
        }
    }
}
