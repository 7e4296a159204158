//! Threads with deep stacks that vary: each goes down some hundred ways through eight functions that call each other, 12
//! to 40 calls deep, and works at the bottom.

use std::hint::black_box;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};
use std::thread::JoinHandle;
use std::time::Duration;

use gekkota::{ThreadGuard, auto_profiler_label};

use crate::busy::work;

/// What a thread does at the bottom.
#[derive(Clone, Copy)]
pub(crate) enum Rhythm {
    /// Some ten microseconds of work, and the next way.
    Busy,
    /// The same, and a sleep.
    Bursts(Duration),
}

/// So many ways; threads share them, and begin with different ones.
const WAYS: u64 = 256;

/// The threads, registered with gekkota by the name `deep`. They end when this is dropped.
pub(crate) struct DeepThreads {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<u64>>,
}

impl DeepThreads {
    /// Returns when all are registered and begin.
    pub(crate) fn start(count: usize, rhythm: Rhythm) -> io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let all_are_ready = Arc::new(Barrier::new(count + 1));
        let mut threads = Vec::with_capacity(count);
        for number in 0..count {
            let (stop, all_are_ready) = (Arc::clone(&stop), Arc::clone(&all_are_ready));
            let builder = std::thread::Builder::new().name(format!("deep {number}"));
            threads.push(builder.spawn(move || {
                let _registered = ThreadGuard::register("deep");
                all_are_ready.wait();
                go_until(&stop, number as u64, rhythm)
            })?);
        }
        all_are_ready.wait();
        Ok(Self { stop, threads })
    }
}

impl Drop for DeepThreads {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            if let Ok(result) = thread.join() {
                black_box(result);
            }
        }
    }
}

fn go_until(stop: &AtomicBool, seed: u64, rhythm: Rhythm) -> u64 {
    let mut bottom = Bottom {
        rhythm,
        numbers: Box::new([0; 512]),
    };
    let mut result = 0;
    let mut state = mix(seed + WAYS);
    while !stop.load(Ordering::Relaxed) {
        auto_profiler_label!("a way", Other);
        state = mix(state);
        // Of the same number comes the same way.
        let way = mix(state % WAYS + 1);
        result ^= step(way, 12 + way as u32 % 29, &mut bottom);
    }
    result
}

fn mix(number: u64) -> u64 {
    let number = (number ^ number >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ number >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ number >> 31
}

struct Bottom {
    rhythm: Rhythm,
    numbers: Box<[u64; 512]>,
}

impl Bottom {
    #[inline(never)]
    fn reach(&mut self, way: u64) -> u64 {
        let hash = work(way, &mut self.numbers);
        if let Rhythm::Bursts(pause) = self.rhythm {
            std::thread::sleep(pause);
        }
        black_box(hash)
    }
}

#[inline(always)]
fn step(way: u64, levels: u32, bottom: &mut Bottom) -> u64 {
    if levels == 0 {
        return bottom.reach(way);
    }
    match way % 8 {
        0 => one(way, levels, bottom),
        1 => two(way, levels, bottom),
        2 => three(way, levels, bottom),
        3 => four(way, levels, bottom),
        4 => five(way, levels, bottom),
        5 => six(way, levels, bottom),
        6 => seven(way, levels, bottom),
        _ => eight(way, levels, bottom),
    }
}

/// Functions that differ, so that the compiler does not make one of them, and that have something to do after their call.
macro_rules! functions {
    ($($name:ident $number:literal)*) => {
        $(#[inline(never)]
        fn $name(way: u64, levels: u32, bottom: &mut Bottom) -> u64 {
            // As much as an ordinary function keeps on its stack.
            let kept = black_box([u64::from(levels) + $number; 4]);
            step(way.rotate_right(3), levels - 1, bottom) ^ black_box(kept)[levels as usize % 4]
        })*
    };
}

functions! { one 1 two 2 three 3 four 4 five 5 six 6 seven 7 eight 8 }

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_end_when_they_are_told_to() {
        let threads =
            DeepThreads::start(3, Rhythm::Bursts(Duration::from_micros(50))).expect("threads");
        std::thread::sleep(Duration::from_millis(5));
        drop(threads);
    }
}
