//! Takes the fields of an entry apart. Every step can find the entry too short, which is `None`, never a panic.

use crate::buffer::entry_kind::EntryKind;
use crate::buffer::leb128;

/// A cursor over one entry.
#[doc(alias = "ProfileBufferEntryReader")]
#[derive(Clone, Debug)]
pub(crate) struct EntryReader<'a> {
    rest: &'a [u8],
}

impl<'a> EntryReader<'a> {
    pub(crate) const fn new(entry: &'a [u8]) -> Self {
        Self { rest: entry }
    }

    #[inline]
    pub(crate) fn kind(&mut self) -> Option<EntryKind> {
        EntryKind::from_byte(self.byte()?)
    }

    #[inline]
    pub(crate) fn number(&mut self) -> Option<u64> {
        leb128::decode(&mut self.rest)
    }

    #[inline]
    pub(crate) fn signed(&mut self) -> Option<i64> {
        self.number().map(leb128::unzigzag)
    }

    #[inline]
    pub(crate) fn byte(&mut self) -> Option<u8> {
        let (&byte, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(byte)
    }

    /// What [`EntryCursor::large`](crate::buffer::EntryCursor::large) writes.
    pub(crate) fn large(&mut self) -> Option<u64> {
        let count = usize::from(self.byte()?);
        let (coded, rest) = self.rest.split_at_checked(count)?;
        let mut bytes = [0; 8];
        bytes.get_mut(..count)?.copy_from_slice(coded);
        self.rest = rest;
        Some(u64::from_le_bytes(bytes))
    }

    pub(crate) fn text(&mut self) -> Option<&'a [u8]> {
        let length = self.number()?;
        self.bytes(length)
    }

    pub(crate) fn bytes(&mut self, length: u64) -> Option<&'a [u8]> {
        let (bytes, rest) = self.rest.split_at_checked(usize::try_from(length).ok()?)?;
        self.rest = rest;
        Some(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffer::entry_writer::{EntryHead, EntryWriter};

    #[test]
    fn fields_read_back_and_a_cut_entry_ends_in_none() {
        let mut head = EntryHead::new(EntryKind::Marker);
        head.number(300).byte(7).signed(-5);
        let mut tail = EntryWriter::default();
        tail.text(b"name").number(u64::MAX);
        let entry = [head.bytes(), tail.bytes()].concat();
        let read = |bytes| {
            let mut reader = EntryReader::new(bytes);
            Some((
                reader.kind()?,
                reader.number()?,
                reader.byte()?,
                reader.signed()?,
                reader.text()?,
                reader.number()?,
            ))
        };
        assert_eq!(read(&entry), Some((EntryKind::Marker, 300, 7, -5, &b"name"[..], u64::MAX)));
        for length in 0..entry.len() {
            assert_eq!(read(&entry[..length]), None);
        }
    }
}
