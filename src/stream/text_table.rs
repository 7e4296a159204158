//! Texts, each once, by numbers.

use std::collections::HashMap;

/// Texts in the order in which they were first seen.
#[derive(Debug, Default)]
pub(super) struct TextTable {
    indices: HashMap<String, u32>,
    texts: Vec<String>,
}

impl TextTable {
    /// The text's number, the same for the same text.
    pub(super) fn intern(&mut self, text: String) -> u32 {
        let Self { indices, texts } = self;
        *indices.entry(text).or_insert_with_key(|text| {
            texts.push(text.clone());
            texts.len() as u32 - 1
        })
    }

    /// The text of a number that was given; of another one, none.
    pub(super) fn get(&self, index: u32) -> &str {
        self.texts.get(index as usize).map_or("", String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_keeps_its_number() {
        let mut table = TextTable::default();
        let numbers = ["a", "b", "a", "", "b"].map(|text| table.intern(text.to_owned()));
        assert_eq!(numbers, [0, 1, 0, 2, 1]);
        assert_eq!(
            [0, 1, 2, 3].map(|index| table.get(index)),
            ["a", "b", "", ""]
        );
    }
}
