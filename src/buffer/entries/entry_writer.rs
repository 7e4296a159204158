//! Encodes the fields of an entry before it is put.

use crate::buffer::entries::entry::{Entry, EntryCursor};
use crate::buffer::entries::entry_kind::EntryKind;
use crate::buffer::entries::leb128;

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
