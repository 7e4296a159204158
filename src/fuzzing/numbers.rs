//! Numbers in the buffer.

use crate::buffer::{EntryHead, EntryKind, EntryReader, EntryWriter, unzigzag, zigzag};

/// Any bytes are numbers, or are none, as the definition has it; and any number takes the bytes that it needs.
pub fn check_leb128(input: &[u8]) {
    let mut reader = EntryReader::new(input);
    let mut rest = input;
    loop {
        let expected = decoded_by_definition(rest);
        let number = reader.number();
        assert_eq!(number, expected.map(|(number, _)| number));
        let (Some(number), Some((_, bytes))) = (number, expected) else { break };
        rest = &rest[bytes..];
        check_round_trip(number);
        assert_eq!(unzigzag(zigzag(number as i64)), number as i64);
        assert_eq!(zigzag(unzigzag(number)), number);
    }
    for word in input.chunks(8) {
        let number = word.iter().fold(0, |number, &byte| number << 8 | u64::from(byte));
        check_round_trip(number);
    }
    let mut reader = EntryReader::new(input);
    while reader.text().is_some() {}
}

/// The number at the front, and how many bytes it has.
fn decoded_by_definition(bytes: &[u8]) -> Option<(u64, usize)> {
    let length = bytes.iter().position(|byte| byte & 0x80 == 0)? + 1;
    let number = bytes[..length].iter().rev().try_fold(0u128, |number, byte| {
        let number = number << 7 | u128::from(byte & 0x7f);
        (number < 1 << 100).then_some(number)
    })?;
    Some((u64::try_from(number).ok().filter(|_| length <= 10)?, length))
}

fn check_round_trip(number: u64) {
    let bits = (64 - number.leading_zeros() as usize).max(1);
    let mut writer = EntryWriter::default();
    writer.number(number);
    assert_eq!(writer.bytes().len(), bits.div_ceil(7), "{number}");
    assert_eq!(decoded_by_definition(writer.bytes()), Some((number, writer.bytes().len())));
    writer.signed(number as i64).byte(7);
    let head = EntryHead::new(EntryKind::Marker).number(number).signed(number as i64).byte(7);
    assert_eq!(&head.bytes()[1..], writer.bytes(), "both writers write the same");
    let mut reader = EntryReader::new(writer.bytes());
    assert_eq!((reader.number(), reader.signed()), (Some(number), Some(number as i64)));
    assert_eq!((reader.byte(), reader.byte()), (Some(7), None));
}
