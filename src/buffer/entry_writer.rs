//! Codes the fields of an entry.

use crate::buffer::entry_kind::EntryKind;
use crate::buffer::leb128;

/// Fields of any number, in a vector that is kept from entry to entry.
#[derive(Debug, Default)]
pub(crate) struct EntryWriter {
    bytes: Vec<u8>,
}

impl EntryWriter {
    /// Forgets what was there, keeps its memory.
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

    /// What is coded already.
    pub(crate) fn raw(&mut self, coded: &[u8]) -> &mut Self {
        self.bytes.extend_from_slice(coded);
        self
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// A few fields without the heap: at most 8 numbers and as many bytes.
#[derive(Debug)]
pub(crate) struct EntryHead {
    bytes: [u8; 8 * leb128::MAX_BYTES + 8],
    length: usize,
}

impl EntryHead {
    pub(crate) fn new(kind: EntryKind) -> Self {
        let mut bytes = [0; 8 * leb128::MAX_BYTES + 8];
        bytes[0] = kind as u8;
        Self { bytes, length: 1 }
    }

    /// Fields that are not at an entry's beginning.
    pub(crate) fn bare() -> Self {
        Self { bytes: [0; 8 * leb128::MAX_BYTES + 8], length: 0 }
    }

    pub(crate) fn number(mut self, number: u64) -> Self {
        let mut coded = [0; leb128::MAX_BYTES];
        let length = leb128::encode(number, &mut coded);
        self.bytes[self.length..self.length + length].copy_from_slice(&coded[..length]);
        self.length += length;
        self
    }

    pub(crate) fn signed(self, number: i64) -> Self {
        self.number(leb128::zigzag(number))
    }

    pub(crate) fn byte(mut self, byte: u8) -> Self {
        self.bytes[self.length] = byte;
        self.length += 1;
        self
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}
