//! Encodes the fields of an entry, before it is put or directly into a chunk, and decodes them.
//!
//! The entry's length is computed before or after the entry is written to a chunk.

use crate::buffer::entries::entry_kind::EntryKind;
use crate::buffer::entries::leb128;

/// Data that can be put into the buffer.
pub(crate) trait Entry {
    /// Whether the encoded length is cheap to compute. If not, the entry is written first, and its
    /// length afterwards.
    const HAS_CHEAP_LENGTH: bool = true;

    /// Returns the number of bytes that [`Self::write`] writes, at least one. If
    /// [`Self::HAS_CHEAP_LENGTH`] is false, this is called only when the entry does not fit into
    /// the current chunk.
    fn bytes(&self) -> usize;

    /// Writes the entry's fields.
    fn write(&self, out: &mut EntryCursor<'_>);
}

impl<E: Entry> Entry for &E {
    const HAS_CHEAP_LENGTH: bool = E::HAS_CHEAP_LENGTH;

    #[inline(always)]
    fn bytes(&self) -> usize {
        E::bytes(self)
    }

    #[inline(always)]
    fn write(&self, out: &mut EntryCursor<'_>) {
        E::write(self, out);
    }
}

/// Arbitrary bytes, for tests.
#[cfg(test)]
impl Entry for &[u8] {
    fn bytes(&self) -> usize {
        self.len()
    }

    fn write(&self, out: &mut EntryCursor<'_>) {
        out.raw(self);
    }
}

/// Writes fields one after another directly into a chunk. A field that does not fit is left out,
/// and so are all fields after it.
#[derive(Debug)]
pub(crate) struct EntryCursor<'a> {
    rest: &'a mut [u8],
    is_overrun: bool,
}

impl<'a> EntryCursor<'a> {
    #[inline(always)]
    pub(crate) fn new(target: &'a mut [u8]) -> Self {
        Self {
            rest: target,
            is_overrun: false,
        }
    }

    /// Moves this cursor out, and leaves a cursor without space in its place.
    #[inline(always)]
    pub(crate) fn take(&mut self) -> Self {
        std::mem::replace(self, Self::new(&mut []))
    }

    /// Returns the number of bytes that are left.
    #[inline(always)]
    pub(crate) fn left(&self) -> usize {
        self.rest.len()
    }

    /// Returns whether a field did not fit.
    #[inline(always)]
    pub(crate) fn is_overrun(&self) -> bool {
        self.is_overrun
    }

    /// Writes bytes whose number is known at compile time.
    #[inline(always)]
    pub(crate) fn array<const N: usize>(&mut self, bytes: [u8; N]) {
        match std::mem::take(&mut self.rest).split_first_chunk_mut() {
            Some((target, rest)) => (*target, self.rest) = (bytes, rest),
            None => self.is_overrun = true,
        }
    }

    #[inline(always)]
    pub(crate) fn byte(&mut self, byte: u8) {
        self.array([byte]);
    }

    /// Writes a number as ULEB128.
    #[inline(always)]
    pub(crate) fn number(&mut self, number: u64) {
        if number < 0x80 {
            return self.byte(number as u8);
        }
        let mut coded = [0; leb128::MAX_BYTES];
        let length = leb128::encode(number, &mut coded);
        self.raw(&coded[..length]);
    }

    /// Writes a number that is rarely small: a byte with its length, then its little-endian bytes.
    #[inline(always)]
    pub(crate) fn large(&mut self, number: u64) {
        let bytes = large_bytes(number) - 1;
        self.byte(bytes as u8);
        self.raw(&number.to_le_bytes()[..bytes]);
    }

    /// Writes bytes as they are.
    #[inline(always)]
    pub(crate) fn raw(&mut self, bytes: &[u8]) {
        match std::mem::take(&mut self.rest).split_at_mut_checked(bytes.len()) {
            Some((target, rest)) => {
                copy(target, bytes);
                self.rest = rest;
            }
            None => self.is_overrun = true,
        }
    }
}

/// Returns the number of bytes that [`EntryCursor::number`] writes.
#[inline(always)]
pub(crate) const fn number_bytes(number: u64) -> usize {
    if number < 0x80 {
        1
    } else {
        (70 - number.leading_zeros() as usize) / 7
    }
}

/// Returns the number of bytes that [`EntryCursor::large`] writes.
#[inline(always)]
pub(crate) const fn large_bytes(number: u64) -> usize {
    1 + (71 - number.leading_zeros() as usize) / 8
}

/// Copies between slices of equal length. Most texts are short, and a call of `memcpy` takes longer
/// than copying them inline.
#[inline(always)]
fn copy(to: &mut [u8], from: &[u8]) {
    #[inline(always)]
    fn ends<const N: usize>(to: &mut [u8], from: &[u8]) {
        if let (Some(to), Some(from)) = (to.first_chunk_mut::<N>(), from.first_chunk()) {
            *to = *from;
        }
        if let (Some(to), Some(from)) = (to.last_chunk_mut::<N>(), from.last_chunk()) {
            *to = *from;
        }
    }
    match from.len() {
        33.. => to.copy_from_slice(from),
        16.. => ends::<16>(to, from),
        8.. => ends::<8>(to, from),
        4.. => ends::<4>(to, from),
        2.. => ends::<2>(to, from),
        _ => ends::<1>(to, from),
    }
}

/// Any number of fields, in a vector that is reused from entry to entry.
#[derive(Debug, Default)]
pub(crate) struct EntryWriter {
    bytes: Vec<u8>,
}

impl EntryWriter {
    /// Removes all fields and keeps the memory.
    pub(crate) fn clear(&mut self) -> &mut Self {
        self.bytes.clear();
        self
    }

    pub(crate) fn number(&mut self, number: u64) -> &mut Self {
        let mut coded = [0; leb128::MAX_BYTES];
        let length = leb128::encode(number, &mut coded);
        self.bytes.extend_from_slice(&coded[..length]);
        self
    }

    pub(crate) fn signed(&mut self, number: i64) -> &mut Self {
        self.number(leb128::zigzag(number))
    }

    pub(crate) fn byte(&mut self, byte: u8) -> &mut Self {
        self.bytes.push(byte);
        self
    }

    pub(crate) fn text(&mut self, text: &[u8]) -> &mut Self {
        self.number(text.len() as u64);
        self.bytes.extend_from_slice(text);
        self
    }

    /// Appends fields that are already encoded.
    pub(crate) fn raw(&mut self, coded: &[u8]) -> &mut Self {
        self.bytes.extend_from_slice(coded);
        self
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Makes space for this many numbers and other bytes. Returns false if the allocation fails.
    pub(crate) fn try_reserve(&mut self, numbers: usize, bytes: usize) -> bool {
        let more = numbers * leb128::MAX_BYTES + bytes;
        self.bytes.try_reserve(more).is_ok()
    }
}

/// The first fields of an entry, without heap memory: up to 8 numbers and up to 8 bytes.
#[derive(Debug)]
pub(crate) struct EntryHead {
    bytes: [u8; 8 * leb128::MAX_BYTES + 8],
    end: usize,
}

impl EntryHead {
    pub(crate) fn new(kind: EntryKind) -> Self {
        let mut head = Self {
            bytes: [0; 8 * leb128::MAX_BYTES + 8],
            end: 0,
        };
        head.byte(kind as u8);
        head
    }

    #[inline]
    pub(crate) fn byte(&mut self, byte: u8) -> &mut Self {
        self.bytes[self.end] = byte;
        self.end += 1;
        self
    }

    #[inline]
    pub(crate) fn number(&mut self, number: u64) -> &mut Self {
        if number < 0x80 {
            return self.byte(number as u8);
        }
        if let Some(target) = self.bytes[self.end..].first_chunk_mut() {
            self.end += leb128::encode(number, target);
        }
        self
    }

    pub(crate) fn signed(&mut self, number: i64) -> &mut Self {
        self.number(leb128::zigzag(number))
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.end]
    }

    /// Returns the entry that consists of this head and `tail`.
    pub(crate) fn with<'a>(&'a self, tail: &'a [u8]) -> HeadAndTail<'a> {
        HeadAndTail {
            head: self.bytes(),
            tail,
        }
    }
}

impl Entry for EntryHead {
    fn bytes(&self) -> usize {
        self.end
    }

    fn write(&self, out: &mut EntryCursor<'_>) {
        out.raw(Self::bytes(self));
    }
}

/// An entry in two pieces.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HeadAndTail<'a> {
    head: &'a [u8],
    tail: &'a [u8],
}

impl Entry for HeadAndTail<'_> {
    fn bytes(&self) -> usize {
        self.head.len() + self.tail.len()
    }

    fn write(&self, out: &mut EntryCursor<'_>) {
        out.raw(self.head);
        out.raw(self.tail);
    }
}

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
