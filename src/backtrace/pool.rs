//! A pool of memory blocks for backtraces. Taking and returning a block costs a few atomic
//! operations if a backtrace of about that size was dropped before.
//!
//! **Contract** (cited below):
//! - *boxed*: an address in a cell of class `c` came from a box of `class_words(c)` words, by
//!   `Box::into_raw`;
//! - *taken once*: an address leaves its cell by a swap with null and enters a cell by a
//!   compare-exchange from null, so only one thread has it at a time.

use std::alloc::{Layout, alloc_zeroed};
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use crate::util::as_profiler_work;

/// Size of a block of the smallest class, in words: 4 KiB. Each class has twice the size of the one
/// before.
const MIN_WORDS: usize = 512;
/// Number of size classes. A block of the largest class has 64 MiB, mostly for the texts of labels.
const CLASSES: usize = 15;
/// Maximum number of cached blocks per class. [`MAX_CACHED_WORDS`] lowers it for large classes.
const MAX_CACHED: usize = 64;
/// Maximum size of the cached blocks of one class, in words: 4 MiB. One block is cached in any
/// case.
const MAX_CACHED_WORDS: usize = (4 << 20) / 8;
/// Number of classes to search for a cached block, starting with the smallest that fits.
const CLASSES_TO_TRY: usize = 3;

/// Number of 16 KiB blocks that [`preallocate_words`] puts into the cache.
const PREALLOCATED: u32 = 32;
const PREALLOCATED_CLASS: usize = 2;

type Cell = AtomicPtr<u64>;

/// Number of requests, per class, that found no cached block since the last [`refill_words`].
static MISSES: [AtomicU32; CLASSES] = [const { AtomicU32::new(0) }; CLASSES];

static CACHE: [[Cell; MAX_CACHED]; CLASSES] =
    [const { [const { AtomicPtr::new(std::ptr::null_mut()) }; MAX_CACHED] }; CLASSES];

pub(crate) const MAX_WORDS: usize = class_words(CLASSES - 1);

const fn class_words(class: usize) -> usize {
    MIN_WORDS << class
}

/// Returns the smallest class whose blocks have at least this many words, or the largest class.
fn class_of(words: usize) -> usize {
    (words
        .max(MIN_WORDS)
        .div_ceil(MIN_WORDS)
        .next_power_of_two()
        .ilog2() as usize)
        .min(CLASSES - 1)
}

fn cells(class: usize) -> &'static [Cell] {
    &CACHE[class][..(MAX_CACHED_WORDS / class_words(class)).clamp(1, MAX_CACHED)]
}

/// Takes a block of at least `words` words, or of [`MAX_WORDS`] if that is less; `None` when out of
/// memory. The content is unspecified.
pub(crate) fn take_words(words: usize) -> Option<Box<[u64]>> {
    let class = class_of(words);
    let cached = (class..CLASSES).take(CLASSES_TO_TRY).find_map(take_cached);
    cached.or_else(|| {
        MISSES[class].fetch_add(1, Ordering::Relaxed);
        as_profiler_work(|| new_words(class))
    })
}

/// Fills the cache in advance, for threads that must not allocate.
pub(crate) fn preallocate_words() {
    MISSES[PREALLOCATED_CLASS].fetch_add(PREALLOCATED, Ordering::Relaxed);
    refill_words();
}

/// Allocates one block for each miss, so that the next requests are served from the cache. Called
/// only on threads that may block.
pub(crate) fn refill_words() {
    for (class, missed) in MISSES.iter().enumerate() {
        if missed.load(Ordering::Relaxed) == 0 {
            continue;
        }
        let missed = missed.swap(0, Ordering::Relaxed) as usize;
        for _ in 0..missed.min(cells(class).len()) {
            let Some(mut words) = new_words(class) else {
                return;
            };
            // Touches all pages, so that the thread that takes the block has no page faults.
            words.fill(0);
            give_back_words(words);
        }
    }
}

fn take_cached(class: usize) -> Option<Box<[u64]>> {
    for cell in cells(class) {
        if !cell.load(Ordering::Relaxed).is_null() {
            let start = cell.swap(std::ptr::null_mut(), Ordering::Acquire);
            if !start.is_null() {
                let words = std::ptr::slice_from_raw_parts_mut(start, class_words(class));
                // SAFETY: *boxed* and *taken once*.
                return Some(unsafe { Box::from_raw(words) });
            }
        }
    }
    None
}

/// Allocates a block whose pages the system has not mapped yet. Unlike `Box::new`, does not abort
/// when out of memory.
fn new_words(class: usize) -> Option<Box<[u64]>> {
    let words = class_words(class);
    let layout = Layout::array::<u64>(words).ok()?;
    // SAFETY: the layout is not empty.
    let start = unsafe { alloc_zeroed(layout) }.cast::<u64>();
    if start.is_null() {
        return None;
    }
    // SAFETY: just allocated with the layout of such a slice, and zero is a valid `u64`.
    Some(unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(start, words)) })
}

/// Returns a block from [`take_words`] to the cache, or frees it when the cache is full.
pub(crate) fn give_back_words(words: Box<[u64]>) {
    let class = class_of(words.len());
    if words.len() != class_words(class) {
        return;
    }
    let start = Box::into_raw(words).cast::<u64>();
    for cell in cells(class) {
        let empty = std::ptr::null_mut();
        if cell.load(Ordering::Relaxed).is_null()
            && cell
                .compare_exchange(empty, start, Ordering::Release, Ordering::Relaxed)
                .is_ok()
        {
            return;
        }
    }
    // SAFETY: *boxed*: the pointer was made from the box above, with this length, and is in no
    // cell.
    drop(unsafe {
        Box::from_raw(std::ptr::slice_from_raw_parts_mut(
            start,
            class_words(class),
        ))
    });
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn class_of_returns_smallest_fitting_class() {
        for (words, class) in [
            (0, 0),
            (512, 0),
            (513, 1),
            (1024, 1),
            (1025, 2),
            (MAX_WORDS, 14),
            (MAX_WORDS + 1, 14),
        ] {
            assert_eq!(class_of(words), class, "{words}");
        }
        assert_eq!(MAX_WORDS * 8, 64 << 20);
    }

    #[test]
    fn refill_words_replaces_misses() {
        // Other tests may take blocks and refill the cache at the same time, so this one repeats
        // itself until none did.
        let class = 7;
        let words = || take_words(class_words(class)).expect("memory");
        let is_cached = |cell: &&AtomicPtr<u64>| !cell.load(Ordering::Relaxed).is_null();
        let longest_wait = Instant::now() + Duration::from_secs(120);
        loop {
            // Most of these are not cached.
            let taken: Vec<_> = (0..cells(class).len() + 3).map(|_| words()).collect();
            refill_words();
            if cells(class).iter().filter(is_cached).count() >= 3 {
                let others = [words(), words(), words()];
                if MISSES[class].load(Ordering::Relaxed) == 0 {
                    drop((taken, others));
                    return;
                }
            }
            assert!(
                Instant::now() < longest_wait,
                "the blocks were not replaced"
            );
            std::thread::yield_now();
        }
    }

    #[test]
    fn returned_block_is_taken_by_one_thread() {
        // No other test in this process uses this class.
        let words = class_words(9);
        let first = take_words(words).expect("memory");
        let (start, length) = (first.as_ptr(), first.len());
        assert_eq!(length, words);
        give_back_words(first);
        let again = take_words(words / 2 + 1).expect("memory");
        assert_eq!(again.as_ptr(), start);
        let other = take_words(words).expect("memory");
        assert_ne!(other.as_ptr(), start);
        give_back_words(again);
        give_back_words(other);
        let takers: Vec<_> = (0..8)
            .map(|_| {
                std::thread::spawn(move || {
                    for round in 0..1000u64 {
                        let mut words = take_words(words).expect("memory");
                        words[0] = round;
                        std::hint::black_box(&mut words);
                        assert_eq!(words[0], round, "another thread has the same block");
                        give_back_words(words);
                    }
                })
            })
            .collect();
        takers
            .into_iter()
            .for_each(|taker| taker.join().expect("thread"));
    }
}
