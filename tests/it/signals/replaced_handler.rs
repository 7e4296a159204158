//! Foreign code replaces the signal's handler during a session. The profiler restores its handler,
//! except over a foreign handler, and counts the replacements in the profile.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::common::{LONGEST_WAIT, Read, isolated, wait_until, work, work_for_cpu};
use gekkota::{ProfilerSession, StartParams};

static FOREIGN_CALLS: AtomicU32 = AtomicU32::new(0);
static IS_REPLACEMENT_SEEN: AtomicBool = AtomicBool::new(false);

extern "C" fn foreign_handler(_: libc::c_int) {
    FOREIGN_CALLS.fetch_add(1, Ordering::Relaxed);
}

fn install_handler(handler: libc::sighandler_t) {
    // SAFETY: the action is a local, and the handler has the signature that its flags require.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler;
        assert_eq!(
            libc::sigaction(libc::SIGURG, &action, std::ptr::null_mut()),
            0
        );
    }
}

fn current_handler() -> libc::sighandler_t {
    // SAFETY: the out-pointer points to a local.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        assert_eq!(
            libc::sigaction(libc::SIGURG, std::ptr::null(), &mut action),
            0
        );
        action.sa_sigaction
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
        let profilers_handler = current_handler();
        for _ in 0..5 {
            install_handler(libc::SIG_IGN);
            wait_until("the handler is restored", || {
                current_handler() == profilers_handler
            });
        }
        // A foreign handler stays in place and gets its own signals. The profiler's handler is
        // restored after the foreign one is removed.
        let foreign = foreign_handler as extern "C" fn(_) as libc::sighandler_t;
        install_handler(foreign);
        let busy = std::thread::spawn(|| {
            gekkota::register_thread("busy beside a foreign handler");
            work_for_cpu(Duration::from_millis(50));
            while !IS_REPLACEMENT_SEEN.load(Ordering::Relaxed) {
                work(1000);
            }
        });
        wait_until("the sampler sees the foreign handler", || {
            Read::of_running().count("handler_replacements") == 6
        });
        IS_REPLACEMENT_SEEN.store(true, Ordering::Relaxed);
        busy.join().expect("thread");
        assert_eq!(current_handler(), foreign);
        // SAFETY: `raise` accesses no memory.
        assert_eq!(unsafe { libc::raise(libc::SIGURG) }, 0);
        assert!(
            FOREIGN_CALLS.load(Ordering::Relaxed) > 0,
            "the application's signal reaches its handler"
        );
        install_handler(libc::SIG_IGN);
        wait_until("the handler is restored", || {
            current_handler() == profilers_handler
        });
        std::thread::spawn(|| work_until_sampled("busy"))
            .join()
            .expect("thread");
        let read = Read::from_profile(&session.finish().expect("profile"));
        assert!(read.samples("busy").len() > 30);
        assert_eq!(read.count("handler_replacements"), 7);
        assert_eq!(read.logged_events(), ["signal handler replaced"; 7]);
    });
}
