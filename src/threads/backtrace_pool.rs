//! Memory for backtraces that is used again: taking some and giving it back are a few atomic operations, whenever a
//! backtrace of about that size was dropped before.
//!
//! **Contract** (cited below):
//! - *boxed*: an address in a place of the class `c` came from a box of `class_words(c)` words, by `Box::into_raw`;
//! - *taken once*: it leaves its place by a swap with null and enters one by a compare-exchange from null, so whoever has
//!   it has it alone.

use std::alloc::{Layout, alloc_zeroed};
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use crate::base::as_own_work;

/// The least class is of 4 KiB; each next is twice as large.
const LEAST_WORDS: usize = 512;
/// The greatest is of 64 MiB. A stack that is deeper has its youngest part copied.
const CLASSES: usize = 15;
/// So many are kept of a class, and fewer of one where that would be more than [`KEPT_WORDS`].
const MOST_KEPT: usize = 64;
const KEPT_WORDS: usize = (4 << 20) / 8;
/// How much greater than needed the memory may be: this many classes.
const CLASSES_TO_TRY: usize = 3;

/// So many of 16 KiB are there before anybody asks.
const READY: u32 = 32;
const READY_CLASS: usize = 2;

type Place = AtomicPtr<u64>;

/// How often none was kept of a class that was asked for, since somebody last made more.
static MISSED: [AtomicU32; CLASSES] = [const { AtomicU32::new(0) }; CLASSES];

static KEPT: [[Place; MOST_KEPT]; CLASSES] =
    [const { [const { AtomicPtr::new(std::ptr::null_mut()) }; MOST_KEPT] }; CLASSES];

pub(super) const MOST_WORDS: usize = class_words(CLASSES - 1);

const fn class_words(class: usize) -> usize {
    LEAST_WORDS << class
}

/// The least class of which each has at least so many words.
fn class_of(words: usize) -> usize {
    (words
        .max(LEAST_WORDS)
        .div_ceil(LEAST_WORDS)
        .next_power_of_two()
        .ilog2() as usize)
        .min(CLASSES - 1)
}

fn places(class: usize) -> &'static [Place] {
    &KEPT[class][..(KEPT_WORDS / class_words(class)).clamp(1, MOST_KEPT)]
}

/// At least so many words, or [`MOST_WORDS`]; `None` when the system has none. Their content is anything.
pub(super) fn take_words(words: usize) -> Option<Box<[u64]>> {
    let class = class_of(words);
    let kept = (class..CLASSES).take(CLASSES_TO_TRY).find_map(take_kept);
    kept.or_else(|| {
        MISSED[class].fetch_add(1, Ordering::Relaxed);
        as_own_work(|| new_words(class))
    })
}

/// Has some kept, for a thread that may not allocate.
pub(crate) fn prepare_words() {
    MISSED[READY_CLASS].fetch_add(READY, Ordering::Relaxed);
    make_missed_words();
}

/// Makes as many more as were missed, so that they are not missed again. Not by a thread that may not wait.
pub(crate) fn make_missed_words() {
    for (class, missed) in MISSED.iter().enumerate() {
        if missed.load(Ordering::Relaxed) == 0 {
            continue;
        }
        let missed = missed.swap(0, Ordering::Relaxed) as usize;
        for _ in 0..missed.min(places(class).len()) {
            let Some(mut words) = new_words(class) else {
                return;
            };
            // Whoever takes them waits for no page.
            words.fill(0);
            give_back_words(words);
        }
    }
}

fn take_kept(class: usize) -> Option<Box<[u64]>> {
    for place in places(class) {
        if !place.load(Ordering::Relaxed).is_null() {
            let start = place.swap(std::ptr::null_mut(), Ordering::Acquire);
            if !start.is_null() {
                let words = std::ptr::slice_from_raw_parts_mut(start, class_words(class));
                // SAFETY: *boxed* and *taken once*.
                return Some(unsafe { Box::from_raw(words) });
            }
        }
    }
    None
}

/// A box that the system has not touched yet, without the abort of `Box::new` where there is no memory.
fn new_words(class: usize) -> Option<Box<[u64]>> {
    let words = class_words(class);
    let layout = Layout::array::<u64>(words).ok()?;
    // SAFETY: the layout has a size.
    let start = unsafe { alloc_zeroed(layout) }.cast::<u64>();
    if start.is_null() {
        return None;
    }
    // SAFETY: allocated just now with the layout of such a slice, and zero is a number.
    Some(unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(start, words)) })
}

/// Keeps words that [`take_words`] gave for the next who wants some; frees them when enough are kept.
pub(super) fn give_back_words(words: Box<[u64]>) {
    let class = class_of(words.len());
    if words.len() != class_words(class) {
        return;
    }
    let start = Box::into_raw(words).cast::<u64>();
    for place in places(class) {
        let empty = std::ptr::null_mut();
        if place.load(Ordering::Relaxed).is_null()
            && place
                .compare_exchange(empty, start, Ordering::Release, Ordering::Relaxed)
                .is_ok()
        {
            return;
        }
    }
    // SAFETY: *boxed*: made into a pointer just above, with this length, and in no place.
    drop(unsafe {
        Box::from_raw(std::ptr::slice_from_raw_parts_mut(
            start,
            class_words(class),
        ))
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_number_of_words_has_its_class() {
        for (words, class) in [
            (0, 0),
            (512, 0),
            (513, 1),
            (1024, 1),
            (1025, 2),
            (MOST_WORDS, 14),
            (MOST_WORDS + 1, 14),
        ] {
            assert_eq!(class_of(words), class, "{words}");
        }
        assert_eq!(MOST_WORDS * 8, 64 << 20);
    }

    #[test]
    fn what_was_missed_is_there_the_next_time() {
        // A class that no other test of this process uses.
        let class = 7;
        let words = || take_words(class_words(class)).expect("memory");
        let few: Vec<_> = (0..3).map(|_| words()).collect();
        assert_eq!(MISSED[class].load(Ordering::Relaxed), 3);
        make_missed_words();
        let others: Vec<_> = (0..3).map(|_| words()).collect();
        assert_eq!(MISSED[class].load(Ordering::Relaxed), 0, "none was missed");
        drop((few, others));
    }

    #[test]
    fn words_that_were_given_back_are_taken_again_by_one() {
        // A class that no other test of this process uses.
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
                        assert_eq!(words[0], round, "somebody else has it too");
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
