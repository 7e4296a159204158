//! The table of strings.

use crate::json::{JsonWriter, UniqueStrings};
use crate::model::{ProfileModel, TextId};

/// The strings that the written tables refer to, in the order of their first use.
pub(super) struct Strings<'a> {
    profile: &'a ProfileModel,
    /// The index of each text of the model plus one; 0 for a text that is not in the table yet.
    by_text: Vec<u32>,
    table: UniqueStrings<'a>,
}

impl<'a> Strings<'a> {
    pub(super) fn new(profile: &'a ProfileModel) -> Self {
        Self {
            profile,
            by_text: Vec::new(),
            table: UniqueStrings::default(),
        }
    }

    /// Returns the index of a text of the model, and adds the text if it is new.
    pub(super) fn text(&mut self, id: TextId) -> u64 {
        let at = id.0 as usize;
        if at >= self.by_text.len() {
            self.by_text.resize(at + 1, 0);
        }
        if self.by_text[at] == 0 {
            let index = self.table.intern_shared(self.profile.text(id));
            self.by_text[at] = index.0 + 1;
        }
        u64::from(self.by_text[at] - 1)
    }

    /// Returns the index of another string, and adds the string if it is new.
    pub(super) fn other(&mut self, string: &str) -> u64 {
        self.table.intern(string).0.into()
    }

    pub(super) fn write(&self, json: &mut JsonWriter<'_>) {
        self.table.write(json);
    }
}
