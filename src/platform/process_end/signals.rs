//! The signals that end the process: `SIGINT`, `SIGTERM` and `SIGHUP` of its user, and `SIGABRT` of
//! `abort`.
//!
//! The handlers are installed only where the signal has its default action. A signal that the
//! application handles or ignores stays as it is. If the application installs a handler later, that
//! one replaces the profiler's, and may call it as the previous one: then it does nothing, because
//! the application decides what the signal means.
//!
//! The signal's default action follows the save, so the process ends as it would have.
//!
//! Runs in the signal handler: the functions named `…_in_handler`.
//!
//! **Contract of the handlers** (cited below):
//! - *kernel's arguments*: the kernel calls the handler with a `siginfo_t` that lives as long as the
//!   call;
//! - *locals*: the system call reads and writes locals, for which zeroed is valid.

use std::sync::atomic::{AtomicU32, Ordering};

use nix::sys::signal::{SaFlags, SigAction, SigHandler};

use crate::platform::errno::KeptErrno;
use crate::platform::identity::signals_to_block;
use crate::platform::process_end::gate::{
    SignalAnswer, WaitEnd, hand_over_signal_in_handler, is_open_in_handler,
    is_saving_thread_in_handler, request_save_in_handler, wait_for_save_in_handler,
};
use crate::platform::signal::handler::{read_action, swap_action};
use crate::types::StartError;

/// The signals, each with whether a second one ends the process at once. A terminal that closes may
/// send several `SIGHUP` within seconds, which are one wish.
const SIGNALS: [(i32, bool); 4] = [
    (libc::SIGINT, true),
    (libc::SIGTERM, true),
    (libc::SIGHUP, false),
    (libc::SIGABRT, false),
];

/// Value of `si_code` for a signal of the kernel itself, such as one that a key of the terminal
/// causes.
const FROM_KERNEL: libc::c_int = 0x80;

/// Bits of the signals whose handler the profiler has installed.
static TAKEN: AtomicU32 = AtomicU32::new(0);

extern "C" fn end_signal_in_handler(
    signal: libc::c_int,
    info: *mut libc::siginfo_t,
    _context: *mut libc::c_void,
) {
    let _errno = KeptErrno::new();
    // SAFETY: *kernel's arguments*.
    let code = unsafe { (*info).si_code };
    let is_typed = code == FROM_KERNEL;
    // `kill` sends the signal to the process. The kernel gives it to any thread, which aborts nothing
    // itself, and may be the one that saves.
    let is_of_process = code == libc::SI_USER;
    if is_installed_in_handler(signal) {
        if signal == libc::SIGABRT && !is_of_process {
            save_before_abort_in_handler();
        } else {
            end_by_signal_in_handler(signal, is_typed);
        }
    }
}

fn end_by_signal_in_handler(signal: libc::c_int, is_typed: bool) {
    let may_insist = SIGNALS.contains(&(signal, true));
    // A child of `fork` has inherited the handler, but has nothing to save.
    if !is_open_in_handler()
        || hand_over_signal_in_handler(signal, may_insist, is_typed) == SignalAnswer::EndNow
    {
        die_by_in_handler(signal);
    }
}

/// Has the profile saved, and lets the thread abort. The thread waits, because it must not go on.
fn save_before_abort_in_handler() {
    if is_open_in_handler() && !is_saving_thread_in_handler() {
        request_save_in_handler();
        if let WaitEnd::Stuck(Some(signal)) = wait_for_save_in_handler(false) {
            die_by_in_handler(signal);
        }
    }
    die_by_in_handler(libc::SIGABRT);
}

/// Ends the process by the signal's default action. Returns only if the kernel spares the process:
/// the first one of a PID namespace.
pub(crate) fn die_by_in_handler(signal: libc::c_int) {
    // SAFETY: *locals*; async-signal-safe. A zeroed action is the default action.
    unsafe {
        let action: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signal, &raw const action, std::ptr::null_mut());
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, signal);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const set, std::ptr::null_mut());
        let thread = libc::syscall(libc::SYS_gettid);
        libc::syscall(libc::SYS_tgkill, libc::getpid(), thread, signal);
    }
}

/// Returns whether the signal's handler is the profiler's. If it is not, the application's handler
/// has called the profiler's.
fn is_installed_in_handler(signal: libc::c_int) -> bool {
    // SAFETY: *locals*; async-signal-safe, and a null pointer changes no action.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signal, std::ptr::null(), &raw mut action) == 0 && is_ours(&action)
    }
}

fn is_ours(action: &libc::sigaction) -> bool {
    action.sa_sigaction == end_signal_in_handler as extern "C" fn(_, _, _) as usize
}

const fn bit(signal: i32) -> u32 {
    1 << signal
}

/// Installs the handlers of the signals that have their default action.
///
/// # Errors
/// [`StartError::System`] if the operating system refuses.
pub(crate) fn take_end_signals() -> Result<(), StartError> {
    let handler = SigHandler::SigAction(end_signal_in_handler);
    // On the alternate stack, and with all other signals blocked, for the reasons in
    // `signal/control_pipe.rs`.
    let flags = SaFlags::SA_RESTART | SaFlags::SA_ONSTACK;
    let action: libc::sigaction = SigAction::new(handler, flags, signals_to_block()).into();
    for (signal, _) in SIGNALS {
        if read_action(signal)?.sa_sigaction != libc::SIG_DFL {
            continue;
        }
        // SAFETY: the handler has the signature that `SA_SIGINFO` requires, and keeps its contract.
        let replaced = unsafe { swap_action(signal, &action) }?;
        if replaced.sa_sigaction == libc::SIG_DFL || is_ours(&replaced) {
            TAKEN.fetch_or(bit(signal), Ordering::Relaxed);
        } else {
            // Another thread of the application has installed a handler since `read_action`.
            // SAFETY: the kernel held this action before.
            let _ = unsafe { swap_action(signal, &replaced) };
        }
    }
    Ok(())
}

/// Restores the default action where the profiler's handlers are still installed.
pub(crate) fn release_end_signals() {
    let taken = TAKEN.swap(0, Ordering::Relaxed);
    for (signal, _) in SIGNALS {
        if taken & bit(signal) != 0 && read_action(signal).is_ok_and(|action| is_ours(&action)) {
            // SAFETY: zeroed is a valid action: the default one, which runs no function.
            let _ = unsafe { swap_action(signal, &std::mem::zeroed()) };
        }
    }
}
