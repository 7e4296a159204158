//! Threads that call a function repeatedly until they are stopped.

use std::hint::black_box;
use std::io::Result;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Barrier};
use std::thread::JoinHandle;

use crate::busy::work;
use crate::raw::thread_id;

/// Running threads. Dropping this ends them.
pub(crate) struct Threads {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
    pub(crate) ids: Vec<i32>,
}

impl Threads {
    /// Starts threads that each call `first`, with their number, and returns when all have done so.
    /// Only then does each begin to call `body` with what `first` has returned, because working
    /// threads would delay the creation of the others.
    pub(crate) fn start<State: 'static>(
        count: usize,
        name: &str,
        first: impl Fn(u64) -> State + Clone + Send + 'static,
        body: fn(&mut State),
    ) -> Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let all_are_ready = Arc::new(Barrier::new(count + 1));
        let (id, ids) = channel();
        let mut threads = Vec::with_capacity(count);
        for number in 0..count as u64 {
            let (first, stop, id) = (first.clone(), Arc::clone(&stop), id.clone());
            let all_are_ready = Arc::clone(&all_are_ready);
            let builder = std::thread::Builder::new().name(format!("{name} {number}"));
            threads.push(builder.spawn(move || {
                let mut state = first(number);
                // The receiver lives until it has received this.
                let _ = id.send(thread_id());
                all_are_ready.wait();
                while !stop.load(Ordering::Relaxed) {
                    body(&mut state);
                }
            })?);
        }
        all_are_ready.wait();
        let ids = ids.iter().take(count).collect();
        Ok(Self { stop, threads, ids })
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // A panic has been printed.
            let _ = thread.join();
        }
    }
}

/// The begin of the names of busy threads.
pub(crate) const BUSY_NAME: &str = "busy";

/// Starts threads that each call `first`, and then are busy.
pub(crate) fn start_busy(
    count: usize,
    first: impl Fn() + Clone + Send + 'static,
) -> Result<Threads> {
    let prepare = move |_| {
        first();
        (1, Box::new([0; 512]))
    };
    Threads::start(count, BUSY_NAME, prepare, |(hash, numbers)| {
        *hash = black_box(work(*hash, numbers));
    })
}
