//! A handler that the application installed before the profiler's own runs as the kernel would run
//! it: with the same signals blocked, on the same stack, and once if it asked for that.

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use crate::common::isolated;
use gekkota::{ProfilerSession, StartParams};

const SIGNAL: libc::c_int = libc::SIGPROF;
static CALLS: AtomicU32 = AtomicU32::new(0);
static STACK_ADDRESS: AtomicUsize = AtomicUsize::new(0);
/// The signals that were blocked in the handler: bit `n - 1` stands for signal `n`.
static BLOCKED: AtomicUsize = AtomicUsize::new(0);

extern "C" fn record(_: libc::c_int) {
    let local = 0u8;
    STACK_ADDRESS.store((&raw const local).addr(), Ordering::Relaxed);
    // SAFETY: the set is a local; both functions are async-signal-safe.
    let bits = unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), &mut set);
        let blocked = (1..32).filter(|&signal| libc::sigismember(&set, signal) == 1);
        blocked.fold(0, |bits, signal| bits | 1 << (signal - 1))
    };
    BLOCKED.store(bits, Ordering::Relaxed);
    CALLS.fetch_add(1, Ordering::Relaxed);
}

/// Installs `handler` before the profiler takes the signal over.
fn install_and_profile(handler: extern "C" fn(libc::c_int), flags: libc::c_int, blocked: &[i32]) {
    // SAFETY: the action is a local, and the handler has the signature that its flags require.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as libc::sighandler_t;
        action.sa_flags = flags;
        for &signal in blocked {
            libc::sigaddset(&mut action.sa_mask, signal);
        }
        assert_eq!(libc::sigaction(SIGNAL, &action, std::ptr::null_mut()), 0);
    }
    let params = StartParams::default().signal(SIGNAL);
    let session = ProfilerSession::start(params).expect("start");
    session.finish().expect("profile");
}

fn raise() {
    // SAFETY: accesses no memory.
    assert_eq!(unsafe { libc::raise(SIGNAL) }, 0);
}

fn bits(signals: &[i32]) -> usize {
    signals
        .iter()
        .fold(0, |bits, signal| bits | 1 << (signal - 1))
}

#[test]
fn previous_handler_runs_with_the_signals_blocked_that_it_asked_for() {
    isolated(|| {
        install_and_profile(record, 0, &[libc::SIGUSR1]);
        raise();
        let expected = bits(&[libc::SIGUSR1, SIGNAL]);
        assert_eq!(BLOCKED.load(Ordering::Relaxed), expected);

        install_and_profile(record, libc::SA_NODEFER, &[libc::SIGUSR2]);
        raise();
        let expected = bits(&[libc::SIGUSR2]);
        assert_eq!(BLOCKED.load(Ordering::Relaxed), expected);

        // The signals that the thread itself blocks stay blocked, during the call and after it.
        // SAFETY: the set is a local.
        unsafe {
            let mut set: libc::sigset_t = std::mem::zeroed();
            libc::sigaddset(&mut set, libc::SIGHUP);
            libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
        }
        raise();
        let expected = bits(&[libc::SIGUSR2, libc::SIGHUP]);
        assert_eq!(BLOCKED.load(Ordering::Relaxed), expected);
        record(0);
        assert_eq!(BLOCKED.load(Ordering::Relaxed), bits(&[libc::SIGHUP]));
    });
}

#[test]
fn previous_handler_runs_on_the_alternate_stack_only_if_it_asked_for_it() {
    isolated(|| {
        let stack = Box::leak(vec![0u8; 64 << 10].into_boxed_slice());
        let range = stack.as_ptr_range();
        let alternate = libc::stack_t {
            ss_sp: stack.as_mut_ptr().cast(),
            ss_flags: 0,
            ss_size: stack.len(),
        };
        // SAFETY: the stack is never freed, and nothing else uses it.
        let answer = unsafe { libc::sigaltstack(&alternate, std::ptr::null_mut()) };
        assert_eq!(answer, 0);
        let is_on_it = || {
            raise();
            let address = STACK_ADDRESS.load(Ordering::Relaxed);
            (range.start.addr()..range.end.addr()).contains(&address)
        };
        install_and_profile(record, libc::SA_ONSTACK, &[]);
        assert!(is_on_it());
        install_and_profile(record, 0, &[]);
        assert!(!is_on_it());
    });
}

#[test]
fn previous_handler_that_asked_for_one_call_gets_one() {
    isolated(|| {
        install_and_profile(record, libc::SA_RESETHAND, &[]);
        raise();
        raise();
        assert_eq!(CALLS.load(Ordering::Relaxed), 1);
    });
}

#[test]
fn previous_handler_may_recover_from_a_fault_in_it() {
    static RECOVERED: AtomicU32 = AtomicU32::new(0);
    /// Skips the faulting instruction.
    extern "C" fn recover(_: libc::c_int, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
        RECOVERED.fetch_add(1, Ordering::Relaxed);
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the context is that of this handler. `ud2` takes two bytes.
        unsafe {
            (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs[libc::REG_RIP as usize] += 2;
        }
    }
    extern "C" fn fault(_: libc::c_int) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: `recover` skips the instruction, which changes nothing.
        unsafe {
            std::arch::asm!("ud2");
        }
    }
    isolated(|| {
        // SAFETY: the action is a local, and the handler has the signature that its flags require.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = recover as extern "C" fn(_, _, _) as usize;
            action.sa_flags = libc::SA_SIGINFO;
            let before = std::ptr::null_mut();
            assert_eq!(libc::sigaction(libc::SIGILL, &action, before), 0);
        }
        install_and_profile(fault, 0, &[]);
        raise();
        assert_eq!(RECOVERED.load(Ordering::Relaxed), 1);
    });
}
