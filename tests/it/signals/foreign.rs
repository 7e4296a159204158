//! Signals of the application reach its handlers, and late signals of the profiler have no effect.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::common::{self, LONGEST_WAIT, Read, isolated, wait_until, work_for_cpu};
use gekkota::{ProfilerSession, StartParams};

static CALLS: AtomicU32 = AtomicU32::new(0);

extern "C" fn application_handler(_: libc::c_int, _: *mut libc::siginfo_t, _: *mut libc::c_void) {
    CALLS.fetch_add(1, Ordering::Relaxed);
}

fn install_application_handler(signal: i32) {
    // SAFETY: the action is a local, and the handler has the signature that `SA_SIGINFO` requires.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = application_handler as extern "C" fn(_, _, _) as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
        assert_eq!(libc::sigaction(signal, &action, std::ptr::null_mut()), 0);
    }
}

fn raise(signal: i32) {
    // SAFETY: `raise` accesses no memory.
    unsafe { assert_eq!(libc::raise(signal), 0) };
}

/// Queues a signal with a value to this process, as another process could.
fn queue(signal: i32, value: usize) {
    let value = libc::sigval {
        sival_ptr: value as *mut libc::c_void,
    };
    // SAFETY: `sigqueue` does not dereference the value.
    unsafe { assert_eq!(libc::sigqueue(libc::getpid(), signal, value), 0) };
}

/// Queues a signal with a value to the calling thread, which handles it before the call returns.
fn queue_for_current_thread(signal: i32, value: usize) {
    let value = libc::sigval {
        sival_ptr: value as *mut libc::c_void,
    };
    // SAFETY: `pthread_sigqueue` does not dereference the value.
    unsafe {
        assert_eq!(
            libc::pthread_sigqueue(libc::pthread_self(), signal, value),
            0
        );
    }
}

/// Raises the signal on a thread that is not sampled. On a sampled thread, the signal would be lost
/// while the sampler's own is pending.
fn raise_on_unsampled_thread(signal: i32) {
    std::thread::spawn(move || raise(signal))
        .join()
        .expect("thread");
}

/// Profiles a busy thread until the signal handler has captured more than 30 samples.
fn sample_busy_thread(params: StartParams) {
    let session = ProfilerSession::start(params).expect("start");
    std::thread::spawn(|| {
        gekkota::register_thread("busy");
        let end = Instant::now() + LONGEST_WAIT;
        // The loop does not sleep: sleeping threads are sampled without the signal.
        loop {
            work_for_cpu(Duration::from_millis(10));
            let read = Read::of_running();
            let (samples, captured) = (read.samples("busy").len(), read.count("captured_samples"));
            if samples > 30 && captured > 30 {
                return;
            }
            assert!(
                Instant::now() < end,
                "{samples} samples, {captured} captured"
            );
        }
    })
    .join()
    .expect("thread");
    session.finish().expect("profile");
}

#[test]
fn foreign_signals_are_passed_on_and_late_requests_ignored() {
    isolated(|| {
        let calls = || CALLS.load(Ordering::Relaxed);
        install_application_handler(libc::SIGPROF);
        let params = || StartParams::default().signal(libc::SIGPROF);
        sample_busy_thread(params());
        assert_eq!(calls(), 0, "requests of the profiler are not passed on");

        let session = ProfilerSession::start(params()).expect("start");
        raise_on_unsampled_thread(libc::SIGPROF);
        assert_eq!(calls(), 1, "during a session");
        session.finish().expect("profile");
        raise(libc::SIGPROF);
        assert_eq!(calls(), 2, "after a session");
        for value in [0, 1, usize::MAX, 0x6e6b << 32] {
            let before = calls();
            queue(libc::SIGPROF, value);
            wait_until("the queued signal arrives", || calls() > before);
        }

        // Of the values with each possible cookie, only the one with that of the profiler looks
        // like a request. No request is pending, so the signal has no effect.
        for slot in [0, 1, 0xffff] {
            let before = calls();
            for cookie in 0..=0xffff {
                queue_for_current_thread(libc::SIGPROF, cookie << 48 | slot << 32 | 5);
            }
            assert_eq!(calls(), before + 0xffff, "one signal is not passed on");
        }
    });
}

#[test]
fn sampling_signal_can_be_changed_and_stays_harmless_after_session() {
    isolated(|| {
        sample_busy_thread(StartParams::default().signal(libc::SIGUSR2));
        // The default action of SIGUSR2 ends the process, so an inert handler stays.
        raise(libc::SIGUSR2);
        sample_busy_thread(StartParams::default().signal(libc::SIGRTMIN() + 3));
    });
}

static PROFILER_ACTION: std::sync::OnceLock<libc::sigaction> = std::sync::OnceLock::new();
static CHAIN_CALLS: AtomicU32 = AtomicU32::new(0);

/// Passes every signal on to the handler that was installed before, as the profiler's handler does.
extern "C" fn chaining_handler(
    signal: libc::c_int,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) {
    CHAIN_CALLS.fetch_add(1, Ordering::Relaxed);
    if let Some(before) = PROFILER_ACTION.get() {
        type Action = extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void);
        // SAFETY: the profiler's handler was installed with `SA_SIGINFO`.
        let action: Action = unsafe { std::mem::transmute(before.sa_sigaction) };
        action(signal, info, context);
    }
}

#[test]
fn handler_that_calls_the_profilers_handler_causes_no_recursion() {
    isolated(|| {
        let signal = libc::SIGUSR1;
        sample_busy_thread(StartParams::default().signal(signal));
        // SAFETY: the actions are locals, and the handler has the signature that `SA_SIGINFO`
        // requires.
        unsafe {
            let (mut before, mut chained): (libc::sigaction, libc::sigaction) = std::mem::zeroed();
            chained.sa_sigaction = chaining_handler as extern "C" fn(_, _, _) as usize;
            chained.sa_flags = libc::SA_SIGINFO;
            assert_eq!(libc::sigaction(signal, &chained, &mut before), 0);
            assert!(PROFILER_ACTION.set(before).is_ok());
        }
        sample_busy_thread(StartParams::default().signal(signal));
        raise(signal);
        assert_eq!(CHAIN_CALLS.load(Ordering::Relaxed), 1);
    });
}

static HAS_ENOUGH_SAMPLES: AtomicBool = AtomicBool::new(false);

#[test]
fn errno_is_kept_and_blocked_signal_delays_no_other_thread() {
    isolated(|| {
        let session =
            ProfilerSession::start(StartParams::default().interval(Duration::from_micros(200)))
                .expect("start");
        let goes_on = || !HAS_ENOUGH_SAMPLES.load(Ordering::Relaxed);
        let (registered, is_registered) = std::sync::mpsc::channel();
        let busy = std::thread::spawn(move || {
            gekkota::register_thread("busy");
            registered.send(()).expect("the receiver exists");
            let mut round = 0;
            while round < 10_000 || goes_on() {
                // SAFETY: accesses only the calling thread's `errno`.
                unsafe { *libc::__errno_location() = round };
                common::work(20_000);
                // SAFETY: accesses only the calling thread's `errno`.
                assert_eq!(unsafe { *libc::__errno_location() }, round);
                round += 1;
            }
        });
        let blocked = std::thread::spawn(move || {
            gekkota::register_thread("blocked");
            // SAFETY: the set is a local.
            unsafe {
                let mut set: libc::sigset_t = std::mem::zeroed();
                libc::sigaddset(&mut set, libc::SIGURG);
                libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
            }
            while goes_on() {
                common::work(1000);
            }
        });
        is_registered.recv().expect("the thread registers");
        wait_until("there are enough samples", || {
            let read = Read::of_running();
            read.samples("busy").len() > 100 && read.count("unanswered_ticks") > 100
        });
        HAS_ENOUGH_SAMPLES.store(true, Ordering::Relaxed);
        busy.join().expect("errno is kept");
        blocked.join().expect("thread");
        let read = Read::from_profile(&session.finish().expect("profile"));
        assert!(
            read.samples("busy").len() > 100,
            "a thread that does not answer delays no other thread"
        );
        assert!(
            read.count("unanswered_ticks") > 100,
            "{}",
            read.count("unanswered_ticks")
        );
        // The signal that was pending for the blocked thread is gone, and a new session works.
        sample_busy_thread(StartParams::default());
    });
}
