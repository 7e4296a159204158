//! A table of unique strings.

use std::borrow::Cow;

use crate::json::writer::JsonWriter;
use crate::util::{Search, UniqueIndex};

/// The index of a string in its table.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(crate) struct StringIndex(pub(crate) u32);

/// Unique strings in the order of their first use.
///
/// The table refers to strings that live at least as long as the table, and copies only the others.
/// So the texts of a profile's markers are not held twice.
#[doc(alias = "UniqueJSONStrings")]
#[derive(Debug, Default)]
pub(crate) struct UniqueStrings<'a> {
    index: UniqueIndex,
    list: StringList<'a>,
}

/// A list of strings: copies in the list, and references to strings elsewhere.
#[derive(Debug, Default)]
struct StringList<'a> {
    strings: Vec<Stored<'a>>,
    /// The copied strings, one after another.
    copies: String,
    /// The end of each copy in `copies`.
    copy_ends: Vec<usize>,
}

/// The place of a string.
#[derive(Clone, Copy, Debug)]
enum Stored<'a> {
    Elsewhere(&'a str),
    /// The number of the copy.
    Copied(u32),
}

// A profile may have millions of strings.
const _: () = assert!(size_of::<Stored<'_>>() == size_of::<&str>());

impl<'a> StringList<'a> {
    fn get(&self, stored: Stored<'a>) -> &str {
        match stored {
            Stored::Elsewhere(string) => string,
            Stored::Copied(number) => {
                let number = number as usize;
                let start = number.checked_sub(1).map_or(0, |last| self.copy_ends[last]);
                &self.copies[start..self.copy_ends[number]]
            }
        }
    }

    fn push_copy(&mut self, string: &str) {
        self.strings
            .push(Stored::Copied(self.copy_ends.len() as u32));
        self.copies.push_str(string);
        self.copy_ends.push(self.copies.len());
    }
}

impl<'a> UniqueStrings<'a> {
    /// Returns the index of the string, and adds a copy of the string if it is new.
    #[doc(alias = "GetOrAddIndex")]
    pub(crate) fn intern(&mut self, string: &str) -> StringIndex {
        self.find_or_push(string, |list| list.push_copy(string))
    }

    /// Returns the index of the string, and adds a reference to the string if it is new.
    pub(crate) fn intern_shared(&mut self, string: &'a str) -> StringIndex {
        self.find_or_push(string, |list| list.strings.push(Stored::Elsewhere(string)))
    }

    /// Returns the index of the string, and adds a reference to a borrowed string or a copy of an
    /// owned one if it is new.
    pub(crate) fn intern_cow(&mut self, string: Cow<'a, str>) -> StringIndex {
        match string {
            Cow::Borrowed(string) => self.intern_shared(string),
            Cow::Owned(string) => self.intern(&string),
        }
    }

    fn find_or_push(
        &mut self,
        string: &str,
        push: impl FnOnce(&mut StringList<'a>),
    ) -> StringIndex {
        let Self { index, list } = self;
        let is_at = |at: u32| list.get(list.strings[at as usize]) == string;
        match index.search(string.as_bytes(), is_at) {
            Search::Found(position) => StringIndex(position),
            Search::Missing(slot) => {
                let position = list.strings.len() as u32;
                push(list);
                slot.fill(position);
                StringIndex(position)
            }
        }
    }

    /// Returns how much memory the table takes if all its parts double, in bytes. While a part
    /// grows, its old memory is still in use.
    pub(crate) fn growth_bytes(&self) -> usize {
        /// A string, the end of its copy, and its place in the index.
        const STRING_BYTES: usize = 64;
        STRING_BYTES * self.list.strings.len() + 2 * self.list.copies.len()
    }

    /// Writes the table as an array.
    #[doc(alias = "SpliceStringTableElements")]
    pub(crate) fn write(&self, json: &mut JsonWriter<'_>) {
        json.array(|json| {
            for &stored in &self.list.strings {
                json.string(self.list.get(stored));
            }
        });
    }
}

/// The cases are those of Gecko's `TestUniqueJSONStrings`.
#[cfg(test)]
mod tests {
    use super::*;

    fn written(strings: &UniqueStrings<'_>) -> String {
        let mut out = Vec::new();
        let mut json = JsonWriter::new(&mut out);
        strings.write(&mut json);
        json.finish().expect("a vector never fails");
        String::from_utf8(out).expect("UTF-8")
    }

    #[test]
    fn empty_table_is_an_empty_array() {
        assert_eq!(written(&UniqueStrings::default()), "[]");
    }

    #[test]
    fn repeated_string_keeps_its_index() {
        let mut strings = UniqueStrings::default();
        let first = strings.intern("a");
        assert_eq!(first, StringIndex(0));
        assert_eq!(
            (strings.intern("b"), strings.intern("a")),
            (StringIndex(1), first)
        );
        assert_eq!(written(&strings), r#"["a","b"]"#);
        assert_eq!(
            (strings.intern(""), strings.intern("b")),
            (StringIndex(2), StringIndex(1))
        );
        assert_eq!(
            written(&strings),
            r#"["a","b",""]"#,
            "the table grows after it was written"
        );
    }

    #[test]
    fn strings_with_similar_escapes_are_distinct() {
        let mut strings = UniqueStrings::default();
        let texts = ["\n", "\\n", "\"", "\\\"", "é", "e\u{301}", "\0", " "];
        let indices = texts.map(|text| strings.intern(text).0);
        assert_eq!(indices, [0, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(
            serde_json::from_str::<Vec<String>>(&written(&strings)).expect("JSON"),
            texts
        );
    }

    #[test]
    fn shared_copied_and_owned_strings_are_equal_if_their_text_is() {
        let outliving = ["one".to_owned(), "two\n".to_owned(), String::new()];
        let mut strings = UniqueStrings::default();
        let first = [
            strings.intern_shared(&outliving[0]),
            strings.intern("three"),
            strings.intern_cow(Cow::Borrowed(&outliving[1])),
            strings.intern_cow(Cow::Owned("four".to_owned())),
            strings.intern(""),
        ];
        assert_eq!(first.map(|index| index.0), [0, 1, 2, 3, 4]);
        let again = [
            strings.intern("one"),
            strings.intern_cow(Cow::Owned("three".to_owned())),
            strings.intern("two\n"),
            strings.intern_shared("four"),
            strings.intern_shared(&outliving[2]),
        ];
        assert_eq!(again, first);
        assert_eq!(written(&strings), r#"["one","three","two\n","four",""]"#);
    }

    #[test]
    fn two_tables_are_independent() {
        let (mut one, mut other) = (UniqueStrings::default(), UniqueStrings::default());
        one.intern("only here");
        assert_eq!(
            (other.intern("there"), written(&other).as_str()),
            (StringIndex(0), r#"["there"]"#)
        );
        let long: Vec<String> = (0..10_000)
            .map(|number| format!("string {number}"))
            .collect();
        long.iter().for_each(|string| _ = one.intern(string));
        let read: Vec<String> = serde_json::from_str(&written(&one)).expect("JSON");
        assert_eq!(
            (read.len(), &read[0], &read[1..]),
            (10_001, &"only here".to_owned(), &long[..])
        );
    }
}
