//! A table in which each string stands once.

use std::collections::HashMap;
use std::sync::Arc;

use crate::json::JsonWriter;

/// A string's place in its table.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(crate) struct StringIndex(pub(crate) u32);

/// Strings in the order in which they were first seen.
#[doc(alias = "UniqueJSONStrings")]
#[derive(Debug, Default)]
pub(crate) struct UniqueStrings {
    indices: HashMap<Arc<str>, StringIndex>,
    strings: Vec<Arc<str>>,
}

impl UniqueStrings {
    /// The string's index, the same for the same string.
    pub(crate) fn intern(&mut self, string: &str) -> StringIndex {
        if let Some(&index) = self.indices.get(string) {
            return index;
        }
        let index = StringIndex(self.strings.len() as u32);
        let string: Arc<str> = string.into();
        self.strings.push(Arc::clone(&string));
        self.indices.insert(string, index);
        index
    }

    /// Writes the table as an array.
    pub(crate) fn write(&self, json: &mut JsonWriter<'_>) {
        json.array(|json| self.strings.iter().for_each(|string| json.string(string)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_string_keeps_its_index() {
        let mut strings = UniqueStrings::default();
        let first = strings.intern("a");
        assert_eq!((strings.intern("b"), strings.intern("a")), (StringIndex(1), first));
        let mut out = Vec::new();
        let mut json = JsonWriter::new(&mut out);
        strings.write(&mut json);
        json.finish().expect("a vector never fails");
        assert_eq!(out, br#"["a","b"]"#);
    }
}
