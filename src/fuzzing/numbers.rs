//! Fuzzes the encoding of numbers and texts in the buffer.

use crate::buffer::{
    ChunkedBuffer, Entry, EntryCursor, EntryHead, EntryKind, EntryReader, EntryWriter, large_bytes,
    number_bytes, unzigzag, zigzag,
};
use crate::types::TimeStamp;

/// An entry with a number in both encodings, and raw bytes.
struct Coded<'a> {
    number: u64,
    text: &'a [u8],
}

impl Entry for Coded<'_> {
    fn bytes(&self) -> usize {
        number_bytes(self.number) + large_bytes(self.number) + self.text.len()
    }

    fn write(&self, out: &mut EntryCursor<'_>) {
        out.number(self.number);
        out.large(self.number);
        out.raw(self.text);
    }
}

/// Checks that any bytes decode to the numbers that the definition of the encoding gives, or are
/// rejected as it requires. Also checks that each number is encoded in minimal length and survives
/// the buffer.
pub fn check_leb128(input: &[u8]) {
    let (mut reader, mut rest) = (EntryReader::new(input), input);
    loop {
        let expected = decoded_by_definition(rest);
        let number = reader.number();
        assert_eq!(number, expected.map(|(number, _)| number));
        let (Some(number), Some((_, bytes))) = (number, expected) else {
            break;
        };
        rest = &rest[bytes..];
        check_round_trip(number);
        assert_eq!(unzigzag(zigzag(number as i64)), number as i64);
        assert_eq!(zigzag(unzigzag(number)), number);
    }
    let (mut reader, mut rest) = (EntryReader::new(input), input);
    loop {
        let expected = large_by_definition(rest);
        assert_eq!(reader.large(), expected.map(|(number, _)| number));
        let Some((_, bytes)) = expected else { break };
        rest = &rest[bytes..];
    }
    let mut reader = EntryReader::new(input);
    while reader.text().is_some() {}
    check_in_buffer(input);
}

/// Decodes the ULEB128 number at the front in the most literal way, and returns it with its length.
fn decoded_by_definition(bytes: &[u8]) -> Option<(u64, usize)> {
    let length = bytes.iter().position(|byte| byte & 0x80 == 0)? + 1;
    let number = bytes[..length]
        .iter()
        .rev()
        .try_fold(0u128, |number, byte| {
            let number = number << 7 | u128::from(byte & 0x7f);
            (number < 1 << 100).then_some(number)
        })?;
    Some((u64::try_from(number).ok().filter(|_| length <= 10)?, length))
}

/// Decodes the number with a length prefix at the front in the most literal way, and returns it
/// with its length.
fn large_by_definition(bytes: &[u8]) -> Option<(u64, usize)> {
    let (&length, rest) = bytes.split_first()?;
    let coded = rest.get(..length.into()).filter(|coded| coded.len() <= 8)?;
    let number = coded
        .iter()
        .rev()
        .fold(0, |number, &byte| number << 8 | u64::from(byte));
    Some((number, 1 + coded.len()))
}

fn check_round_trip(number: u64) {
    let bits = (64 - number.leading_zeros() as usize).max(1);
    let mut writer = EntryWriter::default();
    writer.number(number);
    assert_eq!(
        (writer.bytes().len(), number_bytes(number)),
        (bits.div_ceil(7), bits.div_ceil(7)),
        "{number}"
    );
    assert_eq!(
        decoded_by_definition(writer.bytes()),
        Some((number, writer.bytes().len()))
    );
    writer.signed(number as i64).byte(7);
    let mut head = EntryHead::new(EntryKind::Marker);
    head.number(number).signed(number as i64).byte(7);
    assert_eq!(&head.bytes()[1..], writer.bytes(), "both writers agree");
    let mut reader = EntryReader::new(writer.bytes());
    assert_eq!(
        (reader.number(), reader.signed()),
        (Some(number), Some(number as i64))
    );
    assert_eq!((reader.byte(), reader.byte()), (Some(7), None));
}

/// Puts the numbers in these bytes into a buffer, each with a part of the bytes as text, and reads
/// them back.
fn check_in_buffer(input: &[u8]) {
    let buffer = ChunkedBuffer::for_test(1 << 20);
    let lane = buffer.take_lane();
    let entries: Vec<_> = input
        .chunks(8)
        .enumerate()
        .take(500)
        .map(|(index, word)| {
            let number = word
                .iter()
                .fold(0, |number, &byte| number << 8 | u64::from(byte));
            check_round_trip(number);
            Coded {
                number,
                text: &input[..index.min(input.len())],
            }
        })
        .collect();
    for entry in &entries {
        lane.put(ChunkedBuffer::TEST_SESSION, TimeStamp(0), entry)
            .expect("space");
    }
    let snapshot = buffer.snapshot();
    let mut blocks = snapshot.chunks().flatten();
    for Coded { number, text } in entries {
        let mut entry = blocks.next().expect("an entry").expect("well formed").entry;
        assert_eq!(
            (entry.number(), entry.large()),
            (Some(number), Some(number))
        );
        assert_eq!(
            (entry.bytes(text.len() as u64), entry.byte()),
            (Some(text), None)
        );
    }
    assert!(blocks.next().is_none());
}
