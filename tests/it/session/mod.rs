//! Starting, stopping and pausing sessions, and their callbacks.

mod across_sessions;
mod after_sampling;
mod any_order;
mod ensure_started;
mod feature_combinations;
mod pause;
mod sampler_overheads;
mod start_edges;
mod start_errors;
mod start_stop;
mod state_callbacks;
mod turns;
pub(crate) mod within_loader_callback;

use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::common::{Read, samples_of, thread_cpu, wait_until};

/// Longest sampling interval that a session accepts.
const LONGEST_INTERVAL: Duration = Duration::from_secs(10);

/// Repeats `attempt` until it takes less than [`LONGEST_INTERVAL`], and returns its result. A
/// session that the attempt started with this interval has had at most one tick.
#[track_caller]
fn before_second_tick<T>(mut attempt: impl FnMut() -> T) -> T {
    const ATTEMPTS: u32 = 12;
    for _ in 0..ATTEMPTS {
        let begin = Instant::now();
        let result = attempt();
        if begin.elapsed() < LONGEST_INTERVAL {
            return result;
        }
    }
    panic!("each of {ATTEMPTS} attempts took {LONGEST_INTERVAL:?} or longer");
}

/// Reads the running session until `condition` is true, and returns the last profile read.
#[track_caller]
fn read_until(what: &str, mut condition: impl FnMut(&Read) -> bool) -> Read {
    let mut last = None;
    wait_until(what, || {
        let read = Read::of_running();
        let is_met = condition(&read);
        last = Some(read);
        is_met
    });
    last.expect("it was read at least once")
}

/// Returns the number of samples of a thread; 0 if the session does not know the thread yet.
fn sample_count(read: &Read, name: &str) -> usize {
    let mut threads = read.threads().iter();
    threads
        .find(|thread| thread["name"] == name)
        .map_or(0, |thread| samples_of(thread).len())
}

/// A registered thread that sleeps until the test ends it, and measures its own CPU time.
struct IdleThread {
    sleeping: Sender<()>,
    thread: JoinHandle<Duration>,
}

impl IdleThread {
    /// Starts the thread, and returns after it has registered.
    fn start(name: &'static str) -> Self {
        let (sleeping, end) = channel::<()>();
        let (ready, is_ready) = channel();
        let thread = std::thread::spawn(move || {
            gekkota::register_thread(name);
            let before = thread_cpu();
            ready.send(()).expect("the test waits for it");
            // Returns when the sender is dropped.
            assert!(end.recv().is_err());
            gekkota::unregister_thread();
            thread_cpu() - before
        });
        is_ready.recv().expect("the thread registers");
        Self { sleeping, thread }
    }

    /// Ends the thread, and returns the CPU time that it has used since it registered.
    fn end(self) -> Duration {
        drop(self.sleeping);
        self.thread.join().expect("the thread only sleeps")
    }
}
