//! Tables of the processed format: an object of columns of equal length.

use crate::export::read::value::{Object, Value};
use crate::types::ReadError;

/// Returns the elements of a column that every table has.
pub(super) fn required_column<'a, T>(
    table: &Object<'a, '_>,
    name: &'static str,
    mut read: impl FnMut(Value<'a, '_>) -> Result<T, ReadError>,
) -> Result<Vec<T>, ReadError> {
    let mut elements = Vec::new();
    let column = table.require(name, "a column, which is an array")?;
    column.each("a column, which is an array", |_, value| {
        elements.push(read(value)?);
        Ok(())
    })?;
    Ok(elements)
}

/// Calls `each` for the elements of a column that are not null, with their rows. A missing column
/// has none.
pub(super) fn for_rows<'a>(
    table: &Object<'a, '_>,
    name: &'static str,
    length: usize,
    mut each: impl FnMut(usize, Value<'a, '_>) -> Result<(), ReadError>,
) -> Result<(), ReadError> {
    let Some(column) = table.get(name) else {
        return Ok(());
    };
    column.each("a column, which is an array", |row, value| {
        if row >= length {
            let expected = format!("at most {length} rows, as in the other columns");
            return Err(value.error(expected));
        }
        match value.is_null() {
            true => Ok(()),
            false => each(row, value),
        }
    })
}

/// Sets a field of each row from a column. Rows beyond the column's end, and null, leave it as it
/// is.
pub(super) fn fill_column<'a, R>(
    table: &Object<'a, '_>,
    name: &'static str,
    rows: &mut [R],
    mut set: impl FnMut(&mut R, Value<'a, '_>) -> Result<(), ReadError>,
) -> Result<(), ReadError> {
    for_rows(table, name, rows.len(), |row, value| {
        set(&mut rows[row], value)
    })
}
