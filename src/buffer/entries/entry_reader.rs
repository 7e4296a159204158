//! Decodes the fields of an entry. If the entry is too short, each method returns `None`; none of
//! them panics.

use crate::buffer::entries::entry_kind::EntryKind;
use crate::buffer::entries::leb128;

/// A cursor over one entry. It may peek at the bytes after the entry in its chunk, to decode a
/// number in one load, but never consumes them.
#[doc(alias = "ProfileBufferEntryReader")]
#[derive(Clone, Debug)]
pub(crate) struct EntryReader<'a> {
    /// The bytes from the next field on.
    bytes: &'a [u8],
    /// Number of these bytes that belong to the entry.
    left: usize,
}

impl<'a> EntryReader<'a> {
    pub(crate) const fn new(entry: &'a [u8]) -> Self {
        Self {
            bytes: entry,
            left: entry.len(),
        }
    }

    /// Returns a reader of the entry in the first `length` bytes, or `None` if there are fewer.
    #[inline(always)]
    pub(crate) fn at_front(bytes: &'a [u8], length: usize) -> Option<Self> {
        (length <= bytes.len()).then_some(Self {
            bytes,
            left: length,
        })
    }

    #[inline(always)]
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let left = self.left.checked_sub(count)?;
        let (taken, bytes) = self.bytes.split_at_checked(count)?;
        *self = Self { bytes, left };
        Some(taken)
    }

    /// Returns the number of bytes that are still to be read.
    pub(crate) fn left(&self) -> usize {
        self.left
    }

    #[inline]
    pub(crate) fn kind(&mut self) -> Option<EntryKind> {
        EntryKind::from_byte(self.byte()?)
    }

    #[inline(always)]
    pub(crate) fn number(&mut self) -> Option<u64> {
        let (number, count) = leb128::decode(self.bytes)?;
        self.take(count)?;
        Some(number)
    }

    #[inline(always)]
    pub(crate) fn signed(&mut self) -> Option<i64> {
        self.number().map(leb128::unzigzag)
    }

    #[inline(always)]
    pub(crate) fn byte(&mut self) -> Option<u8> {
        Some(*self.take(1)?.first()?)
    }

    /// Reads a number that `EntryCursor::large` wrote.
    #[inline(always)]
    pub(crate) fn large(&mut self) -> Option<u64> {
        let count = usize::from(self.byte()?);
        let word = self.bytes.first_chunk().copied();
        let taken = self.take(count)?;
        let unused_bits = u64::BITS.checked_sub(8 * count as u32)?;
        let number = match word {
            Some(word) => u64::from_le_bytes(word),
            // The last bytes of a chunk.
            None => {
                let mut word = [0; 8];
                word[..count].copy_from_slice(taken);
                u64::from_le_bytes(word)
            }
        };
        Some(number & u64::MAX.checked_shr(unused_bits).unwrap_or(0))
    }

    pub(crate) fn text(&mut self) -> Option<&'a [u8]> {
        let length = self.number()?;
        self.bytes(length)
    }

    /// Takes the remaining bytes of the entry.
    pub(crate) fn rest(&mut self) -> &'a [u8] {
        self.take(self.left).unwrap_or_default()
    }

    pub(crate) fn bytes(&mut self, length: u64) -> Option<&'a [u8]> {
        self.take(usize::try_from(length).ok()?)
    }
}
