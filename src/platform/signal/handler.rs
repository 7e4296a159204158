//! Requests to a thread, sent as a signal with a value, and their receipt on the target thread.
//!
//! Step 3 of 12: [`send_request`]. The receiving half (step 4) runs in the signal handler.
//!
//! The handler is installed once per signal and is never removed. A late signal therefore never
//! takes the default action, which kills the process (pprof-rs #288). A signal that is not a
//! request of the profiler is passed on to the previous handler, which runs with the signals
//! blocked, and on the stack, that it was installed with. `errno` is preserved.
//!
//! The kernel restarts the system calls that the signal interrupts (`SA_RESTART`), even if the
//! previous handler was installed without that flag: otherwise each sample would interrupt them. So
//! an application that ends a system call of its own by a signal needs another signal for that.
//!
//! A foreign handler that replaced the profiler's may pass signals on to it. The profiler may then
//! be installed once more, over that handler. So each installation over another handler has a
//! handler function of its own, its *level*, and a previous handler of its own. A signal then
//! passes through all handlers in the reverse order of their installation, as it would without the
//! profiler.
//!
//! Two copies of the crate may be in one process, for example two versions of it. The requests of
//! each carry a cookie of its own, so that neither answers nor drops the other's. If both sample
//! with the same signal, the handler of one copy replaces the other copy's handler, and passes the
//! other copy's requests on. The copy whose handler was replaced finds that out without sending a
//! signal (`other_copy.rs`).
//!
//! **Contract of the handler** (cited below):
//! - *kernel's arguments*: the kernel calls the handler with a `siginfo_t` and a `ucontext_t` that
//!   live as long as the call;
//! - *published before*: the handler reads the capture function and the previous action. Both are
//!   stored with release ordering before the handler is installed, and are never freed.

use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use nix::errno::Errno;
use nix::sys::signal::{SaFlags, SigAction, SigHandler};
use nix::unistd::getuid;

use crate::platform::clock::system_clock::{current_thread_cpu_ns_in_handler, monotonic_now};
use crate::platform::identity::{note_process, process_number_in_handler, signals_to_block};
use crate::platform::memory::guarded_memory::bind_guarded_reads;
use crate::platform::pinned_library::pin_own_library;
use crate::platform::signal::other_copy::{self, SAMPLING};
use crate::types::{ProcessId, StartError, ThreadId, signal_name};

/// Value that a request carries to the target thread: the slot and the number of the request. A
/// cookie distinguishes it from the values of other senders, such as another copy of the crate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SignalTicket {
    pub(crate) slot: u16,
    pub(crate) sequence: u32,
}

/// Returns a number that tells the copies of the crate in a process apart: a hash of the address of
/// one of its statics. Never 0. A request carries 16 bits of the number. So two copies that use the
/// same signal take each other's requests for their own once in 32,768 processes.
fn cookie_in_handler() -> u32 {
    let address = (&raw const CAPTURE).addr() as u64;
    // Neither half is 0: the small values of other timers are not taken for tickets.
    (address.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u32 | 0x1_0001
}

impl SignalTicket {
    pub(super) fn to_value(self) -> u64 {
        let cookie = u64::from(cookie_in_handler() >> 16);
        cookie << 48 | u64::from(self.slot) << 32 | u64::from(self.sequence)
    }

    fn from_value_in_handler(value: u64) -> Option<Self> {
        if value >> 48 != u64::from(cookie_in_handler() >> 16) {
            return None;
        }
        Some(Self {
            slot: (value >> 32) as u16,
            sequence: value as u32,
        })
    }
}

/// Sender of a signal that may be a request of the profiler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SignalSource {
    /// The sampler sent the signal.
    Request(SignalTicket),
    /// The kernel delivered the signal without its data, because the user has too many pending
    /// signals (`RLIMIT_SIGPENDING`). It may be the request that is pending for the thread.
    Unknown,
    /// A `perf_event_open` event with this descriptor sent the signal: that of the target thread's
    /// CPU clock, or an event of the application.
    Event(i32),
}

/// A signal on arrival, with the context of the interrupted thread.
pub(crate) struct ArrivalInHandler<'a> {
    pub(crate) source: SignalSource,
    pub(crate) context: &'a libc::ucontext_t,
}

/// Captures the state of the interrupted thread. Returns true if the signal was a request of the
/// profiler, even a stale one: such a signal is not passed on.
type CaptureFn = fn(&ArrivalInHandler<'_>) -> bool;

/// Maximum number of times that all copies of the crate together pass on a signal.
const MAX_PASSES: libc::c_int = other_copy::MAX_PASSES as libc::c_int;
/// Offset of the padding in the kernel's `siginfo_t`, in bytes. It counts the passes. The kernel
/// sets it to 0.
const PASSES_OFFSET: usize = 12;

/// Length of a table that is indexed by signal number.
pub(crate) const SIGNAL_LIMIT: usize = 65;
/// The process's real user when the handler was last installed. Requests carry it for foreign
/// handlers that were installed over this one; the profiler itself does not read it.
static USER: AtomicU32 = AtomicU32::new(0);
static CAPTURE: AtomicPtr<()> = AtomicPtr::new(std::ptr::null_mut());
/// The previous action of each signal at each level; null for a level that was not used.
static PREVIOUS: [[AtomicPtr<libc::sigaction>; LEVELS]; SIGNAL_LIMIT] =
    [const { [const { AtomicPtr::new(std::ptr::null_mut()) }; LEVELS] }; SIGNAL_LIMIT];

/// Number of levels. Once all are used, the last one is used again.
const LEVELS: usize = 4;
type Handler = extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void);

/// The instructions of a handler's head that jump over the rest of the head, and from its end to
/// the handler's body.
#[cfg(target_arch = "x86_64")]
macro_rules! jump {
    (over the rest) => {
        // `jmp` by 22 bytes, and a `nop` of two.
        ".byte 0xeb, 22, 0x66, 0x90"
    };
    (to the body) => {
        "jmp {body}"
    };
}
#[cfg(target_arch = "aarch64")]
macro_rules! jump {
    (over the rest) => {
        "b .+24"
    };
    (to the body) => {
        "b {body}"
    };
}
pub(crate) use jump;

/// Defines a handler function that begins with the head which `other_copy.rs` describes, and
/// continues as the body. The table of previous actions has `levels` entries for each signal; this
/// handler uses that of `level`.
macro_rules! handler_with_head {
    ($mark:literal, $head:ident, $body:path, $table:path, $level:expr, $levels:expr) => {
        // SAFETY: jumps to a function with the same signature, and changes no register.
        #[unsafe(naked)]
        extern "C" fn $head(
            signal: libc::c_int,
            info: *mut libc::siginfo_t,
            context: *mut libc::c_void,
        ) {
            std::arch::naked_asm!(
                ".cfi_startproc",
                $crate::platform::signal::handler::jump!(over the rest),
                concat!(".ascii \"", $mark, "\""),
                ".long {table} + {entry} - .",
                ".long {distance}",
                $crate::platform::signal::handler::jump!(to the body),
                ".cfi_endproc",
                table = sym $table,
                entry = const $level * size_of::<usize>(),
                distance = const $levels * size_of::<usize>(),
                body = sym $body,
            )
        }
    };
}
pub(crate) use handler_with_head;

macro_rules! handlers {
    ($($head:ident, $body:ident: $level:literal,)+) => {
        $(
            #[cfg_attr(gekkota_rtsan, sanitize(realtime = "nonblocking"))]
            extern "C" fn $body(
                signal: libc::c_int,
                info: *mut libc::siginfo_t,
                context: *mut libc::c_void,
            ) {
                // SAFETY: *kernel's arguments*.
                unsafe { handle_signal_in_handler($level, signal, info, context) }
            }

            handler_with_head!("gekkota/smp1", $head, $body, PREVIOUS, $level, LEVELS);
        )+

        /// The handler functions by level. A static, so that each has one address.
        static HANDLERS: [Handler; LEVELS] = [$($head,)+];
    };
}

handlers! {
    first_level_in_handler, first_body_in_handler: 0,
    second_level_in_handler, second_body_in_handler: 1,
    third_level_in_handler, third_body_in_handler: 2,
    fourth_level_in_handler, fourth_body_in_handler: 3,
}

/// Handles a signal with the handler function of this level.
///
/// # Safety
/// - The other arguments are those of the running signal handler.
#[inline(always)]
unsafe fn handle_signal_in_handler(
    level: usize,
    signal: libc::c_int,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) {
    // SAFETY: async-signal-safe; returns the address of the calling thread's `errno`.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: the thread's own `errno`.
    let kept = unsafe { *errno };
    // SAFETY: *kernel's arguments*.
    if !unsafe { capture_in_handler(info, context) } {
        // SAFETY: *kernel's arguments*.
        unsafe { pass_on_in_handler(level, signal, info, context) };
    }
    // SAFETY: the thread's own `errno`.
    unsafe { *errno = kept };
}

/// Runs the capture function if the signal may be a request of the profiler. Returns true if it was
/// a request, even a stale one: such a signal is not passed on.
///
/// # Safety
/// - The arguments are those of the running signal handler.
unsafe fn capture_in_handler(info: *const libc::siginfo_t, context: *const libc::c_void) -> bool {
    // SAFETY: by this function's contract.
    let Some(source) = (unsafe { source_in_handler(info) }) else {
        return false;
    };
    let capture = CAPTURE.load(Ordering::Acquire);
    if capture.is_null() {
        return false;
    }
    // SAFETY: *published before*: the only values stored are null and a `CaptureFn`; *kernel's
    // arguments*.
    let (capture, context) = unsafe {
        (
            std::mem::transmute::<*mut (), CaptureFn>(capture),
            &*context.cast(),
        )
    };
    capture(&ArrivalInHandler { source, context })
}

/// Returns the sender of the signal, or `None` if the signal cannot be a request.
///
/// # Safety
/// - `info` is the argument of the running signal handler.
unsafe fn source_in_handler(info: *const libc::siginfo_t) -> Option<SignalSource> {
    /// Value of `si_code` for an event whose descriptor is readable (`POLL_IN`).
    const DESCRIPTOR_READABLE: libc::c_int = 1;
    /// Offset of the descriptor in the kernel's `siginfo_t`, in bytes.
    const DESCRIPTOR_OFFSET: usize = 24;
    // SAFETY: by this function's contract.
    match unsafe { (*info).si_code } {
        libc::SI_QUEUE => {
            // SAFETY: by this function's contract; the kernel fills in the sender and the value of
            // a queued signal.
            let (sender, value) =
                unsafe { ((*info).si_pid(), (*info).si_value().sival_ptr as u64) };
            let is_own = sender == process_number_in_handler();
            SignalTicket::from_value_in_handler(value)
                .filter(|_| is_own)
                .map(SignalSource::Request)
        }
        // Only a sender outside of this process's PID namespace has that number, too. While a
        // request is pending, its signal counts as the answer.
        // SAFETY: by this function's contract; the kernel fills in the sender.
        libc::SI_USER if unsafe { (*info).si_pid() } == 0 => Some(SignalSource::Unknown),
        // SAFETY: by this function's contract: the structure has 128 bytes, and the four bytes at
        // this offset hold the descriptor.
        DESCRIPTOR_READABLE => Some(SignalSource::Event(unsafe {
            info.byte_add(DESCRIPTOR_OFFSET).cast::<i32>().read()
        })),
        _ => None,
    }
}

/// Returns the value of `si_errno` that marks a signal as passed on at this level. Never 0.
fn mark_in_handler(level: usize) -> i32 {
    let cookie = cookie_in_handler() & !LEVEL_BITS;
    (cookie | NOT_ZERO | level as u32).cast_signed()
}

/// Bits of a mark that hold the level.
const LEVEL_BITS: u32 = LEVELS as u32 - 1;
const _: () = assert!(LEVELS.is_power_of_two());
/// Bit that every mark has.
const NOT_ZERO: u32 = LEVELS as u32;

/// Returns the level whose previous handler gets a signal with this `si_errno`, which has reached
/// the handler of level `own`; `None` if each of them has got it.
fn next_level_in_handler(own: usize, mark: i32) -> Option<usize> {
    let level = (mark.cast_unsigned() & LEVEL_BITS) as usize;
    if mark == mark_in_handler(level) {
        level.checked_sub(1).map(|below| below.min(own))
    } else {
        Some(own)
    }
}

/// Calls the previous handler of this level. If the signal was already passed on at this level or
/// below, calls that of the next lower one.
///
/// # Safety
/// - The other arguments are those of the running signal handler.
unsafe fn pass_on_in_handler(
    level: usize,
    signal: libc::c_int,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) {
    // A foreign handler that was installed over this one may call this handler, and may also be the
    // previous handler. The mark ends that recursion, and the count ends one that two copies of the
    // crate make, each of which writes its own mark.
    // SAFETY: *kernel's arguments*: the `siginfo_t` lies in the signal frame, and nothing else
    // accesses it during the call.
    let level = unsafe {
        let passes = info.byte_add(PASSES_OFFSET).cast::<libc::c_int>();
        let next = next_level_in_handler(level, (*info).si_errno);
        let Some(level) = next.filter(|_| (0..MAX_PASSES).contains(&*passes)) else {
            return;
        };
        (*info).si_errno = mark_in_handler(level);
        *passes += 1;
        level
    };
    let levels = PREVIOUS.get(signal as usize);
    let Some(entry) = levels.and_then(|levels| levels.get(level)) else {
        return;
    };
    let previous = entry.load(Ordering::Acquire);
    // SAFETY: *published before*: null or a leaked `sigaction`.
    let Some(action) = (unsafe { previous.as_ref() }).filter(|action| is_handler(action)) else {
        return;
    };
    if action.sa_flags & libc::SA_RESETHAND != 0 {
        let default = (&raw const DEFAULT_ACTION).cast_mut();
        let _ = entry.compare_exchange(previous, default, Ordering::AcqRel, Ordering::Relaxed);
    }
    // SAFETY: *kernel's arguments*; the kernel held the action.
    unsafe { call_as_installed_in_handler(action, signal, info, context) };
}

/// Calls the handler function of `previous`, if it has one, with the signals blocked that the kernel
/// would block for it. The return from the signal restores the interrupted thread's mask.
///
/// # Safety
/// - The kernel held `previous` as the action of a signal.
/// - The other arguments are those of the running signal handler.
pub(crate) unsafe fn call_as_installed_in_handler(
    previous: &libc::sigaction,
    signal: libc::c_int,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) {
    if is_handler(previous) {
        // SAFETY: by this function's contract.
        unsafe {
            block_as_installed_in_handler(previous, signal, &*context.cast());
            call_in_handler(previous, signal, info, context);
        }
    }
}

/// The default action of a signal.
// SAFETY: zeroed is a valid `sigaction`.
static DEFAULT_ACTION: libc::sigaction = unsafe { std::mem::zeroed() };

/// Blocks the signals that the kernel would block for a handler that was installed with this
/// action. The return from the signal restores the interrupted thread's mask.
fn block_as_installed_in_handler(
    action: &libc::sigaction,
    signal: libc::c_int,
    context: &libc::ucontext_t,
) {
    /// Size of the mask in the kernel's `ucontext_t`, in bytes. The C library's type is longer.
    const MASK_BYTES: usize = 8;
    let mut blocked = action.sa_mask;
    // SAFETY: async-signal-safe; the sets are initialized, and the kernel's mask has this size.
    unsafe {
        if action.sa_flags & libc::SA_NODEFER == 0 {
            libc::sigaddset(&mut blocked, signal);
        }
        let interrupted = (&raw const context.uc_sigmask).cast::<[u8; MASK_BYTES]>();
        let merged = (&raw mut blocked).cast::<[u8; MASK_BYTES]>();
        for (byte, other) in (*merged).iter_mut().zip(*interrupted) {
            *byte |= other;
        }
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const blocked, std::ptr::null_mut());
    }
}

/// Returns whether the action is a handler function. The default action and `SIG_IGN` are not:
/// taking the default action would kill the process.
pub(crate) fn is_handler(action: &libc::sigaction) -> bool {
    action.sa_sigaction != libc::SIG_DFL && action.sa_sigaction != libc::SIG_IGN
}

/// Calls the handler function of `previous`, and changes no mask.
///
/// # Safety
/// - As for [`call_as_installed_in_handler`], and `previous` is a handler.
unsafe fn call_in_handler(
    previous: &libc::sigaction,
    signal: libc::c_int,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) {
    if previous.sa_flags & libc::SA_SIGINFO != 0 {
        // SAFETY: the kernel held this address as a handler, and `SA_SIGINFO` gives its signature.
        let action: Handler = unsafe { std::mem::transmute(previous.sa_sigaction) };
        action(signal, info, context);
    } else {
        // SAFETY: the kernel held this address as a handler; without `SA_SIGINFO` it takes only the
        // number.
        let action: extern "C" fn(libc::c_int) =
            unsafe { std::mem::transmute(previous.sa_sigaction) };
        action(signal);
    }
}

/// Signals to sample with if the caller does not choose one, the best first.
///
/// `SIGURG` is ignored by default, so one that is pending while the process executes another
/// program is dropped; the others would end that program. Hardly any application uses it: it
/// reports urgent data of a socket, and only to a process that asked for that. Go's runtime
/// preempts threads with it for the same reasons.
pub(super) const DEFAULT_SIGNALS: [i32; 3] = [libc::SIGURG, libc::SIGPROF, libc::SIGSTKFLT];

/// Returns the sampling signal: `asked`, or the first of [`DEFAULT_SIGNALS`] that has no foreign
/// handler. If all of them have one, returns the first.
///
/// # Errors
/// [`StartError::BadValue`] if the signal cannot be used for sampling.
pub(crate) fn resolve_sampling_signal(asked: Option<i32>) -> Result<i32, StartError> {
    let automatic = || free_signal().unwrap_or(DEFAULT_SIGNALS[0]);
    check_signal("signal", asked.unwrap_or_else(automatic))
}

/// Returns the first of [`DEFAULT_SIGNALS`] that has no foreign handler.
pub(super) fn free_signal() -> Option<i32> {
    DEFAULT_SIGNALS
        .into_iter()
        .find(|&signal| !matches!(owner_of(signal), Some(Owner::CopyAbove | Owner::Foreign)))
}

/// Returns whether the signal has a foreign handler that is not known to pass the profiler's
/// requests on.
pub(crate) fn has_foreign_handler(signal: i32) -> bool {
    owner_of(signal) == Some(Owner::Foreign)
}

/// Returns the owner of the signal's handler; `None` if it has none, or if that cannot be read.
fn owner_of(signal: i32) -> Option<Owner> {
    Owner::of(&read_action(signal).ok()?, signal)
}

/// Returns `signal` if the profiler may take it over.
///
/// # Errors
/// [`StartError::BadValue`], with the name `field`, for any other signal.
pub(crate) fn check_signal(field: &'static str, signal: i32) -> Result<i32, StartError> {
    // The handler is never removed, so the signal loses its default action for the rest of the
    // process. An application can do without that of these signals, but not without that of SIGINT
    // or of a fault.
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
        value: signal_name(signal),
        accepted: format!(
            "SIGPROF, SIGVTALRM, SIGALRM, SIGURG, SIGUSR1, SIGUSR2, SIGIO, SIGPWR, SIGSTKFLT, or a \
             real-time signal from {} to {}",
            libc::SIGRTMIN(),
            libc::SIGRTMAX()
        ),
    })
}

/// The handler that a signal had when it was checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HandlerCheck {
    /// The profiler's handler was in place, or below that of another copy, which passes requests
    /// on.
    InPlace,
    /// The signal had the default action or was ignored. The profiler's handler is installed again.
    Reinstalled,
    /// A foreign handler is installed. The profiler leaves it in place and does not call it.
    Foreign,
    /// The handler could not be read, or the profiler's handler could not be installed again. A
    /// request must not be sent.
    Lost,
}

/// The owner of a signal's handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    Profiler,
    /// Another copy of the crate, whose handler passes signals on to the profiler's.
    CopyAbove,
    Foreign,
}

impl Owner {
    /// Returns the owner of the signal's handler, and `None` if the action is not a handler.
    fn of(action: &libc::sigaction, signal: i32) -> Option<Self> {
        let handler = action.sa_sigaction;
        if !is_handler(action) {
            None
        } else if is_our_handler(handler) {
            Some(Self::Profiler)
        } else if other_copy::passes_on_to(handler, signal, &[SAMPLING], is_our_handler) {
            Some(Self::CopyAbove)
        } else {
            Some(Self::Foreign)
        }
    }
}

/// Checks that the profiler's handler answers the signal, and installs it again where that is safe.
///
/// The sampler calls this on each tick. Cost: one system call if the handler is in place. Below
/// another handler it also reads memory (`other_copy.rs`): about two more calls below a foreign
/// handler, and six below that of another copy; over three times as many in a sandbox if the thread
/// has no pipe to read through.
///
/// Another profiler that stops may restore the default action, which kills the process (pprof-rs
/// #288), or ignore the signal, which ends sampling. In both cases the handler is installed again.
/// It is not installed over a foreign handler, because the owner of that handler may unload its
/// code.
pub(crate) fn ensure_handler(signal: i32) -> HandlerCheck {
    let Ok(current) = read_action(signal) else {
        return HandlerCheck::Lost;
    };
    match Owner::of(&current, signal) {
        Some(Owner::Profiler | Owner::CopyAbove) => HandlerCheck::InPlace,
        Some(Owner::Foreign) => HandlerCheck::Foreign,
        None => match set_handler(signal) {
            Ok(()) => HandlerCheck::Reinstalled,
            Err(_) => HandlerCheck::Lost,
        },
    }
}

/// Returns the action that the kernel holds for the signal.
pub(crate) fn read_action(signal: i32) -> Result<libc::sigaction, StartError> {
    // SAFETY: changes no action.
    unsafe { change_action(signal, std::ptr::null(), "read the signal handler") }
}

/// Installs the action, and returns the one that it replaces.
///
/// # Safety
/// - The handler function of the action may be called at any time, on any thread, from now on.
pub(crate) unsafe fn swap_action(
    signal: i32,
    action: &libc::sigaction,
) -> Result<libc::sigaction, StartError> {
    // SAFETY: by this function's contract.
    unsafe { change_action(signal, action, "install the signal handler") }
}

/// Calls `sigaction`. Not `nix`: its `Signal` excludes the real-time signals, and it cannot read an
/// action without replacing it.
///
/// # Safety
/// - `action` is null or valid. If it is valid, the contract of [`swap_action`] applies.
unsafe fn change_action(
    signal: i32,
    action: *const libc::sigaction,
    what: &'static str,
) -> Result<libc::sigaction, StartError> {
    // SAFETY: zeroed is a valid `sigaction`, and the out-pointer is to a local; by this function's
    // contract.
    let (answer, before) = unsafe {
        let mut before: libc::sigaction = std::mem::zeroed();
        (libc::sigaction(signal, action, &mut before), before)
    };
    Errno::result(answer)
        .map(|_| before)
        .map_err(|error| StartError::System {
            action: what,
            answer: std::io::Error::from(error).to_string(),
        })
}

fn is_our_handler(address: usize) -> bool {
    HANDLERS.iter().any(|&handler| handler as usize == address)
}

/// Does the part of [`install_handler`] that may wait for the loader. Called before it, without a
/// lock: a thread of the application may hold the loader's lock while it calls the profiler. Cost:
/// about 20 µs for the check for a sandbox, and that of a search in the loader's list on the first
/// call.
pub(crate) fn prepare_handler() {
    pin_own_library();
    bind_handler_functions();
}

/// Installs the profiler's handler, which calls `capture` for each request that arrives by
/// `signal`. The handler is never removed. The caller has called [`prepare_handler`].
///
/// If a foreign handler was installed since an earlier call, the profiler's is installed over it, at
/// another level; but not over that of another copy that passes requests on, because the copies
/// would use up their levels in turn. Cost: a few system calls.
pub(crate) fn install_handler(signal: i32, capture: CaptureFn) -> Result<(), StartError> {
    note_process();
    USER.store(getuid().as_raw(), Ordering::Relaxed);
    CAPTURE.store(capture as *mut (), Ordering::Release);
    set_handler(signal)
}

/// Calls each C library function that the handler uses.
fn bind_handler_functions() {
    let from = [0u8; 64];
    let mut to = [0u8; 64];
    let bytes = std::hint::black_box(from.len());
    // SAFETY: both arrays have 64 bytes.
    unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), to.as_mut_ptr(), bytes) };
    std::hint::black_box((to, monotonic_now(), current_thread_cpu_ns_in_handler()));
    bind_functions_of_all_handlers();
    bind_guarded_reads();
}

/// Calls C library functions that each handler uses. The first call of a dynamically linked
/// function may bind its symbol, which takes the loader's lock.
pub(super) fn bind_functions_of_all_handlers() {
    // SAFETY: the kernel writes to a local, for which zeroed is valid; a null set changes no mask.
    unsafe {
        std::hint::black_box((libc::__errno_location(), libc::syscall(libc::SYS_gettid)));
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigaddset(&mut set, libc::SIGURG);
        libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), &mut set);
    }
}

/// Returns the level for an installation over `previous`. Reuses the level with that previous
/// action; otherwise takes the first unused one, or the last. So a handler that is installed again
/// and again uses one level. Actions without a handler count as equal.
///
/// `levels` holds the previous action of each level.
fn level_over(previous: &libc::sigaction, levels: &[AtomicPtr<libc::sigaction>; LEVELS]) -> usize {
    let previous_of = |level: &AtomicPtr<libc::sigaction>| {
        // SAFETY: *published before*: null or a leaked `sigaction`.
        unsafe { level.load(Ordering::Acquire).as_ref() }
    };
    let is_like = |known: &libc::sigaction| {
        is_same_action(known, previous) || !(is_handler(known) || is_handler(previous))
    };
    let position = |wanted: &dyn Fn(Option<&libc::sigaction>) -> bool| {
        let mut levels = levels.iter();
        levels.position(|level| wanted(previous_of(level)))
    };
    position(&|known| known.is_some_and(is_like))
        .or_else(|| position(&|known| known.is_none()))
        .unwrap_or(LEVELS - 1)
}

/// Installs the profiler's handler and records the previous action.
fn set_handler(signal: i32) -> Result<(), StartError> {
    let current = read_action(signal)?;
    let owner = Owner::of(&current, signal);
    if matches!(owner, Some(Owner::Profiler | Owner::CopyAbove)) {
        return Ok(());
    }
    let levels = &PREVIOUS[signal as usize];
    let level = level_over(&current, levels);
    levels[level].store(intern_action(current), Ordering::Release);
    // On the thread's alternate stack if it has one, because the stack of a coroutine may be too
    // small, and Go requires it. A previous handler that was installed without that flag may need
    // more stack than there is (coz #110).
    let mut flags = SaFlags::SA_RESTART | SaFlags::SA_ONSTACK;
    if is_handler(&current) && current.sa_flags & libc::SA_ONSTACK == 0 {
        flags.remove(SaFlags::SA_ONSTACK);
    }
    // Signals are blocked while the handler runs, so that only a fault can interrupt it.
    let handler = SigHandler::SigAction(HANDLERS[level]);
    let action = SigAction::new(handler, flags, signals_to_block());
    // SAFETY: the handler has the signature that `SA_SIGINFO` requires, and keeps its contract.
    let replaced = unsafe { swap_action(signal, &action.into()) }?;
    // Another thread installed the replaced handler after `read_action`.
    if replaced.sa_sigaction != current.sa_sigaction && !is_our_handler(replaced.sa_sigaction) {
        levels[level].store(intern_action(replaced), Ordering::Release);
    }
    Ok(())
}

/// Returns a copy of `current` that is never freed, because a handler on another thread may still
/// read it. Equal actions share one copy, up to 64 different actions. Uses no lock, since a fork
/// could leave it locked.
pub(crate) fn intern_action(current: libc::sigaction) -> *mut libc::sigaction {
    static INTERNED: [AtomicPtr<libc::sigaction>; 64] =
        [const { AtomicPtr::new(std::ptr::null_mut()) }; 64];
    let fresh = Box::into_raw(Box::new(current));
    let known = INTERNED.iter().find_map(|entry| {
        let null = std::ptr::null_mut();
        match entry.compare_exchange(null, fresh, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => Some(fresh),
            Err(known) => {
                // SAFETY: *published before*: all actions in the list are leaked.
                let action = unsafe { &*known };
                is_same_action(action, &current).then_some(known)
            }
        }
    });
    if known.is_some_and(|known| known != fresh) {
        // SAFETY: allocated above and not published.
        drop(unsafe { Box::from_raw(fresh) });
    }
    known.unwrap_or(fresh)
}

pub(super) fn is_same_action(one: &libc::sigaction, other: &libc::sigaction) -> bool {
    let blocks = |action: &libc::sigaction, signal| {
        // SAFETY: reads an initialized set.
        unsafe { libc::sigismember(&action.sa_mask, signal) }
    };
    one.sa_sigaction == other.sa_sigaction
        && one.sa_flags == other.sa_flags
        && (1..SIGNAL_LIMIT as i32).all(|signal| blocks(one, signal) == blocks(other, signal))
}

/// Returns whether the profiler samples with this signal, or did so before: its handler is never
/// removed.
pub(crate) fn is_sampling_signal(signal: i32) -> bool {
    PREVIOUS
        .get(signal as usize)
        .is_some_and(|levels| !levels[0].load(Ordering::Acquire).is_null())
}

/// Returns whether the kernel queues signals of this number, as it does for real-time signals. Of
/// any other number a thread has at most one pending signal, and further ones are lost.
pub(crate) fn signal_is_queued(signal: i32) -> bool {
    signal >= libc::SIGRTMIN()
}

/// Outcome of sending a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    Yes,
    /// The thread has exited.
    NoSuchThread,
    /// The kernel refused, for example because the user has too many pending signals.
    Refused,
}

/// The kernel's `siginfo_t` for a queued signal.
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

/// Sends a request to a thread of this process, without blocking. Cost: one system call.
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
        user: USER.load(Ordering::Relaxed),
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
    match Errno::last() {
        Errno::ESRCH => Sent::NoSuchThread,
        _ => Sent::Refused,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signal_name_matches_the_systems_numbers() {
        for (signal, name) in [
            (libc::SIGKILL, "SIGKILL"),
            (libc::SIGUSR1, "SIGUSR1"),
            (libc::SIGSEGV, "SIGSEGV"),
            (libc::SIGUSR2, "SIGUSR2"),
            (libc::SIGALRM, "SIGALRM"),
            (libc::SIGSTKFLT, "SIGSTKFLT"),
            (libc::SIGURG, "SIGURG"),
            (libc::SIGVTALRM, "SIGVTALRM"),
            (libc::SIGPROF, "SIGPROF"),
            (libc::SIGIO, "SIGIO"),
            (libc::SIGPWR, "SIGPWR"),
            (libc::SIGSYS, "SIGSYS"),
            (40, "real-time signal 40"),
            (0, "0"),
            (-1, "-1"),
        ] {
            assert_eq!(signal_name(signal), name);
        }
    }

    #[test]
    fn ticket_round_trips_and_foreign_values_are_rejected() {
        let ticket = SignalTicket {
            slot: 65_535,
            sequence: u32::MAX,
        };
        let from_value = SignalTicket::from_value_in_handler;
        assert_eq!(from_value(ticket.to_value()), Some(ticket));
        for bit in 48..64 {
            assert_eq!(from_value(ticket.to_value() ^ 1 << bit), None);
        }
    }

    #[test]
    fn next_level_is_the_own_one_or_that_below_the_mark() {
        let [first, second] = [0, 1].map(mark_in_handler);
        for (own, mark, next) in [
            (0, 0, Some(0)),
            (3, 0, Some(3)),
            (0, second, Some(0)),
            (1, second, Some(0)),
            (3, second, Some(0)),
            (3, mark_in_handler(3), Some(2)),
            (1, mark_in_handler(3), Some(1)),
            (0, first, None),
            (1, first, None),
            // Not a mark of this copy of the crate.
            (1, first ^ 1 << 20, Some(1)),
        ] {
            assert_eq!(next_level_in_handler(own, mark), next, "{own}, {mark:#x}");
        }
    }

    #[test]
    fn head_of_a_handler_leads_to_the_previous_handler_of_its_level() {
        let signal = libc::SIGRTMAX() - 1;
        for (level, &handler) in HANDLERS.iter().enumerate() {
            let leads_to = |wanted: usize| {
                let is_wanted = |handler| handler == wanted;
                other_copy::passes_on_to(handler as usize, signal, &[SAMPLING], is_wanted)
            };
            let previous = 1000 + level;
            assert!(!leads_to(previous));
            let mut action = DEFAULT_ACTION;
            action.sa_sigaction = previous;
            PREVIOUS[signal as usize][level].store(intern_action(action), Ordering::Release);
            assert!(leads_to(previous) && !leads_to(previous + 1));
        }
    }

    #[test]
    fn level_over_an_action_is_found_again() {
        let levels = [const { AtomicPtr::new(std::ptr::null_mut()) }; LEVELS];
        let over = |handler: libc::sighandler_t| {
            let mut action = DEFAULT_ACTION;
            action.sa_sigaction = handler;
            let level = level_over(&action, &levels);
            levels[level].store(Box::leak(Box::new(action)), Ordering::Relaxed);
            level
        };
        assert_eq!([libc::SIG_DFL, libc::SIG_IGN].map(over), [0, 0]);
        assert_eq!([10, 10, 20, libc::SIG_DFL, 10].map(over), [1, 1, 2, 0, 1]);
        assert_eq!([30, 40, 40, 30].map(over), [3, 3, 3, 3]);
    }

    #[test]
    fn resolve_sampling_signal_rejects_reserved_signals() {
        assert_eq!(resolve_sampling_signal(None), Ok(libc::SIGURG));
        assert_eq!(
            resolve_sampling_signal(Some(libc::SIGUSR2)),
            Ok(libc::SIGUSR2)
        );
        for signal in [0, -1, 33, 65, libc::SIGKILL, libc::SIGSEGV, libc::SIGINT] {
            let error = resolve_sampling_signal(Some(signal))
                .unwrap_err()
                .to_string();
            assert!(
                error.contains("signal is") && error.contains("expected SIGPROF"),
                "{error}"
            );
        }
    }
}
