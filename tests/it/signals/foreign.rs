//! The profiler is a guest: other programs' signals reach their handlers, and a late one kills nobody.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::common::{self, Read, isolated, wait_until, work_for, work_for_cpu};
use gekkota::{ProfilerSession, StartParams};

static SEEN_BY_THE_HOST: AtomicU32 = AtomicU32::new(0);

extern "C" fn host_handler(_: libc::c_int, _: *mut libc::siginfo_t, _: *mut libc::c_void) {
    SEEN_BY_THE_HOST.fetch_add(1, Ordering::Relaxed);
}

fn install_host_handler(signal: i32) {
    // SAFETY: the action is on this stack, and the handler has the shape that `SA_SIGINFO` asks for.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = host_handler as extern "C" fn(_, _, _) as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
        assert_eq!(libc::sigaction(signal, &action, std::ptr::null_mut()), 0);
    }
}

fn raise(signal: i32) {
    // SAFETY: touches no memory.
    unsafe { assert_eq!(libc::raise(signal), 0) };
}

/// Queues a signal with a value to this process, as a stranger would.
fn queue(signal: i32, value: usize) {
    let value = libc::sigval {
        sival_ptr: value as *mut libc::c_void,
    };
    // SAFETY: the value is only carried.
    unsafe { assert_eq!(libc::sigqueue(libc::getpid(), signal, value), 0) };
}

fn samples_with(params: StartParams) -> usize {
    let session = ProfilerSession::start(params).expect("start");
    std::thread::spawn(|| {
        gekkota::register_thread("busy");
        work_for_cpu(Duration::from_millis(100));
    })
    .join()
    .expect("thread");
    Read::from_profile(&session.finish().expect("profile"))
        .samples("busy")
        .len()
}

#[test]
fn foreign_signals_are_passed_on_and_late_ones_ignored() {
    isolated(|| {
        install_host_handler(libc::SIGPROF);
        assert!(samples_with(StartParams::default()) > 30);
        assert_eq!(
            SEEN_BY_THE_HOST.load(Ordering::Relaxed),
            0,
            "our own are ours"
        );

        let session = ProfilerSession::start(StartParams::default()).expect("start");
        raise(libc::SIGPROF);
        assert_eq!(SEEN_BY_THE_HOST.load(Ordering::Relaxed), 1, "while active");
        session.finish().expect("profile");
        raise(libc::SIGPROF);
        assert_eq!(SEEN_BY_THE_HOST.load(Ordering::Relaxed), 2, "after the end");
        for value in [0, 1, usize::MAX, 0x6e6b << 32] {
            let before = SEEN_BY_THE_HOST.load(Ordering::Relaxed);
            queue(libc::SIGPROF, value);
            wait_until("the queued signal arrived", || {
                SEEN_BY_THE_HOST.load(Ordering::Relaxed) > before
            });
        }

        // One that looks like ours, for any slot: nobody asked, so nothing happens.
        let before = SEEN_BY_THE_HOST.load(Ordering::Relaxed);
        for slot in [0usize, 1, 0xffff] {
            queue(libc::SIGPROF, 0x6e6b << 48 | slot << 32 | 5);
        }
        work_for(Duration::from_millis(20));
        assert_eq!(SEEN_BY_THE_HOST.load(Ordering::Relaxed), before);
    });
}

#[test]
fn another_signal_works_and_its_default_is_not_taken() {
    isolated(|| {
        assert!(samples_with(StartParams::default().signal(libc::SIGUSR2)) > 30);
        // The default action of SIGUSR2 is to end the process; the inert handler stays.
        raise(libc::SIGUSR2);
        assert!(samples_with(StartParams::default().signal(libc::SIGRTMIN() + 3)) > 30);
    });
}

static OURS: std::sync::OnceLock<libc::sigaction> = std::sync::OnceLock::new();
static SEEN_BY_THE_CHAIN: AtomicU32 = AtomicU32::new(0);

/// Passes every signal on to the handler that was there before it, as ours does.
extern "C" fn chaining_handler(
    signal: libc::c_int,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) {
    SEEN_BY_THE_CHAIN.fetch_add(1, Ordering::Relaxed);
    if let Some(before) = OURS.get() {
        type Action = extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void);
        // SAFETY: the profiler's handler was installed with `SA_SIGINFO`.
        let action: Action = unsafe { std::mem::transmute(before.sa_sigaction) };
        action(signal, info, context);
    }
}

#[test]
fn a_handler_over_ours_that_passes_on_to_us_is_no_circle() {
    isolated(|| {
        let signal = libc::SIGUSR1;
        assert!(samples_with(StartParams::default().signal(signal)) > 30);
        // SAFETY: the actions are on this stack, and the handler has the shape that `SA_SIGINFO` asks for.
        unsafe {
            let (mut ours, mut over): (libc::sigaction, libc::sigaction) = std::mem::zeroed();
            over.sa_sigaction = chaining_handler as extern "C" fn(_, _, _) as usize;
            over.sa_flags = libc::SA_SIGINFO;
            assert_eq!(libc::sigaction(signal, &over, &mut ours), 0);
            assert!(OURS.set(ours).is_ok());
        }
        assert!(samples_with(StartParams::default().signal(signal)) > 30);
        raise(signal);
        assert_eq!(SEEN_BY_THE_CHAIN.load(Ordering::Relaxed), 1);
    });
}

#[test]
fn errno_and_a_blocked_signal_survive() {
    isolated(|| {
        let session =
            ProfilerSession::start(StartParams::default().interval(Duration::from_micros(200)))
                .expect("start");
        let busy = std::thread::spawn(|| {
            gekkota::register_thread("busy");
            for round in 0..10_000 {
                // SAFETY: the thread's own `errno`.
                unsafe { *libc::__errno_location() = round };
                common::work(20_000);
                // SAFETY: the thread's own `errno`.
                assert_eq!(unsafe { *libc::__errno_location() }, round);
            }
        });
        let blocked = std::thread::spawn(|| {
            gekkota::register_thread("blocked");
            // SAFETY: the set is on this stack.
            unsafe {
                let mut set: libc::sigset_t = std::mem::zeroed();
                libc::sigaddset(&mut set, libc::SIGPROF);
                libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
            }
            work_for_cpu(Duration::from_millis(300));
        });
        busy.join().expect("errno is kept");
        blocked.join().expect("thread");
        let read = Read::from_profile(&session.finish().expect("profile"));
        assert!(
            read.samples("busy").len() > 100,
            "a thread that does not answer delays nobody"
        );
        assert!(
            read.count("unanswered_ticks") > 100,
            "{}",
            read.count("unanswered_ticks")
        );
        // The signal that is pending for the blocked thread went with it; the profiler ends and begins as ever.
        assert!(samples_with(StartParams::default()) > 30);
    });
}
