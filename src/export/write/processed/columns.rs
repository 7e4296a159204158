//! Writes columns of tables, and the table of strings that they refer to.

use crate::json::{JsonWriter, UniqueStrings};
use crate::model::{ProfileModel, TextId};

/// Writes a column: an array with one value for each item.
pub(crate) fn column<T>(
    json: &mut JsonWriter<'_>,
    key: &str,
    items: impl Iterator<Item = T>,
    mut write: impl FnMut(&mut JsonWriter<'_>, T),
) {
    json.key(key).array(|json| {
        for item in items {
            write(json, item);
        }
    });
}

/// Writes a column that has the same JSON in all `length` rows.
pub(crate) fn constant_column(json: &mut JsonWriter<'_>, key: &str, length: usize, value: &str) {
    column(json, key, 0..length, |json, _| json.splice(value));
}

/// Writes a column of numbers, with `null` for `None`.
pub(crate) fn numbers(
    json: &mut JsonWriter<'_>,
    key: &str,
    numbers: impl Iterator<Item = Option<impl Into<u64>>>,
) {
    column(json, key, numbers, |json, number| {
        json.or_null(number, |json, number| json.unsigned(number.into()));
    });
}

/// Writes a column with the time since the previous row, and since time 0 for the first one. Such
/// numbers are shorter than times.
pub(crate) fn time_deltas(json: &mut JsonWriter<'_>, times_ns: impl Iterator<Item = i64>) {
    let mut last_ns = 0_i64;
    column(json, "timeDeltas", times_ns, |json, time_ns| {
        json.signed_time_ms(time_ns.saturating_sub(last_ns));
        last_ns = time_ns;
    });
}

/// Writes the id of a thread: a number, as markers have it, unless it has a suffix.
pub(crate) fn write_tid(json: &mut JsonWriter<'_>, tid: &str) {
    match tid.parse::<u64>() {
        Ok(tid) => json.unsigned(tid),
        Err(_) => json.string(tid),
    }
}

/// The strings that the written tables refer to, in the order of their first use.
pub(crate) struct Strings<'a> {
    profile: &'a ProfileModel,
    /// The index of each text of the model plus one; 0 for a text that is not in the table yet.
    by_text: Vec<u32>,
    table: UniqueStrings<'a>,
}

impl<'a> Strings<'a> {
    pub(crate) fn new(profile: &'a ProfileModel) -> Self {
        Self {
            profile,
            by_text: Vec::new(),
            table: UniqueStrings::default(),
        }
    }

    /// Returns the index of a text of the model, and adds the text if it is new.
    pub(crate) fn text(&mut self, id: TextId) -> u64 {
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
    pub(crate) fn other(&mut self, string: &str) -> u64 {
        self.table.intern(string).0.into()
    }

    pub(crate) fn write(&self, json: &mut JsonWriter<'_>) {
        self.table.write(json);
    }
}
