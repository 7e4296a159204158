//! Blocks the signals that the profiler may use, for a second at a time.

use std::time::{Duration, Instant};

use crate::crew::{self, Context};
use crate::settings;
use crate::tally;
use crate::work::mix;

const SPAN: Duration = Duration::from_secs(1);

/// Blocks the signals that samplers send, until it is dropped.
struct Blocked(libc::sigset_t);

impl Blocked {
    fn begin() -> Self {
        // SAFETY: a zeroed set is valid, and both sets are locals.
        unsafe {
            let mut set: libc::sigset_t = std::mem::zeroed();
            let mut before: libc::sigset_t = std::mem::zeroed();
            for signal in settings::sampling_signals() {
                libc::sigaddset(&mut set, signal);
            }
            assert_eq!(libc::pthread_sigmask(libc::SIG_BLOCK, &set, &mut before), 0);
            Self(before)
        }
    }
}

impl Drop for Blocked {
    fn drop(&mut self) {
        // SAFETY: the set is the thread's previous mask.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.0, std::ptr::null_mut()) };
    }
}

/// Works, and sleeps from time to time.
fn work_for(context: &mut Context, time: Duration) {
    let end = Instant::now() + time;
    while Instant::now() < end && !crew::is_stopping() {
        let seed = context.random.next();
        assert_eq!(
            mix(seed, 50_000),
            mix(seed, 50_000),
            "one computation, two results"
        );
        if context.random.once_in(50) {
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

pub fn blocked_worker(context: &mut Context) {
    while context.goes_on() {
        let blocked = Blocked::begin();
        work_for(context, SPAN);
        drop(blocked);
        tally::BLOCKED_SPANS.one();
        context.goes_on();
        work_for(context, SPAN / 5);
    }
}
