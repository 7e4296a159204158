//! A thread that is busy with real work: sorting and hashing, some functions deep.
//!
//! It allocates nothing while it works. A peer that unwinds in its signal handler may wait there for a lock that the
//! interrupted allocator holds, and never come back.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Barrier};
use std::thread::JoinHandle;

pub(crate) struct BusyThread {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<u64>>,
}

impl BusyThread {
    /// Makes the thread, has it call `first`, and returns when it is about to work.
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
                // Whoever waits for it is there until it was received.
                let _ = ready.send(());
                work_until(&seen_by_thread)
            })?;
        // A thread that has panicked in `first` has dropped its sender.
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

/// Many of them.
pub(crate) struct BusyThreads {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<u64>>,
}

impl BusyThreads {
    /// Makes them, has each call `first`, and returns when all have and begin to work: one that is at work already would
    /// keep those that are made after it waiting.
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

/// A fixed amount of the same work, which threads share: the result is that of their portions, however they fell out.
pub(crate) struct SharedWork {
    portions: u64,
    next: AtomicU64,
}

impl SharedWork {
    /// A portion takes some ten microseconds.
    pub(crate) fn new(portions: u64) -> Self {
        Self {
            portions,
            next: AtomicU64::new(0),
        }
    }

    /// Works until nothing is left.
    pub(crate) fn take_part(&self) -> u64 {
        /// So that threads meet at the counter seldom, and end together.
        const AT_A_TIME: u64 = 8;
        let mut numbers = Box::new([0; 512]);
        let mut sum = 0u64;
        loop {
            let first = self.next.fetch_add(AT_A_TIME, Ordering::Relaxed);
            if first >= self.portions {
                return sum;
            }
            for portion in first..self.portions.min(first + AT_A_TIME) {
                sum = sum.wrapping_add(work(portion << 1, &mut numbers));
            }
        }
    }
}

/// Some ten microseconds of work.
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
    fn shared_work_is_the_same_however_it_is_shared() {
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
