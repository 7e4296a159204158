//! The map of the area's pages that are in use. Taking pages and giving them back takes no lock:
//! the last reader of a chunk gives the chunk's pages back, on any thread.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

const BITS: usize = u64::BITS as usize;

/// A bit for each page, set while the page is in use.
#[derive(Debug)]
pub(super) struct PageMap {
    words: Box<[AtomicU64]>,
    /// The word at which the next search begins.
    next: AtomicUsize,
}

impl PageMap {
    /// Creates a map of free pages. Returns `None` if the allocation fails.
    pub(super) fn try_new(pages: usize) -> Option<Self> {
        let count = pages.div_ceil(BITS);
        let mut words = Vec::new();
        words.try_reserve_exact(count).ok()?;
        words.extend((0..count).map(|word| {
            let used = pages - word * BITS;
            // The last word has bits for pages that do not exist.
            AtomicU64::new(if used < BITS { u64::MAX << used } else { 0 })
        }));
        Some(Self {
            words: words.into_boxed_slice(),
            next: AtomicUsize::new(0),
        })
    }

    /// Takes `pages` adjacent pages, a power of two, and returns the first one. Returns `None` if
    /// none are free.
    pub(super) fn take(&self, pages: usize) -> Option<usize> {
        let start = self.next.load(Ordering::Relaxed) % self.words.len().max(1);
        let from_start = (start..self.words.len()).chain(0..start);
        let step = (pages / BITS).max(1);
        let mut places = from_start.filter(|word| word.is_multiple_of(step));
        let first = places.find_map(|word| match pages < BITS {
            true => self.take_in_word(word, pages),
            false => self.take_words(word, step).then_some(word * BITS),
        })?;
        self.next.store(first / BITS, Ordering::Relaxed);
        Some(first)
    }

    fn take_in_word(&self, word: usize, pages: usize) -> Option<usize> {
        let mask = (1u64 << pages) - 1;
        let is_free = |used: u64, at: usize| used & (mask << at) == 0;
        let place = |used| (0..BITS).step_by(pages).find(|&at| is_free(used, at));
        let with_place = |used| Some(used | mask << place(used)?);
        let taken = self.words[word].fetch_update(Ordering::AcqRel, Ordering::Acquire, with_place);
        Some(word * BITS + place(taken.ok()?)?)
    }

    fn take_words(&self, first: usize, count: usize) -> bool {
        let Some(words) = self.words.get(first..first + count) else {
            return false;
        };
        let take = |word: &AtomicU64| {
            let taken = word.compare_exchange(0, u64::MAX, Ordering::AcqRel, Ordering::Acquire);
            taken.is_ok()
        };
        let taken = words.iter().take_while(|word| take(word)).count();
        if taken < count {
            words[..taken]
                .iter()
                .for_each(|word| word.store(0, Ordering::Release));
        }
        taken == count
    }

    /// Gives back what [`Self::take`] returned.
    pub(super) fn give_back(&self, first: usize, pages: usize) {
        // The lowest free pages are taken first, so that a process does not walk through the whole file.
        self.next.fetch_min(first / BITS, Ordering::Relaxed);
        let (word, at) = (first / BITS, first % BITS);
        if pages < BITS {
            let mask = ((1u64 << pages) - 1) << at;
            self.words[word].fetch_and(!mask, Ordering::AcqRel);
        } else {
            self.words[word..word + pages / BITS]
                .iter()
                .for_each(|word| word.store(0, Ordering::Release));
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn pages_are_taken_once_aligned_and_again_after_they_were_given_back() {
        for pages in [1, 63, 64, 65, 1000, 1024] {
            let map = PageMap::try_new(pages).expect("memory");
            let mut taken = Vec::new();
            for count in [256, 64, 32, 4, 1] {
                while let Some(first) = map.take(count) {
                    assert!(first.is_multiple_of(count) && first + count <= pages);
                    taken.push((first, count));
                }
            }
            let all: Vec<usize> = taken
                .iter()
                .flat_map(|&(first, count)| first..first + count)
                .collect();
            assert_eq!(all.len(), pages);
            assert_eq!(all.iter().collect::<HashSet<_>>().len(), pages);
            taken
                .iter()
                .for_each(|&(first, count)| map.give_back(first, count));
            let again = (0..pages / 64).filter_map(|_| map.take(64));
            assert_eq!(again.count(), pages / 64);
        }
    }

    #[test]
    fn threads_never_share_a_page() {
        let map = PageMap::try_new(512).expect("memory");
        let owners: Vec<AtomicUsize> = (0..512).map(|_| AtomicUsize::new(0)).collect();
        let use_pages = |thread: usize| {
            for round in 0..2000usize {
                let count = 1 << ((round + thread) % 8);
                let Some(first) = map.take(count) else {
                    continue;
                };
                let own = &owners[first..first + count];
                own.iter()
                    .for_each(|owner| assert_eq!(owner.swap(thread, Ordering::AcqRel), 0));
                own.iter()
                    .for_each(|owner| assert_eq!(owner.swap(0, Ordering::AcqRel), thread));
                map.give_back(first, count);
            }
        };
        std::thread::scope(|scope| {
            (1..=4).for_each(|thread| _ = scope.spawn(move || use_pages(thread)));
        });
    }
}
