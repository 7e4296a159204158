//! Gecko's tables: a schema that numbers the columns, and rows that may be cut short.

use crate::export::read::value::{Row, Value};
use crate::types::ReadError;

/// A row of a table whose columns the reader has found by their names.
pub(super) struct TableRow<'a, 'p> {
    row: &'p Row<'a, 'p>,
    /// The place of each column in the row.
    columns: &'p [Option<usize>],
    names: &'p [&'static str],
}

/// Calls `each` for the rows of a table, with their numbers. `names` are the columns that the reader
/// uses; it finds the first `required` of them in every table.
pub(super) fn each_row<'a>(
    table: Value<'a, '_>,
    names: &[&'static str],
    required: usize,
    mut each: impl FnMut(usize, &TableRow<'a, '_>) -> Result<(), ReadError>,
) -> Result<(), ReadError> {
    let table = table.object("a table")?;
    let schema = table.require("schema", "the numbers of the columns by their names")?;
    let schema = schema.object("the numbers of the columns by their names")?;
    let mut columns = Vec::new();
    for (index, name) in names.iter().enumerate() {
        let expected = "the number of a column";
        let number = match schema.get(name) {
            None if index < required => Some(schema.require(name, expected)?),
            number => number,
        };
        let number = number.map(|number| number.index(usize::MAX, expected));
        columns.push(number.transpose()?);
    }
    let data = table.require("data", "an array of rows")?;
    data.rows("an array of rows", |index, row| {
        let row = TableRow {
            row,
            columns: &columns,
            names,
        };
        each(index, &row)
    })
}

impl<'a> TableRow<'a, '_> {
    /// Returns the cell in a column, by the column's index in the names; `None` if it is missing or
    /// null.
    pub(super) fn get(&self, column: usize) -> Option<Value<'a, '_>> {
        self.row.get(self.columns[column])
    }

    /// Returns a cell that every row has.
    pub(super) fn require(
        &self,
        column: usize,
        expected: &str,
    ) -> Result<Value<'a, '_>, ReadError> {
        match self.columns[column] {
            Some(place) => self.row.require(place, expected),
            None => {
                let got = format!("no column {:?}", self.names[column]);
                Err(self.row.place.error(got, expected))
            }
        }
    }
}
