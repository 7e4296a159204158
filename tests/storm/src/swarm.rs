//! Starts short threads, each with a name of its own and a marker.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use gekkota::{MarkerOptions, ThreadGuard, gecko_profiler_category};

use crate::crew::{Context, MARKER};
use crate::peer;
use crate::tally;
use crate::work::mix;

/// Prefix of the threads' names.
pub const CHILD: &str = "mayfly";
const AT_ONCE: u64 = 8;
/// Pause between two groups of threads. Without it, threads that start and end would hold the locks
/// of the kernel, the C library and the profiler most of the time, and there would be few samples.
/// The program [`crowd`](crate::programs::crowd) starts threads without a pause.
const PAUSE: Duration = Duration::from_millis(20);
const STACK_BYTES: usize = 64 << 10;
const ROUNDS: u64 = 500;

static NUMBER: AtomicU64 = AtomicU64::new(0);

/// Registers the calling thread, adds its marker and works for a moment. Every other thread leaves
/// it to the profiler to find that it has ended.
#[inline(never)]
fn mayfly_body(name: &str, number: u64) -> u64 {
    let _registered = if number.is_multiple_of(2) {
        Some(ThreadGuard::register(name))
    } else {
        gekkota::register_thread(name);
        None
    };
    let category = gecko_profiler_category!(Other);
    gekkota::add_text_marker(MARKER, category, MarkerOptions::default(), name);
    mix(number, ROUNDS)
}

/// Starts a thread.
fn start(prefix: &str, number: u64) -> JoinHandle<u64> {
    let name = format!("{prefix}-{number}");
    let builder = std::thread::Builder::new().name(name.clone());
    let thread = builder
        .stack_size(STACK_BYTES)
        .spawn(move || mayfly_body(&name, number));
    thread.unwrap_or_else(|error| panic!("cannot start a thread: {error}"))
}

/// Starts the threads with these numbers, and joins them.
pub fn start_and_join(prefix: &str, numbers: Range<u64>) {
    let threads: Vec<_> = numbers
        .map(|number| (number, start(prefix, number)))
        .collect();
    for (number, thread) in threads {
        let value = thread.join().expect("the thread does not panic");
        assert_eq!(
            value,
            mix(number, ROUNDS),
            "a thread returned a wrong result"
        );
    }
}

pub fn swarm_worker(context: &mut Context) {
    while context.goes_on() {
        let first = NUMBER.fetch_add(AT_ONCE, Ordering::Relaxed);
        // A thread begins and ends in `catch_unwind`.
        peer::while_absent(|| start_and_join(CHILD, first..first + AT_ONCE));
        tally::THREADS_SHORT.add(AT_ONCE);
        std::thread::sleep(PAUSE);
    }
}
