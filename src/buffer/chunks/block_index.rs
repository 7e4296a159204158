//! Positions of blocks and numbers of chunks.

use std::num::NonZeroU64;

/// Position of a block's first byte, counted from 1 over all chunks that the session ever had.
#[doc(alias = "ProfileBufferBlockIndex")]
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct BlockIndex(NonZeroU64);

impl BlockIndex {
    pub(crate) const fn new(position: u64) -> Option<Self> {
        match NonZeroU64::new(position) {
            Some(position) => Some(Self(position)),
            None => None,
        }
    }

    pub(crate) const fn get(self) -> u64 {
        self.0.get()
    }
}

/// Number of a chunk within its session, counted from 0. A recycled chunk gets a new number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct ChunkNumber(pub(crate) u64);
