//! A thread that works.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, JoinHandle};

/// The name of the thread.
pub const BUSY: &str = "busy thread";

/// A thread that works in `busy_function` until it is dropped.
pub struct Busy(Arc<AtomicBool>, Option<JoinHandle<()>>);

#[inline(never)]
fn busy_function(is_over: &AtomicBool) {
    while !is_over.load(Ordering::Relaxed) {
        std::hint::black_box(is_over);
    }
}

impl Busy {
    /// Starts a thread that does not register.
    pub fn start() -> Self {
        Self::start_after(|| {})
    }

    pub fn start_registered() -> Self {
        Self::start_after(|| gekkota::register_thread(BUSY))
    }

    fn start_after(prepare: impl FnOnce() + Send + 'static) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let of_thread = Arc::clone(&is_over);
        let body = move || {
            prepare();
            busy_function(&of_thread);
        };
        let thread = Builder::new().name(BUSY.to_owned()).spawn(body);
        Self(is_over, Some(thread.expect("a thread")))
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
        let _ = self.1.take().map(JoinHandle::join);
    }
}
