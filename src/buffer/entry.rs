//! An entry on its way into a chunk: it says how long it is, and writes itself there.

use crate::buffer::leb128;

/// What can be put.
pub(crate) trait Entry {
    /// How many bytes [`Self::write`] writes, at least one.
    fn bytes(&self) -> usize;

    fn write(&self, out: &mut EntryCursor<'_>);
}

/// For tests: bytes that say nothing.
#[cfg(test)]
impl Entry for &[u8] {
    fn bytes(&self) -> usize {
        self.len()
    }

    fn write(&self, out: &mut EntryCursor<'_>) {
        out.raw(self);
    }
}

/// Writes fields one after another, where they are to be read. What finds no room is left out: an entry has just the room that
/// it asked for.
#[derive(Debug)]
pub(crate) struct EntryCursor<'a> {
    rest: &'a mut [u8],
}

impl<'a> EntryCursor<'a> {
    pub(super) fn new(place: &'a mut [u8]) -> Self {
        Self { rest: place }
    }

    /// How many bytes are left.
    pub(super) fn left(&self) -> usize {
        self.rest.len()
    }

    fn advance(&mut self, bytes: usize) {
        let rest = std::mem::take(&mut self.rest);
        self.rest = rest.get_mut(bytes..).unwrap_or_default();
    }

    #[inline(always)]
    pub(crate) fn byte(&mut self, byte: u8) {
        if let Some(place) = self.rest.first_mut() {
            *place = byte;
        }
        self.advance(1);
    }

    #[inline(always)]
    pub(crate) fn number(&mut self, number: u64) {
        if number < 0x80 {
            return self.byte(number as u8);
        }
        let mut coded = [0; leb128::MAX_BYTES];
        let length = leb128::encode(number, &mut coded);
        self.raw(&coded[..length]);
    }

    /// A number that is rarely small: how many bytes it takes, and these.
    #[inline(always)]
    pub(crate) fn large(&mut self, number: u64) {
        let bytes = large_bytes(number) - 1;
        self.byte(bytes as u8);
        match self.rest.first_chunk_mut() {
            // At once, over what the next field writes over.
            Some(place) => {
                *place = number.to_le_bytes();
                self.advance(bytes);
            }
            None => self.raw(&number.to_le_bytes()[..bytes]),
        }
    }

    #[inline(always)]
    pub(crate) fn raw(&mut self, bytes: &[u8]) {
        if let Some(place) = self.rest.get_mut(..bytes.len()) {
            copy(place, bytes);
        }
        self.advance(bytes.len());
    }
}

/// How many bytes [`EntryCursor::number`] writes.
#[inline(always)]
pub(crate) const fn number_bytes(number: u64) -> usize {
    (70 - (number | 1).leading_zeros() as usize) / 7
}

/// How many bytes [`EntryCursor::large`] writes.
#[inline(always)]
pub(crate) const fn large_bytes(number: u64) -> usize {
    1 + (71 - number.leading_zeros() as usize) / 8
}

/// Between places of one length. Most texts are short, and calling a function to copy them takes longer than copying them.
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
        0 => {}
        1..=3 => to.iter_mut().zip(from).for_each(|(to, from)| *to = *from),
        4..=7 => ends::<4>(to, from),
        8..=15 => ends::<8>(to, from),
        16..=32 => ends::<16>(to, from),
        _ => to.copy_from_slice(from),
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::buffer::entry_reader::EntryReader;

    #[test]
    fn numbers_take_the_bytes_that_are_told() {
        let powers = (0..64).flat_map(|bits| [(1u64 << bits) - 1, 1 << bits]).chain([u64::MAX]);
        for number in powers {
            // With room to spare and without.
            for spare in [0, 20] {
                let mut place = [0xee; 40];
                let mut cursor = EntryCursor::new(&mut place[..number_bytes(number) + spare]);
                cursor.number(number);
                assert_eq!(cursor.left(), spare, "{number}");
                let mut cursor = EntryCursor::new(&mut place[..large_bytes(number) + spare]);
                cursor.large(number);
                assert_eq!(cursor.left(), spare, "{number}");
            }
            let mut place = [0; 20];
            let mut cursor = EntryCursor::new(&mut place);
            cursor.number(number);
            cursor.large(number);
            let mut reader = EntryReader::new(&place);
            assert_eq!((reader.number(), reader.large()), (Some(number), Some(number)));
        }
    }

    #[test]
    fn texts_of_all_lengths_are_copied_and_what_has_no_room_is_left_out() {
        let text: Vec<u8> = (0..100).collect();
        for length in 0..100 {
            let mut place = [0xee; 100];
            EntryCursor::new(&mut place).raw(&text[..length]);
            assert_eq!((&place[..length], place.get(length)), (&text[..length], Some(&0xee)));
        }
        let mut place = [0; 4];
        let mut cursor = EntryCursor::new(&mut place);
        cursor.raw(&text[..5]);
        cursor.byte(1);
        cursor.large(u64::MAX);
        assert_eq!((cursor.left(), place), (0, [0; 4]));
    }
}
