//! Finds the thread of an entry among the threads of a profile.

use crate::util::NumberMap;

/// The positions of threads in a profile, by serial number.
#[derive(Debug)]
pub(crate) struct ThreadIndex {
    /// The slots, a power of two in number. Each is empty or holds a serial number and its
    /// position. Threads that were registered one after another have adjacent slots, and are found
    /// without a hash.
    near: Vec<Option<(u64, usize)>>,
    /// Threads whose slot in `near` is taken by another thread.
    far: NumberMap<usize>,
}

impl ThreadIndex {
    /// Makes the index from serial numbers in the order of the profile.
    pub(crate) fn new(serials: impl ExactSizeIterator<Item = u64>) -> Self {
        let slots = (serials.len() * 4).next_power_of_two();
        let mut index = Self {
            near: vec![None; slots],
            far: NumberMap::default(),
        };
        for (position, serial) in serials.enumerate() {
            let slot = index.slot(serial);
            match &mut index.near[slot] {
                Some(_) => _ = index.far.insert(serial, position),
                free => *free = Some((serial, position)),
            }
        }
        index
    }

    fn slot(&self, serial: u64) -> usize {
        serial as usize & (self.near.len() - 1)
    }

    #[inline]
    pub(crate) fn get(&self, serial: u64) -> Option<usize> {
        match self.near[self.slot(serial)] {
            Some((near, position)) if near == serial => Some(position),
            _ if self.far.is_empty() => None,
            _ => self.far.get(&serial).copied(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn get_finds_exactly_the_given_threads() {
        let cases: [&[u64]; 5] = [
            &[],
            &[7],
            &[1, 2, 3],
            &[1, 17, 33, 49, 2, u64::MAX],
            &[0, 1 << 40, 5, 1 << 50],
        ];
        for serials in cases {
            let index = ThreadIndex::new(serials.iter().copied());
            for (position, &serial) in serials.iter().enumerate() {
                assert_eq!(index.get(serial), Some(position), "{serial} of {serials:?}");
            }
            for unknown in [4, 65, 1 << 41, u64::MAX - 1] {
                assert_eq!(index.get(unknown), None, "{unknown} in {serials:?}");
            }
        }
    }
}
