//! A table of unique texts.

use crate::util::unique_index::{Search, UniqueIndex};

/// The texts, one after another, in the order in which they were first added.
#[derive(Debug, Default)]
pub(crate) struct TextTable {
    index: UniqueIndex,
    texts: Texts,
}

#[derive(Debug, Default)]
struct Texts {
    joined: String,
    /// The end of each text in `joined`.
    ends: Vec<usize>,
}

impl Texts {
    fn get(&self, index: usize) -> Option<&str> {
        let end = *self.ends.get(index)?;
        let start = index.checked_sub(1).map_or(0, |last| self.ends[last]);
        Some(&self.joined[start..end])
    }

    fn push(&mut self, text: &str) {
        self.joined.push_str(text);
        self.ends.push(self.joined.len());
    }
}

impl TextTable {
    /// Returns the number of a text, and adds the text if it is new. Equal texts have the same
    /// number.
    pub(crate) fn intern(&mut self, text: &str) -> u32 {
        let Self { index, texts } = self;
        match index.search(text, |at| texts.get(at as usize) == Some(text)) {
            Search::Found(number) => number,
            Search::Missing(slot) => {
                let number = texts.ends.len() as u32;
                texts.push(text);
                slot.fill(number);
                number
            }
        }
    }

    /// Returns how much memory the table takes if it doubles.
    pub(crate) fn growth_bytes(&self) -> usize {
        /// The end of a text, and its place in the index.
        const PLACE_BYTES: usize = 40;
        2 * self.texts.joined.len() + PLACE_BYTES * self.texts.ends.len()
    }

    /// Returns the text with this number, or an empty text for an unknown number.
    pub(crate) fn get(&self, index: u32) -> &str {
        self.texts.get(index as usize).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_texts_have_the_same_number() {
        let mut table = TextTable::default();
        let numbers = ["a", "b", "a", "", "b"].map(|text| table.intern(text));
        assert_eq!(numbers, [0, 1, 0, 2, 1]);
        assert_eq!(
            [0, 1, 2, 3].map(|index| table.get(index)),
            ["a", "b", "", ""]
        );
    }
}
