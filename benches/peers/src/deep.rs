//! Threads with deep, varying stacks: each follows one of 256 call paths through eight functions,
//! 12 to 40 calls deep, and works in the innermost call.

use std::hint::black_box;
use std::io;
use std::time::Duration;

use gekkota::{ThreadGuard, auto_profiler_label};

use crate::busy::work;
use crate::jobs;
use crate::threads::Threads;

/// What a thread does in the innermost call.
#[derive(Clone, Copy)]
pub(crate) enum Rhythm {
    /// About 10 µs of work, then the next call path.
    Busy,
    /// About 10 µs of work, then a sleep of this length.
    Bursts(Duration),
    /// About 50 µs of work of another kind for each call path, in several libraries.
    Jobs,
}

/// Number of call paths. All threads use the same ones, each starting with another.
const PATHS: u64 = 256;

/// Starts threads that are registered with gekkota as `deep`.
pub(crate) fn start(count: usize, rhythm: Rhythm) -> io::Result<Threads> {
    let prepare = move |number| Deep {
        _registered: ThreadGuard::register("deep"),
        state: mix(number + PATHS),
        leaf: Leaf {
            rhythm,
            numbers: Box::new([0; 512]),
        },
    };
    Threads::start(count, "deep", prepare, Deep::follow_a_path)
}

struct Deep {
    _registered: ThreadGuard,
    state: u64,
    leaf: Leaf,
}

impl Deep {
    fn follow_a_path(&mut self) {
        auto_profiler_label!("a path", Other);
        self.state = mix(self.state);
        // Each number gives the same path on each call.
        let path = mix(self.state % PATHS + 1);
        black_box(step(path, 12 + path as u32 % 29, &mut self.leaf));
    }
}

fn mix(number: u64) -> u64 {
    let number = (number ^ number >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ number >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ number >> 31
}

struct Leaf {
    rhythm: Rhythm,
    numbers: Box<[u64; 512]>,
}

impl Leaf {
    #[inline(never)]
    fn run(&mut self, path: u64) -> u64 {
        if let Rhythm::Jobs = self.rhythm {
            return black_box(jobs::run(path)) as u64;
        }
        let hash = work(path, &mut self.numbers);
        if let Rhythm::Bursts(pause) = self.rhythm {
            std::thread::sleep(pause);
        }
        black_box(hash)
    }
}

#[inline(always)]
fn step(path: u64, levels: u32, leaf: &mut Leaf) -> u64 {
    if levels == 0 {
        return leaf.run(path);
    }
    match path % 8 {
        0 => one(path, levels, leaf),
        1 => two(path, levels, leaf),
        2 => three(path, levels, leaf),
        3 => four(path, levels, leaf),
        4 => five(path, levels, leaf),
        5 => six(path, levels, leaf),
        6 => seven(path, levels, leaf),
        _ => eight(path, levels, leaf),
    }
}

/// Defines functions that differ, so that the compiler does not merge them. Each has work left
/// after its call, so that the call does not become a jump.
macro_rules! functions {
    ($($name:ident $number:literal)*) => {
        $(#[inline(never)]
        fn $name(path: u64, levels: u32, leaf: &mut Leaf) -> u64 {
            // About as much as an ordinary function keeps on its stack.
            let kept = black_box([u64::from(levels) + $number; 4]);
            step(path.rotate_right(3), levels - 1, leaf) ^ black_box(kept)[levels as usize % 4]
        })*
    };
}

functions! { one 1 two 2 three 3 four 4 five 5 six 6 seven 7 eight 8 }

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drop_ends_the_threads() {
        let threads = start(3, Rhythm::Bursts(Duration::from_micros(50))).expect("threads");
        std::thread::sleep(Duration::from_millis(5));
        drop(threads);
    }
}
