//! Tests that entries are read back as they were written, whole or cut.

use crate::buffer::entries::entry::{
    Entry, EntryCursor, EntryHead, EntryReader, EntryWriter, large_bytes, number_bytes,
};
use crate::buffer::entries::entry_kind::EntryKind;

#[test]
fn numbers_take_as_many_bytes_as_computed() {
    let powers = (0..64)
        .flat_map(|bits| [(1u64 << bits) - 1, 1 << bits])
        .chain([u64::MAX]);
    for number in powers {
        // With and without spare bytes.
        for spare in [0, 20] {
            let mut target = [0xee; 40];
            let mut cursor = EntryCursor::new(&mut target[..number_bytes(number) + spare]);
            cursor.number(number);
            assert_eq!(cursor.left(), spare, "{number}");
            let mut cursor = EntryCursor::new(&mut target[..large_bytes(number) + spare]);
            cursor.large(number);
            assert_eq!(cursor.left(), spare, "{number}");
        }
        let mut target = [0; 20];
        let mut cursor = EntryCursor::new(&mut target);
        cursor.number(number);
        cursor.large(number);
        let mut reader = EntryReader::new(&target);
        assert_eq!(
            (reader.number(), reader.large()),
            (Some(number), Some(number))
        );
    }
}

#[test]
fn raw_copies_texts_of_all_lengths_and_leaves_out_what_does_not_fit() {
    let text: Vec<u8> = (0..100).collect();
    for length in 0..100 {
        let mut target = [0xee; 100];
        EntryCursor::new(&mut target).raw(&text[..length]);
        assert_eq!(
            (&target[..length], target.get(length)),
            (&text[..length], Some(&0xee))
        );
    }
    let mut target = [0; 4];
    let mut cursor = EntryCursor::new(&mut target);
    cursor.raw(&text[..5]);
    cursor.byte(1);
    cursor.large(u64::MAX);
    assert_eq!(
        (cursor.left(), cursor.is_overrun(), target),
        (0, true, [0; 4])
    );
    let mut cursor = EntryCursor::new(&mut target);
    cursor.array([1, 2, 3, 4]);
    assert_eq!((cursor.left(), cursor.is_overrun()), (0, false));
    cursor.array([]);
    assert!(!cursor.is_overrun(), "no bytes always fit");
    cursor.byte(5);
    assert!(cursor.is_overrun() && target == [1, 2, 3, 4]);
}

#[test]
fn head_holds_its_maximum_number_of_fields() {
    let mut head = EntryHead::new(EntryKind::Sample);
    (0..7).for_each(|_| _ = head.number(u64::MAX).byte(7));
    head.signed(i64::MIN);
    let entry = head.with(b"tail");
    let mut target = vec![0; Entry::bytes(&entry)];
    entry.write(&mut EntryCursor::new(&mut target));
    let mut reader = EntryReader::new(&target);
    assert_eq!(reader.kind(), Some(EntryKind::Sample));
    assert!((0..7).all(|_| reader.number() == Some(u64::MAX) && reader.byte() == Some(7)));
    assert_eq!(
        (reader.signed(), reader.bytes(4), reader.byte()),
        (Some(i64::MIN), Some(&b"tail"[..]), None)
    );
}

type Fields<'a> = (EntryKind, u64, u8, i64, &'a [u8], u64);

fn read(mut reader: EntryReader<'_>) -> Option<Fields<'_>> {
    Some((
        reader.kind()?,
        reader.number()?,
        reader.byte()?,
        reader.signed()?,
        reader.text()?,
        reader.number()?,
    ))
}

#[test]
fn fields_of_a_whole_entry_read_back_and_a_cut_entry_returns_none() {
    let mut head = EntryHead::new(EntryKind::Marker);
    head.number(300).byte(7).signed(-5);
    let mut tail = EntryWriter::default();
    tail.text(b"name").number(u64::MAX);
    let entry = [head.bytes(), tail.bytes()].concat();
    assert_eq!(
        read(EntryReader::new(&entry)),
        Some((EntryKind::Marker, 300, 7, -5, &b"name"[..], u64::MAX))
    );
    let read_at_front = |length| EntryReader::at_front(&entry, length).and_then(read);
    for length in 0..entry.len() {
        assert_eq!(read(EntryReader::new(&entry[..length])), None);
        assert_eq!(
            read_at_front(length),
            None,
            "bytes after the entry are not consumed"
        );
    }
    assert!(read_at_front(entry.len()).is_some() && read_at_front(entry.len() + 1).is_none());
}
