//! The lanes of a buffer. A lane never moves while its buffer exists, so that a writer can keep a
//! reference to it.

use crossbeam_utils::CachePadded;
use once_cell::race::OnceBox;

use crate::buffer::lane::Lane;

/// Number of lanes in the first part; each further part has twice as many as the one before.
const FIRST_PART: usize = 16;
const PARTS: usize = 24;

/// Each lane has its own cache lines, which prevents false sharing.
type Part = Box<[OnceBox<CachePadded<Lane>>]>;

/// Lanes by index, allocated on first use.
#[derive(Debug)]
pub(crate) struct Lanes {
    parts: [OnceBox<Part>; PARTS],
}

impl Lanes {
    pub(crate) const fn new() -> Self {
        Self {
            parts: [const { OnceBox::new() }; PARTS],
        }
    }

    /// Returns the lane with this index, allocating it if needed. The caller holds the buffer's
    /// lock.
    pub(crate) fn get(&self, index: usize) -> &Lane {
        let biased = index + FIRST_PART;
        let part = (biased / FIRST_PART).ilog2();
        let length = FIRST_PART << part;
        let lanes = self.parts[part as usize]
            .get_or_init(|| Box::new((0..length).map(|_| OnceBox::new()).collect()));
        lanes[biased - length].get_or_init(|| Box::new(CachePadded::new(Lane::new(index))))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn get_returns_one_fixed_lane_per_index() {
        let lanes = Lanes::new();
        let all: Vec<&Lane> = (0..1000).map(|index| lanes.get(index)).collect();
        for (index, lane) in all.iter().enumerate() {
            assert_eq!(lane.index, index);
            assert!(std::ptr::eq(*lane, lanes.get(index)));
        }
    }
}
