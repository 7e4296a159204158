//! An entry on its way into a chunk: it says how long it is, or finds out by writing itself there.

use crate::buffer::leb128;

/// What can be put.
pub(crate) trait Entry {
    /// Whether it is easily said how long it is. One of which it is not is written first, and its length then.
    const IS_COUNTED: bool = true;

    /// How many bytes [`Self::write`] writes, at least one. Of one that is not counted it is asked only where it found no room.
    fn bytes(&self) -> usize;

    fn write(&self, out: &mut EntryCursor<'_>);
}

impl<E: Entry> Entry for &E {
    const IS_COUNTED: bool = E::IS_COUNTED;

    #[inline(always)]
    fn bytes(&self) -> usize {
        E::bytes(self)
    }

    #[inline(always)]
    fn write(&self, out: &mut EntryCursor<'_>) {
        E::write(self, out);
    }
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

/// Writes fields one after another, where they are to be read. What finds no room is left out, and all after it.
#[derive(Debug)]
pub(crate) struct EntryCursor<'a> {
    rest: &'a mut [u8],
    is_overrun: bool,
}

impl<'a> EntryCursor<'a> {
    #[inline(always)]
    pub(crate) fn new(place: &'a mut [u8]) -> Self {
        Self {
            rest: place,
            is_overrun: false,
        }
    }

    /// This, and in its place one without room.
    #[inline(always)]
    pub(crate) fn take(&mut self) -> Self {
        std::mem::replace(self, Self::new(&mut []))
    }

    /// How many bytes are left.
    #[inline(always)]
    pub(crate) fn left(&self) -> usize {
        self.rest.len()
    }

    /// Whether something found no room.
    #[inline(always)]
    pub(crate) fn is_overrun(&self) -> bool {
        self.is_overrun
    }

    /// Bytes of a length that is known when this is compiled.
    #[inline(always)]
    pub(crate) fn array<const N: usize>(&mut self, bytes: [u8; N]) {
        match std::mem::take(&mut self.rest).split_first_chunk_mut() {
            Some((place, rest)) => (*place, self.rest) = (bytes, rest),
            None => self.is_overrun = true,
        }
    }

    #[inline(always)]
    pub(crate) fn byte(&mut self, byte: u8) {
        self.array([byte]);
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
        self.raw(&number.to_le_bytes()[..bytes]);
    }

    #[inline(always)]
    pub(crate) fn raw(&mut self, bytes: &[u8]) {
        match std::mem::take(&mut self.rest).split_at_mut_checked(bytes.len()) {
            Some((place, rest)) => {
                copy(place, bytes);
                self.rest = rest;
            }
            None => self.is_overrun = true,
        }
    }
}

/// How many bytes [`EntryCursor::number`] writes.
#[inline(always)]
pub(crate) const fn number_bytes(number: u64) -> usize {
    if number < 0x80 {
        1
    } else {
        (70 - number.leading_zeros() as usize) / 7
    }
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
        33.. => to.copy_from_slice(from),
        16.. => ends::<16>(to, from),
        8.. => ends::<8>(to, from),
        4.. => ends::<4>(to, from),
        2.. => ends::<2>(to, from),
        _ => ends::<1>(to, from),
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::buffer::entry_reader::EntryReader;

    #[test]
    fn numbers_take_the_bytes_that_are_told() {
        let powers = (0..64)
            .flat_map(|bits| [(1u64 << bits) - 1, 1 << bits])
            .chain([u64::MAX]);
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
            assert_eq!(
                (reader.number(), reader.large()),
                (Some(number), Some(number))
            );
        }
    }

    #[test]
    fn texts_of_all_lengths_are_copied_and_what_has_no_room_is_left_out() {
        let text: Vec<u8> = (0..100).collect();
        for length in 0..100 {
            let mut place = [0xee; 100];
            EntryCursor::new(&mut place).raw(&text[..length]);
            assert_eq!(
                (&place[..length], place.get(length)),
                (&text[..length], Some(&0xee))
            );
        }
        let mut place = [0; 4];
        let mut cursor = EntryCursor::new(&mut place);
        cursor.raw(&text[..5]);
        cursor.byte(1);
        cursor.large(u64::MAX);
        assert_eq!(
            (cursor.left(), cursor.is_overrun(), place),
            (0, true, [0; 4])
        );
        let mut cursor = EntryCursor::new(&mut place);
        cursor.array([1, 2, 3, 4]);
        assert_eq!((cursor.left(), cursor.is_overrun()), (0, false));
        cursor.array([]);
        assert!(!cursor.is_overrun(), "nothing has room everywhere");
        cursor.byte(5);
        assert!(cursor.is_overrun() && place == [1, 2, 3, 4]);
    }
}
