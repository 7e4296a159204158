//! The schema of a table: the name of each column, with its index in a row.

use crate::json::JsonWriter;

/// Writes the columns of a table.
pub(crate) fn write_schema(json: &mut JsonWriter<'_>, columns: &[&str]) {
    json.key("schema").object(|json| {
        for (index, column) in columns.iter().enumerate() {
            json.key(column).unsigned(index as u64);
        }
    });
}

/// Writes a table: its columns, and its rows.
pub(crate) fn write_table(
    json: &mut JsonWriter<'_>,
    columns: &[&str],
    rows: impl FnOnce(&mut JsonWriter<'_>),
) {
    json.object(|json| {
        write_schema(json, columns);
        json.key("data").array(rows);
    });
}
