//! A table of unique strings.

use std::collections::HashMap;

use crate::json::escape::escape;
use crate::json::writer::JsonWriter;

/// The index of a string in its table.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(crate) struct StringIndex(pub(crate) u32);

/// Unique strings in the order of their first use. Each is escaped when it is added.
#[doc(alias = "UniqueJSONStrings")]
#[derive(Debug, Default)]
pub(crate) struct UniqueStrings {
    indices: HashMap<Box<str>, StringIndex>,
    /// The elements of the table as JSON, separated by commas.
    elements: Vec<u8>,
}

impl UniqueStrings {
    /// Returns the index of the string, and adds the string if it is new.
    #[doc(alias = "GetOrAddIndex")]
    pub(crate) fn intern(&mut self, string: &str) -> StringIndex {
        if let Some(&index) = self.indices.get(string) {
            return index;
        }
        let index = StringIndex(self.indices.len() as u32);
        self.indices.insert(string.into(), index);
        self.elements
            .extend_from_slice(if index.0 == 0 { b"\"" } else { b",\"" });
        escape(string.as_bytes(), |part| {
            self.elements.extend_from_slice(part)
        });
        self.elements.push(b'"');
        index
    }

    /// Writes the table as an array, without escaping the strings again.
    #[doc(alias = "SpliceStringTableElements")]
    pub(crate) fn write(&self, json: &mut JsonWriter<'_>) {
        json.array(|json| json.splice(&self.elements));
    }
}

/// The cases are those of Gecko's `TestUniqueJSONStrings`.
#[cfg(test)]
mod tests {
    use super::*;

    fn written(strings: &UniqueStrings) -> String {
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
