//! Threads that are busy with real work: sorting and hashing, a few functions deep.
//!
//! They allocate nothing while they work. A peer that unwinds in its signal handler could otherwise
//! deadlock on a lock that the interrupted allocator holds.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Barrier};
use std::thread::JoinHandle;

pub(crate) struct BusyThread {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<u64>>,
}

impl BusyThread {
    /// Starts a thread that calls `first` and then works. Returns when the work begins.
    pub(crate) fn start(
        name: &str,
        first: impl FnOnce() + Send + 'static,
    ) -> std::io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let seen_by_thread = Arc::clone(&stop);
        let (ready, is_ready) = channel();
        let thread = std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || {
                first();
                // The receiver lives until it has received this.
                let _ = ready.send(());
                work_until(&seen_by_thread)
            })?;
        // If the thread panics in `first`, it drops its sender, and this returns at once.
        let _ = is_ready.recv();
        Ok(Self {
            stop,
            thread: Some(thread),
        })
    }
}

impl Drop for BusyThread {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(Ok(hash)) = self.thread.take().map(JoinHandle::join) {
            std::hint::black_box(hash);
        }
    }
}

/// Many busy threads. Dropping this ends them.
pub(crate) struct BusyThreads {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<u64>>,
}

impl BusyThreads {
    /// Starts threads that each call `first`, and returns when all have done so. Only then do they
    /// begin to work, because working threads would delay the creation of the others.
    pub(crate) fn start(
        count: usize,
        first: impl Fn() + Clone + Send + 'static,
    ) -> std::io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let all_are_ready = Arc::new(Barrier::new(count + 1));
        let mut threads = Vec::with_capacity(count);
        for number in 0..count {
            let (first, stop) = (first.clone(), Arc::clone(&stop));
            let all_are_ready = Arc::clone(&all_are_ready);
            let builder = std::thread::Builder::new().name(format!("busy {number}"));
            threads.push(builder.spawn(move || {
                first();
                all_are_ready.wait();
                work_until(&stop)
            })?);
        }
        all_are_ready.wait();
        Ok(Self { stop, threads })
    }
}

impl Drop for BusyThreads {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            if let Ok(hash) = thread.join() {
                std::hint::black_box(hash);
            }
        }
    }
}

fn work_until(stop: &AtomicBool) -> u64 {
    let mut numbers = Box::new([0; 512]);
    let mut hash = 1;
    while !stop.load(Ordering::Relaxed) {
        hash = work(hash, &mut numbers);
    }
    hash
}

/// A fixed amount of work that threads share. The result does not depend on how they divide the
/// portions.
pub(crate) struct SharedWork {
    portions: u64,
    next: AtomicU64,
}

impl SharedWork {
    /// Creates work of this many portions, about 10 µs each.
    pub(crate) fn new(portions: u64) -> Self {
        Self {
            portions,
            next: AtomicU64::new(0),
        }
    }

    /// Works on portions until none are left, and returns the sum of their results.
    pub(crate) fn take_part(&self) -> u64 {
        /// Portions claimed at once: enough that threads rarely contend for the counter, few enough
        /// that they end together.
        const PORTIONS_PER_CLAIM: u64 = 8;
        let mut numbers = Box::new([0; 512]);
        let mut sum = 0u64;
        loop {
            let first = self.next.fetch_add(PORTIONS_PER_CLAIM, Ordering::Relaxed);
            if first >= self.portions {
                return sum;
            }
            for portion in first..self.portions.min(first + PORTIONS_PER_CLAIM) {
                sum = sum.wrapping_add(work(portion << 1, &mut numbers));
            }
        }
    }
}

/// Does about 10 µs of work.
#[inline(never)]
pub(crate) fn work(seed: u64, numbers: &mut [u64; 512]) -> u64 {
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
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_work_result_does_not_depend_on_the_threads() {
        let alone = SharedWork::new(100).take_part();
        let shared = SharedWork::new(100);
        let parts = std::thread::scope(|scope| {
            let other = scope.spawn(|| shared.take_part());
            let own = shared.take_part();
            own.wrapping_add(other.join().expect("no panic"))
        });
        assert_eq!(parts, alone);
    }
}
