//! Which of a profile's threads an entry is of.

use crate::base::NumberMap;

/// The places of threads in a profile, by their serial numbers.
#[derive(Debug)]
pub(super) struct ThreadPlaces {
    /// A power of two of them, each with a serial number and its place, or without. Threads that were registered one after
    /// another lie side by side, and are found without a hash.
    near: Vec<Option<(u64, usize)>>,
    /// Those whose place in `near` another one has.
    far: NumberMap<usize>,
}

impl ThreadPlaces {
    /// Of these serial numbers, in the order of the profile.
    pub(super) fn new(serials: impl ExactSizeIterator<Item = u64>) -> Self {
        let slots = (serials.len() * 4).next_power_of_two();
        let mut places = Self {
            near: vec![None; slots],
            far: NumberMap::default(),
        };
        for (place, serial) in serials.enumerate() {
            let slot = places.slot(serial);
            match &mut places.near[slot] {
                Some(_) => _ = places.far.insert(serial, place),
                free => *free = Some((serial, place)),
            }
        }
        places
    }

    fn slot(&self, serial: u64) -> usize {
        serial as usize & (self.near.len() - 1)
    }

    #[inline]
    pub(super) fn get(&self, serial: u64) -> Option<usize> {
        match self.near[self.slot(serial)] {
            Some((near, place)) if near == serial => Some(place),
            _ if self.far.is_empty() => None,
            _ => self.far.get(&serial).copied(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_thread_is_found_and_nobody_else() {
        let cases: [&[u64]; 5] = [
            &[],
            &[7],
            &[1, 2, 3],
            &[1, 17, 33, 49, 2, u64::MAX],
            &[0, 1 << 40, 5, 1 << 50],
        ];
        for serials in cases {
            let places = ThreadPlaces::new(serials.iter().copied());
            for (place, &serial) in serials.iter().enumerate() {
                assert_eq!(places.get(serial), Some(place), "{serial} of {serials:?}");
            }
            for stranger in [4, 65, 1 << 41, u64::MAX - 1] {
                assert_eq!(places.get(stranger), None, "{stranger} in {serials:?}");
            }
        }
    }
}
