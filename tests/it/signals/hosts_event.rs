//! Timers of the application that use the profiler's signal reach the application's handler after a
//! session with events.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::common::{LONGEST_WAIT, Read, isolated, open_cpu_event, wait_until, work, work_for_cpu};
use gekkota::{ProfilerSession, StartParams};

const EVENTS: usize = 12;
/// Signals that an event of the application has to send.
const SIGNALS: u32 = 11;
static CALLS: AtomicU32 = AtomicU32::new(0);

extern "C" fn application_handler(_: libc::c_int) {
    CALLS.fetch_add(1, Ordering::Relaxed);
}

const SET_OWNER: libc::c_int = 15;
const SET_SIGNAL: libc::c_int = 10;
const ENABLE: libc::c_ulong = 0x2400;
const DISABLE: libc::c_ulong = 0x2401;

/// Runs the event until the handler has been called [`SIGNALS`] times.
fn run_event(event: i32) {
    #[repr(C)]
    struct Owner {
        kind: libc::c_int,
        thread: libc::pid_t,
    }
    CALLS.store(0, Ordering::Relaxed);
    // SAFETY: the kernel only reads the owner.
    unsafe {
        let own_thread = Owner {
            kind: 0,
            thread: libc::gettid(),
        };
        assert_eq!(libc::fcntl(event, SET_OWNER, &raw const own_thread), 0);
        assert_eq!(libc::fcntl(event, SET_SIGNAL, libc::SIGURG), 0);
        assert_eq!(
            libc::fcntl(event, libc::F_SETFL, libc::O_ASYNC | libc::O_NONBLOCK),
            0
        );
        assert_eq!(libc::ioctl(event, ENABLE, 0), 0);
    }
    let end = Instant::now() + LONGEST_WAIT;
    loop {
        // The event does not count time in the kernel.
        work(100_000);
        let calls = CALLS.load(Ordering::Relaxed);
        if calls >= SIGNALS {
            break;
        }
        assert!(Instant::now() < end, "event {event}: {calls} signals");
    }
    // SAFETY: `ioctl` accesses no memory for this request.
    assert_eq!(unsafe { libc::ioctl(event, DISABLE, 0) }, 0);
}

/// Runs events with many different descriptors, which are all open at once.
fn run_events() {
    let events: Vec<_> = (0..EVENTS)
        .map(|_| open_cpu_event(1_000_000, true).expect("an event"))
        .collect();
    events.iter().for_each(|&event| run_event(event));
    for event in events {
        // SAFETY: the event was opened above.
        unsafe { libc::close(event) };
    }
}

#[test]
fn application_timer_reaches_its_handler_after_session_with_events() {
    isolated(|| {
        match open_cpu_event(1_000_000, true) {
            // SAFETY: the event was just opened.
            Ok(event) => assert_eq!(unsafe { libc::close(event) }, 0),
            Err(error) => {
                println!("!!! SKIPPED: perf_event_open is refused here: {error}");
                return;
            }
        }
        // SAFETY: the action is a local, and the handler has the signature that its flags require.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = application_handler as extern "C" fn(_) as libc::sighandler_t;
            assert_eq!(
                libc::sigaction(libc::SIGURG, &action, std::ptr::null_mut()),
                0
            );
        }
        gekkota::register_thread("application");
        run_events();
        let params = StartParams::default().signal(libc::SIGURG);
        let session = ProfilerSession::start(params).expect("start");
        wait_until("the thread is sampled", || {
            work_for_cpu(Duration::from_millis(50));
            let read = Read::of_running();
            !read.samples("application").is_empty() && read.count("captured_samples") > 0
        });
        let read = Read::from_profile(&session.finish().expect("profile"));
        assert_eq!(read.count("refused_events"), 0, "the session had events");
        run_events();
    });
}
