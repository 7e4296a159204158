//! Writes columns of tables.

use crate::json::JsonWriter;

/// Writes a column: an array with one value for each item.
pub(super) fn column<T>(
    json: &mut JsonWriter<'_>,
    key: &str,
    items: impl Iterator<Item = T>,
    write: impl Fn(&mut JsonWriter<'_>, T),
) {
    json.key(key).array(|json| {
        for item in items {
            write(json, item);
        }
    });
}

/// Writes a column that has the same JSON in all `length` rows.
pub(super) fn constant_column(json: &mut JsonWriter<'_>, key: &str, length: usize, value: &str) {
    column(json, key, 0..length, |json, _| json.splice(value));
}

pub(super) fn number_or_null(json: &mut JsonWriter<'_>, number: Option<impl Into<u64>>) {
    match number {
        Some(number) => json.unsigned(number.into()),
        None => json.null(),
    }
}

/// Writes nanoseconds as milliseconds. Only the processes that began before the profile have
/// negative times.
#[inline]
pub(super) fn time_ms(json: &mut JsonWriter<'_>, ns: i64) {
    match u64::try_from(ns) {
        Ok(ns) => json.time_ms(ns),
        Err(_) => json.float(ns as f64 / 1e6),
    }
}

pub(super) fn time_ms_or_null(json: &mut JsonWriter<'_>, ns: Option<i64>) {
    match ns {
        Some(ns) => time_ms(json, ns),
        None => json.null(),
    }
}

/// Writes a column with the time since the previous row, and since time 0 for the first one. Such
/// numbers are shorter than times.
pub(super) fn time_deltas(json: &mut JsonWriter<'_>, times_ns: impl Iterator<Item = i64>) {
    json.key("timeDeltas").array(|json| {
        let mut last_ns = 0_i64;
        for time_ns in times_ns {
            time_ms(json, time_ns.saturating_sub(last_ns));
            last_ns = time_ns;
        }
    });
}

/// Writes the id of a thread: a number, as markers have it, unless it has a suffix.
pub(super) fn write_tid(json: &mut JsonWriter<'_>, tid: &str) {
    match tid.parse::<u64>() {
        Ok(tid) => json.unsigned(tid),
        Err(_) => json.string(tid),
    }
}
