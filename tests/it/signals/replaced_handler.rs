//! Foreign code replaces the signal's handler during a session. The profiler restores its handler,
//! except over a foreign handler: then the profiler continues with another signal. The profile
//! counts the replacements.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::time::{Duration, Instant};

use crate::common::{LONGEST_WAIT, Read, isolated, wait_until, work_for_cpu};
use gekkota::{ProfilerSession, StartParams};

static FOREIGN_CALLS: AtomicU32 = AtomicU32::new(0);

/// Runs for several ticks, on the thread's alternate stack, which may be too small for a sample on top.
/// Counts the host's own signals: one of the profiler may have been on its way.
extern "C" fn foreign_handler(_: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the kernel calls a handler with `SA_SIGINFO` with this argument.
    if unsafe { (*info).si_code } == libc::SI_TKILL {
        FOREIGN_CALLS.fetch_add(1, Ordering::Relaxed);
    }
    work_for_cpu(Duration::from_millis(20));
}

/// Raises the signal for as long as the sender exists. Returns how many.
fn raise_until(signal: libc::c_int, ends: &Receiver<()>) -> u32 {
    let mut raised = 0;
    while ends.try_recv() == Err(TryRecvError::Empty) {
        // SAFETY: accesses no memory.
        assert_eq!(unsafe { libc::raise(signal) }, 0);
        raised += 1;
        work_for_cpu(Duration::from_millis(1));
    }
    raised
}

fn install_handler(signal: libc::c_int, handler: libc::sighandler_t) {
    // SAFETY: the action is a local, and the handler has the signature that its flags require.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler;
        action.sa_flags = libc::SA_ONSTACK | libc::SA_SIGINFO;
        assert_eq!(libc::sigaction(signal, &action, std::ptr::null_mut()), 0);
    }
}

fn current_action(signal: libc::c_int) -> libc::sigaction {
    // SAFETY: the out-pointer points to a local.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        assert_eq!(libc::sigaction(signal, std::ptr::null(), &mut action), 0);
        action
    }
}

fn current_handler(signal: libc::c_int) -> libc::sighandler_t {
    current_action(signal).sa_sigaction
}

/// Returns whether the kernel holds the other signal back while the signal's handler runs.
fn is_held_back(other: libc::c_int, signal: libc::c_int) -> bool {
    // SAFETY: the kernel has returned the set.
    unsafe { libc::sigismember(&current_action(signal).sa_mask, other) == 1 }
}

fn is_pending(signal: libc::c_int) -> bool {
    // SAFETY: the kernel writes the set, which is a local.
    unsafe {
        let mut pending: libc::sigset_t = std::mem::zeroed();
        assert_eq!(libc::sigpending(&mut pending), 0);
        libc::sigismember(&pending, signal) == 1
    }
}

fn block(signal: libc::c_int) {
    // SAFETY: the set is a local, and was initialized.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigaddset(&mut set, signal);
        let null = std::ptr::null_mut();
        assert_eq!(libc::pthread_sigmask(libc::SIG_BLOCK, &set, null), 0);
    }
}

/// Works until the session has more than 30 samples of the thread that its handler captured. Does
/// not sleep, because sleeping threads are sampled without the handler.
fn work_until_sampled(name: &'static str) {
    let captured_before = Read::of_running().count("captured_samples");
    gekkota::register_thread(name);
    let end = Instant::now() + LONGEST_WAIT;
    loop {
        work_for_cpu(Duration::from_millis(10));
        let read = Read::of_running();
        let captured = read.count("captured_samples") - captured_before;
        let samples = read.samples(name).len();
        if samples > 30 && captured > 30 {
            return;
        }
        assert!(
            Instant::now() < end,
            "{samples} samples, {captured} captured"
        );
    }
}

#[test]
fn replaced_handler_is_restored_and_counted() {
    isolated(|| {
        let session = ProfilerSession::start(StartParams::default()).expect("start");
        let profilers_handler = current_handler(libc::SIGURG);
        for _ in 0..5 {
            install_handler(libc::SIGURG, libc::SIG_IGN);
            wait_until("the handler is restored", || {
                current_handler(libc::SIGURG) == profilers_handler
            });
        }
        std::thread::spawn(|| work_until_sampled("busy"))
            .join()
            .expect("thread");
        let read = Read::from_profile(&session.finish().expect("profile"));
        assert!(read.samples("busy").len() > 30);
        assert_eq!(read.count("handler_replacements"), 5);
        assert_eq!(read.logged_events(), ["signal handler replaced"; 5]);
    });
}

#[test]
fn session_goes_on_with_a_free_signal_if_the_host_takes_its_signal_over() {
    isolated(|| {
        let params = StartParams::default();
        let session = ProfilerSession::start(params.clone()).expect("start");
        // Each has answered the first signal when the host takes it over, and one blocks the second.
        let (end, ends) = channel::<()>();
        let blocking = std::thread::spawn(move || {
            block(libc::SIGPROF);
            work_until_sampled("blocks");
            while ends.try_recv() == Err(TryRecvError::Empty) {
                work_for_cpu(Duration::from_millis(1));
            }
            is_pending(libc::SIGPROF)
        });
        std::thread::spawn(|| work_until_sampled("before"))
            .join()
            .expect("thread");
        let foreign = foreign_handler as extern "C" fn(_, _, _) as libc::sighandler_t;
        let signal_now = || {
            let read = Read::of_running();
            let name = read.0["meta"]["samplingSignal"].as_str();
            name.expect("a name").to_owned()
        };
        for (taken, next, number) in [
            (libc::SIGURG, "SIGPROF", libc::SIGPROF),
            (libc::SIGPROF, "SIGSTKFLT", libc::SIGSTKFLT),
        ] {
            install_handler(taken, foreign);
            wait_until("the session goes on", || signal_now() == next);
            let (end, ends) = channel::<()>();
            let calls_before = FOREIGN_CALLS.load(Ordering::Relaxed);
            let raising = std::thread::spawn(move || {
                gekkota::register_thread("raises");
                raise_until(taken, &ends)
            });
            std::thread::spawn(move || work_until_sampled(next))
                .join()
                .expect("thread");
            drop(end);
            let raised = raising.join().expect("thread");
            let calls = FOREIGN_CALLS.load(Ordering::Relaxed) - calls_before;
            assert_eq!(calls, raised, "calls of the host's handler");
            assert_eq!(current_handler(taken), foreign);
            assert!(is_held_back(number, taken), "both need a signal stack");
        }
        drop(end);
        assert!(!blocking.join().expect("thread"), "SIGPROF is pending");
        // Keeps the session: the profile has its counts.
        gekkota::profiler_ensure_started(params).expect("a session");
        let profile = session.finish().expect("profile");
        let report = profile.summary().to_string();
        assert!(
            report.contains("another handler of SIGURG replaced the profiler's"),
            "{report}"
        );
        let read = Read::from_profile(&profile);
        assert_eq!(read.count("handler_replacements"), 2);
        assert_eq!(
            read.logged_events(),
            ["SIGPROF", "SIGSTKFLT"]
                .map(|name| format!("signal handler replaced, sampling goes on with {name}"))
        );
    });
}
