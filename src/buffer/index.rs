//! Places in the buffer.

use std::num::NonZeroU64;

/// Where a block begins: its position among all bytes that were ever put, counted from 1.
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

/// Which chunk of a session, counted from 0; a recycled chunk gets a new number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct ChunkNumber(pub(crate) u64);
