//! The host's own timers that use the profiler's signal reach the host's handler after a session with timers.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::common::{Read, isolated, open_cpu_event, thread_cpu, work, work_for_cpu};
use gekkota::{ProfilerSession, SamplingEngine, StartParams};

const EVENTS: usize = 12;
static SEEN: AtomicU32 = AtomicU32::new(0);

extern "C" fn hosts_handler(_: libc::c_int) {
    SEEN.fetch_add(1, Ordering::Relaxed);
}

const SET_OWNER: libc::c_int = 15;
const SET_SIGNAL: libc::c_int = 10;
const ENABLE: libc::c_ulong = 0x2400;
const DISABLE: libc::c_ulong = 0x2401;

/// How often the handler ran while this event did.
fn run_event(event: i32) -> u32 {
    #[repr(C)]
    struct Owner {
        kind: libc::c_int,
        thread: libc::pid_t,
    }
    SEEN.store(0, Ordering::Relaxed);
    // SAFETY: the kernel reads the owner alone.
    unsafe {
        let own_thread = Owner {
            kind: 0,
            thread: libc::gettid(),
        };
        assert_eq!(libc::fcntl(event, SET_OWNER, &raw const own_thread), 0);
        assert_eq!(libc::fcntl(event, SET_SIGNAL, libc::SIGPROF), 0);
        assert_eq!(
            libc::fcntl(event, libc::F_SETFL, libc::O_ASYNC | libc::O_NONBLOCK),
            0
        );
        assert_eq!(libc::ioctl(event, ENABLE, 0), 0);
    }
    // Mostly outside of the kernel, where such an event does not count.
    let end = thread_cpu() + Duration::from_millis(40);
    while thread_cpu() < end {
        work(100_000);
    }
    // SAFETY: touches no memory.
    assert_eq!(unsafe { libc::ioctl(event, DISABLE, 0) }, 0);
    SEEN.load(Ordering::Relaxed)
}

/// What reached the handler of events of many numbers, all open at once.
fn run_events() -> Vec<(i32, u32)> {
    let events: Vec<_> = (0..EVENTS)
        .map(|_| open_cpu_event(1_000_000, true).expect("as before"))
        .collect();
    let seen = events
        .iter()
        .map(|&event| (event, run_event(event)))
        .collect();
    for event in events {
        // SAFETY: opened above.
        unsafe { libc::close(event) };
    }
    seen
}

#[test]
fn a_timer_of_the_hosts_reaches_its_handler_after_a_session_with_timers() {
    isolated(|| {
        match open_cpu_event(1_000_000, true) {
            // SAFETY: just opened.
            Ok(event) => assert_eq!(unsafe { libc::close(event) }, 0),
            Err(error) => {
                println!("!!! SKIPPED: perf_event_open is refused here: {error}");
                return;
            }
        }
        // SAFETY: the action is on this stack, and the handler has the shape that a plain action asks for.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = hosts_handler as extern "C" fn(_) as libc::sighandler_t;
            assert_eq!(
                libc::sigaction(libc::SIGPROF, &action, std::ptr::null_mut()),
                0
            );
        }
        gekkota::register_thread("host's");
        let before = run_events();
        let params = StartParams::default().engine(SamplingEngine::LocalTimers);
        let session = ProfilerSession::start(params).expect("start");
        work_for_cpu(Duration::from_millis(100));
        let read = Read::from_profile(&session.finish().expect("profile"));
        let after = run_events();
        println!(
            "{} timers refused; number and signals before: {before:?}; after: {after:?}",
            read.count("refused_timers")
        );
        assert_eq!(read.count("refused_timers"), 0, "the session had timers");
        for seen in [before, after] {
            assert!(
                seen.iter().all(|&(_, signals)| signals > 10),
                "forty are sent for each: {seen:?}"
            );
        }
    });
}
