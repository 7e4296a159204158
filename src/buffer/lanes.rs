//! The lanes of a buffer. Each stays where it is for as long as the buffer does, so that a writer can keep a reference.

use std::sync::OnceLock;

use crate::buffer::lane::Lane;

/// The first part has so many, and each next one twice as many as the one before.
const FIRST_PART: usize = 16;
const PARTS: usize = 24;

type Part = Box<[OnceLock<Box<Lane>>]>;

/// Lanes by their indices, made when they are first asked for.
#[derive(Debug)]
pub(super) struct Lanes {
    parts: [OnceLock<Part>; PARTS],
}

impl Lanes {
    pub(super) const fn new() -> Self {
        Self {
            parts: [const { OnceLock::new() }; PARTS],
        }
    }

    /// The lane with this index, which may be new. Under the buffer's lock.
    pub(super) fn get(&self, index: usize) -> &Lane {
        let place = index + FIRST_PART;
        let part = (place / FIRST_PART).ilog2();
        let length = FIRST_PART << part;
        let lanes = self.parts[part as usize]
            .get_or_init(|| (0..length).map(|_| OnceLock::new()).collect());
        lanes[place - length].get_or_init(|| Box::new(Lane::new(index)))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn each_index_has_a_lane_of_its_own_that_stays() {
        let lanes = Lanes::new();
        let all: Vec<&Lane> = (0..1000).map(|index| lanes.get(index)).collect();
        for (index, lane) in all.iter().enumerate() {
            assert_eq!(lane.index, index);
            assert!(std::ptr::eq(*lane, lanes.get(index)));
        }
    }
}
