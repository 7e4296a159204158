//! Keeps the sampling signal out of the application's handlers of faults.
//!
//! A handler of faults runs on a stack that may be small: the standard library reports a stack
//! overflow on 8 KiB. If a sample interrupts that handler, the kernel puts a frame of up to 12 KiB
//! on the same stack. Where it does not fit, the kernel kills the process by `SIGSEGV`: the report
//! is lost, and with it the profile that the program would have saved when it aborts. So the kernel
//! holds the sampling signal back while such a handler runs.
//!
//! A handler that jumps out of itself restores the mask, because the kernel blocks the fault's own
//! signal, too. A handler with `SA_NODEFER`, as some WebAssembly runtimes install it, need not do
//! that, and keeps its mask. A handler may also unblock only its own signal before it jumps, as
//! Ruby's does on a stack overflow. This case is not covered: the thread is not sampled afterwards.
//!
//! The kernel also holds the sampling signal back while the application handles a signal that the
//! profiler would sample with if that signal had no handler. If both signals are pending, the
//! kernel puts both frames on the stack at once.

use crate::platform::signal::handler::{
    DEFAULT_SIGNALS, HandlerCheck, ensure_handler, free_signal, is_handler, is_same_action,
    read_action, swap_action,
};

/// The signals of faults.
const FAULTS: [i32; 4] = [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE];

/// Maximum number of calls while another thread changes the handler.
const ATTEMPTS: usize = 4;

/// Adds the sampling signal to the signals that the kernel blocks while a handler of faults, or of
/// another of [`DEFAULT_SIGNALS`], runs on an alternate stack. Changes nothing else of the handler, and
/// leaves out what the system refuses. A handler that is installed later is interrupted. Cost: a system
/// call for each of the seven signals, and another one for each handler.
pub(crate) fn keep_out_of_fault_handlers(signal: i32) {
    for other in FAULTS.into_iter().chain(DEFAULT_SIGNALS) {
        if other != signal {
            keep_out_of_handler(other, signal);
        }
    }
}

/// Keeps `signal` out of the handler of the signal `other`.
fn keep_out_of_handler(other: i32, signal: i32) {
    let Ok(mut expected) = read_action(other) else {
        return;
    };
    let Some(mut next) = with_blocked(expected, signal) else {
        return;
    };
    for _ in 0..ATTEMPTS {
        // SAFETY: another thread or the system has installed this handler.
        let Ok(replaced) = (unsafe { swap_action(other, &next) }) else {
            return;
        };
        if is_same_action(&replaced, &expected) {
            return;
        }
        // Another thread has just installed this action: it comes back.
        expected = next;
        next = with_blocked(replaced, signal).unwrap_or(replaced);
    }
}

/// Returns the action with the signal among the blocked ones, if its handler runs on an alternate
/// stack, blocks its own signal, and does not block this one.
fn with_blocked(mut action: libc::sigaction, signal: i32) -> Option<libc::sigaction> {
    let flags = action.sa_flags & (libc::SA_ONSTACK | libc::SA_NODEFER);
    let is_on_stack = flags == libc::SA_ONSTACK;
    // SAFETY: the set is that of an action that the kernel has returned.
    let is_blocked = unsafe { libc::sigismember(&action.sa_mask, signal) } == 1;
    if !is_handler(&action) || !is_on_stack || is_blocked {
        return None;
    }
    // SAFETY: as above.
    unsafe { libc::sigaddset(&mut action.sa_mask, signal) };
    Some(action)
}

/// Installs the profiler's handler for one of the default signals that has no foreign handler, and
/// returns that signal. `taken` is the sampling signal, which the application handles now. `None` if no
/// signal is free. An installation for another signal has set what the handler does. Cost: some system
/// calls.
pub(crate) fn take_free_signal(taken: i32) -> Option<i32> {
    let signal = free_signal()?;
    let is_installed = matches!(
        ensure_handler(signal),
        HandlerCheck::InPlace | HandlerCheck::Reinstalled
    );
    is_installed.then(|| {
        keep_out_of_fault_handlers(signal);
        keep_out_of_handler(taken, signal);
        signal
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_handlers_on_an_alternate_stack_get_the_signal_blocked() {
        // SAFETY: zeroed is a valid action: the default one.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        let is_changed = |action| with_blocked(action, libc::SIGPROF).is_some();
        action.sa_flags = libc::SA_ONSTACK;
        assert!(!is_changed(action), "no handler");
        action.sa_sigaction = 1000;
        assert!(is_changed(action));
        action.sa_flags = 0;
        assert!(!is_changed(action), "on the thread's own stack");
        action.sa_flags = libc::SA_ONSTACK | libc::SA_NODEFER;
        assert!(!is_changed(action), "it may leave without its mask");
        action.sa_flags = libc::SA_ONSTACK | libc::SA_SIGINFO;
        let blocking = with_blocked(action, libc::SIGPROF).expect("another action");
        assert!(!is_changed(blocking), "blocked already");
        assert_eq!(
            (blocking.sa_sigaction, blocking.sa_flags),
            (action.sa_sigaction, action.sa_flags)
        );
        let other = with_blocked(blocking, libc::SIGURG).expect("another action");
        // SAFETY: the set is initialized.
        let is_blocked = |signal| unsafe { libc::sigismember(&other.sa_mask, signal) } == 1;
        assert!(is_blocked(libc::SIGPROF) && is_blocked(libc::SIGURG));
        assert!(!is_blocked(libc::SIGTERM));
    }

    #[test]
    fn handlers_of_the_standard_library_get_the_signal_blocked() {
        let before = read_action(libc::SIGSEGV).expect("an action");
        keep_out_of_fault_handlers(libc::SIGPROF);
        let after = read_action(libc::SIGSEGV).expect("an action");
        assert_eq!(before.sa_sigaction, after.sa_sigaction);
        // SAFETY: the kernel has returned the set.
        let is_blocked = unsafe { libc::sigismember(&after.sa_mask, libc::SIGPROF) } == 1;
        assert!(is_blocked);
    }
}
