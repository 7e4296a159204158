//! Encodes an entry into a chunk. The entry's length is computed before or after the entry is
//! written.

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
