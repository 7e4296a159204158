//! A table of unique texts.

use std::collections::HashMap;

/// The texts, in the order in which they were first added.
#[derive(Debug, Default)]
pub(crate) struct TextTable {
    indices: HashMap<String, u32>,
    texts: Vec<String>,
}

impl TextTable {
    /// Returns the number of a text, and adds the text if it is new. Equal texts have the same
    /// number.
    pub(crate) fn intern(&mut self, text: String) -> u32 {
        let Self { indices, texts } = self;
        *indices.entry(text).or_insert_with_key(|text| {
            texts.push(text.clone());
            texts.len() as u32 - 1
        })
    }

    /// Returns the text with this number, or an empty text for an unknown number.
    pub(crate) fn get(&self, index: u32) -> &str {
        self.texts.get(index as usize).map_or("", String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_texts_have_the_same_number() {
        let mut table = TextTable::default();
        let numbers = ["a", "b", "a", "", "b"].map(|text| table.intern(text.to_owned()));
        assert_eq!(numbers, [0, 1, 0, 2, 1]);
        assert_eq!(
            [0, 1, 2, 3].map(|index| table.get(index)),
            ["a", "b", "", ""]
        );
    }
}
