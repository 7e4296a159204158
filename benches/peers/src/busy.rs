//! A thread that is busy with real work: sorting and hashing, some functions deep.
//!
//! It allocates nothing while it works. A peer that unwinds in its signal handler may wait there for a lock that the
//! interrupted allocator holds, and never come back.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread::JoinHandle;

pub(crate) struct BusyThread {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<u64>>,
}

impl BusyThread {
    /// Makes the thread, has it call `first`, and returns when it is about to work.
    pub(crate) fn start(name: &str, first: impl FnOnce() + Send + 'static) -> std::io::Result<Self> {
        let (ready, is_ready) = channel();
        let thread = Self::spawn(name, move || {
            first();
            // Whoever waits for it is there until it was received.
            let _ = ready.send(());
        })?;
        // A thread that has panicked in `first` has dropped its sender.
        let _ = is_ready.recv();
        Ok(thread)
    }

    /// Makes the thread, which calls `first` and works.
    pub(crate) fn spawn(name: &str, first: impl FnOnce() + Send + 'static) -> std::io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let seen_by_thread = Arc::clone(&stop);
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(move || {
            first();
            let mut numbers = Box::new([0; 512]);
            let mut hash = 1;
            while !seen_by_thread.load(Ordering::Relaxed) {
                hash = work(hash, &mut numbers);
            }
            hash
        })?;
        Ok(Self { stop, thread: Some(thread) })
    }

    /// Tells it to end, and does not wait until it has.
    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

impl Drop for BusyThread {
    fn drop(&mut self) {
        self.stop();
        if let Some(Ok(hash)) = self.thread.take().map(JoinHandle::join) {
            std::hint::black_box(hash);
        }
    }
}

/// Some ten microseconds of work.
#[inline(never)]
fn work(seed: u64, numbers: &mut [u64; 512]) -> u64 {
    fill(seed, numbers);
    sort(numbers);
    hash(numbers)
}

#[inline(never)]
fn fill(seed: u64, numbers: &mut [u64]) {
    let mut state = seed | 1;
    for number in numbers {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        *number = state;
    }
}

#[inline(never)]
fn sort(numbers: &mut [u64]) {
    numbers.sort_unstable();
}

#[inline(never)]
fn hash(numbers: &[u64]) -> u64 {
    let bytes = numbers.iter().flat_map(|number| number.to_le_bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}
