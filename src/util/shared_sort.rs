//! Sorts with code that all types share.
//!
//! The standard library's sorts are compiled for each type and order, about 6 KB each. Lists that
//! are sorted once for a profile do not need that. Not for code that runs while the application is
//! recorded, or that counts its memory: these sorts allocate.

use std::cmp::Ordering;

/// Stable sorts that add little code for each type. They compare through a pointer, and need a list
/// of the items' numbers.
pub(crate) trait SharedSort<T> {
    /// Sorts like [`slice::sort_by`].
    fn shared_sort_by(&mut self, order: impl FnMut(&T, &T) -> Ordering);

    /// Sorts like [`slice::sort_by_key`].
    fn shared_sort_by_key<K: Ord>(&mut self, key: impl FnMut(&T) -> K);

    /// Sorts like [`slice::sort_by_cached_key`]: each key is computed once.
    fn shared_sort_by_cached_key<K: Ord>(&mut self, key: impl FnMut(&T) -> K);
}

impl<T> SharedSort<T> for [T] {
    fn shared_sort_by(&mut self, mut order: impl FnMut(&T, &T) -> Ordering) {
        let sources = sorted_indices(self.len(), &mut |one, other| {
            order(&self[one as usize], &self[other as usize])
        });
        permute(self, sources);
    }

    fn shared_sort_by_key<K: Ord>(&mut self, mut key: impl FnMut(&T) -> K) {
        self.shared_sort_by(|one, other| key(one).cmp(&key(other)));
    }

    fn shared_sort_by_cached_key<K: Ord>(&mut self, key: impl FnMut(&T) -> K) {
        let keys: Vec<K> = self.iter().map(key).collect();
        let sources = sorted_indices(self.len(), &mut |one, other| {
            keys[one as usize].cmp(&keys[other as usize])
        });
        permute(self, sources);
    }
}

/// Returns the indices of `length` items in the order of the items.
///
/// # Panics
/// If there are more than 2³² items.
#[inline(never)]
fn sorted_indices(length: usize, order: &mut dyn FnMut(u32, u32) -> Ordering) -> Vec<u32> {
    let length = u32::try_from(length).expect("fewer items");
    let mut indices: Vec<u32> = (0..length).collect();
    indices.sort_by(|&one, &other| order(one, other));
    indices
}

/// Moves the item at `sources[n]` to place `n`, for each place.
fn permute<T>(items: &mut [T], mut sources: Vec<u32>) {
    for start in 0..items.len() {
        // Follows one cycle of the permutation, and marks its places as done.
        let mut place = start;
        loop {
            let source = std::mem::replace(&mut sources[place], place as u32) as usize;
            if source == start || source == place {
                break;
            }
            items.swap(place, source);
            place = source;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns items with few distinct keys, in a scrambled order.
    fn items(count: u64) -> Vec<(u64, u64)> {
        let scrambled = |number: u64| number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        (0..count)
            .map(|number| (scrambled(number) % 7, number))
            .collect()
    }

    #[test]
    fn shared_sorts_give_the_order_of_the_stable_sort() {
        for count in [0, 1, 2, 3, 10, 1000] {
            let mut expected = items(count);
            expected.sort_by_key(|item| item.0);
            let mut by_key = items(count);
            by_key.shared_sort_by_key(|item| item.0);
            assert_eq!(by_key, expected);
            let mut by_cached_key = items(count);
            by_cached_key.shared_sort_by_cached_key(|item| item.0);
            assert_eq!(by_cached_key, expected);
            let mut by = items(count);
            by.shared_sort_by(|one, other| one.0.cmp(&other.0));
            assert_eq!(by, expected);
            let mut all = items(count);
            all.reverse();
            all.shared_sort_by(Ord::cmp);
            expected.sort();
            assert_eq!(all, expected);
        }
    }
}
