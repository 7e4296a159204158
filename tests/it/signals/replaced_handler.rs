//! Somebody else takes the signal while the profiler runs: what they leave behind is mended, a handler of theirs stays
//! theirs, and the profile says that it happened.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::common::{Read, isolated, wait_until, work_for_cpu};
use gekkota::{ProfilerSession, StartParams};

static SEEN: AtomicU32 = AtomicU32::new(0);

extern "C" fn strangers_handler(_: libc::c_int) {
    SEEN.fetch_add(1, Ordering::Relaxed);
}

fn take_signal(handler: libc::sighandler_t) {
    // SAFETY: the action is on this stack, and the handler has the shape that a plain action asks for.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler;
        assert_eq!(
            libc::sigaction(libc::SIGPROF, &action, std::ptr::null_mut()),
            0
        );
    }
}

fn current_handler() -> libc::sighandler_t {
    // SAFETY: the out-pointer is to a local.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        assert_eq!(
            libc::sigaction(libc::SIGPROF, std::ptr::null(), &mut action),
            0
        );
        action.sa_sigaction
    }
}

#[test]
fn a_replaced_handler_is_noticed_put_back_and_told() {
    isolated(|| {
        let session = ProfilerSession::start(StartParams::default()).expect("start");
        let ours = current_handler();
        let stranger = strangers_handler as extern "C" fn(_) as libc::sighandler_t;
        for _ in 0..5 {
            take_signal(libc::SIG_IGN);
            wait_until("the handler is back", || current_handler() == ours);
        }
        // Theirs is not ours to take away; it gets what is its own, and ours comes back when it goes.
        take_signal(stranger);
        let busy = std::thread::spawn(|| {
            gekkota::register_thread("busy beside a stranger");
            work_for_cpu(Duration::from_millis(50));
        });
        busy.join().expect("thread");
        assert_eq!(current_handler(), stranger);
        // SAFETY: touches no memory.
        assert_eq!(unsafe { libc::raise(libc::SIGPROF) }, 0);
        assert!(
            SEEN.load(Ordering::Relaxed) > 0,
            "a stranger's signal is the stranger's"
        );
        take_signal(libc::SIG_IGN);
        wait_until("the handler is back", || current_handler() == ours);
        std::thread::spawn(|| {
            gekkota::register_thread("busy");
            work_for_cpu(Duration::from_millis(100));
        })
        .join()
        .expect("thread");
        let read = Read::from_profile(&session.finish().expect("profile"));
        assert!(read.samples("busy").len() > 30);
        assert_eq!(read.count("handler_replacements"), 7);
    });
}
