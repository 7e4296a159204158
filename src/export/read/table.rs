//! Tables of both formats. Gecko's have a schema that numbers the columns, and rows that may be cut
//! short. Those of the processed format are objects of columns, which may be cut short, too.

use crate::export::read::value::{Object, Place, Value, to_ns};
use crate::types::ReadError;

/// What a column must be.
const COLUMN: &str = "a column, which is an array";

/// How a format writes tables.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Form {
    Gecko,
    Processed,
}

/// A row of a table.
pub(crate) struct TableRow<'a, 'p> {
    /// The columns that the reader uses.
    names: &'p [&'static str],
    /// In the order of the names.
    cells: &'p [Option<&'a str>],
    places: CellPlaces<'p>,
    /// The time, in a table that may have the differences of times.
    time_ns: Option<i64>,
}

enum CellPlaces<'p> {
    /// The place of the row, and the number of each column.
    InRow(Place<'p>, &'p [Option<usize>]),
    /// The places of the columns, and the number of the row.
    InColumns(&'p [Place<'p>], usize),
}

/// Calls `each` for the rows of a table, with their numbers. `names` are the columns that the reader
/// uses; it finds the first `required` of them in every table. The first one is as long as the table.
pub(crate) fn each_row<'a>(
    form: Form,
    table: &Object<'a, '_>,
    (names, required): (&[&'static str], usize),
    mut each: impl FnMut(usize, &TableRow<'a, '_>) -> Result<(), ReadError>,
) -> Result<(), ReadError> {
    match form {
        Form::Gecko => gecko_rows(table, (names, required), &mut each),
        Form::Processed => processed_rows(table, (names, required), &mut each),
    }
}

/// Takes a row and its number.
type Each<'a, 'e> = dyn FnMut(usize, &TableRow<'a, '_>) -> Result<(), ReadError> + 'e;

fn gecko_rows<'a>(
    table: &Object<'a, '_>,
    (names, required): (&[&'static str], usize),
    each: &mut Each<'a, '_>,
) -> Result<(), ReadError> {
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
    let (mut row_cells, mut cells) = (Vec::new(), Vec::new());
    for (index, row) in data.elements("an array of rows")?.enumerate() {
        row_cells.clear();
        row_cells.extend(row.elements("a row of a table")?.map(|cell| cell.text));
        cells.clear();
        cells.extend(columns.iter().map(|at| row_cells.get((*at)?).copied()));
        let row = TableRow {
            names,
            cells: &cells,
            places: CellPlaces::InRow(row.place, &columns),
            time_ns: None,
        };
        each(index, &row)?;
    }
    Ok(())
}

fn processed_rows<'a>(
    table: &Object<'a, '_>,
    (names, required): (&[&'static str], usize),
    each: &mut Each<'a, '_>,
) -> Result<(), ReadError> {
    let is_required = |index: usize| index < required && names[index] != "time";
    let mut columns = Vec::new();
    for (index, name) in names.iter().enumerate() {
        columns.push(match is_required(index) {
            true => table.require(name, COLUMN)?,
            false => table.list(name),
        });
    }
    let length = columns[0].elements(COLUMN)?.count();
    let times = match names.contains(&"time") {
        true => times(table, length)?,
        false => Vec::new(),
    };
    let places: Vec<_> = columns.iter().map(|column| column.place).collect();
    let elements = columns.iter().map(|column| column.elements(COLUMN));
    let mut elements = elements.collect::<Result<Vec<_>, _>>()?;
    let mut cells = Vec::new();
    for index in 0..length {
        cells.clear();
        let row = elements.iter_mut().map(Iterator::next);
        cells.extend(row.map(|cell| cell.map(|cell| cell.text)));
        let row = TableRow {
            names,
            cells: &cells,
            places: CellPlaces::InColumns(&places, index),
            time_ns: times.get(index).copied(),
        };
        each(index, &row)?;
    }
    match elements.iter_mut().find_map(Iterator::next) {
        Some(cell) => Err(too_long(&cell, length)),
        None => Ok(()),
    }
}

fn too_long(cell: &Value<'_, '_>, length: usize) -> ReadError {
    cell.error(format_args!(
        "at most {length} rows, as in the other columns"
    ))
}

/// Returns the time of each row of a table, which has times or the differences of times.
fn times(table: &Object<'_, '_>, length: usize) -> Result<Vec<i64>, ReadError> {
    let known = table.get("time");
    let has_times = known.is_some();
    let column = match known {
        Some(times) => times,
        None => table.require("timeDeltas", "a column of times, or \"time\"")?,
    };
    let (mut times, mut now_ms) = (Vec::new(), 0.0);
    for (row, cell) in column.elements(COLUMN)?.enumerate() {
        if row >= length {
            return Err(too_long(&cell, length));
        }
        if has_times && !cell.is_null() {
            times.push(cell.time_ns()?);
        } else if !cell.is_null() {
            now_ms += cell.number("a difference of times in ms")?;
            let expected = "a difference that leads to a time within 30 years of the start";
            times.push(to_ns(now_ms).ok_or_else(|| cell.error(expected))?);
        }
    }
    match times.len() {
        count if count == length => Ok(times),
        count => Err(table.place.error(
            format_args!("{count} times"),
            format_args!("{length}, as in the other columns"),
        )),
    }
}

impl<'a> TableRow<'a, '_> {
    fn place(&self, column: usize) -> Place<'_> {
        match &self.places {
            CellPlaces::InRow(row, columns) => row.index(columns[column].unwrap_or(0)),
            CellPlaces::InColumns(columns, row) => columns[column].index(*row),
        }
    }

    /// Returns the cell in a column; `None` if it is missing or null.
    pub(crate) fn get(&self, name: &str) -> Option<Value<'a, '_>> {
        debug_assert!(self.names.contains(&name), "{name} is not read");
        let column = self.names.iter().position(|known| *known == name)?;
        let (text, place) = (self.cells[column]?, self.place(column));
        Some(Value { text, place }).filter(|value| !value.is_null())
    }

    /// Reads the cell in a column; `None` if it is missing or null.
    pub(crate) fn read<'s, T>(
        &'s self,
        name: &str,
        read: impl FnOnce(&Value<'a, 's>) -> Result<T, ReadError>,
    ) -> Result<Option<T>, ReadError> {
        self.get(name).map(|value| read(&value)).transpose()
    }

    /// Returns a cell that every row has.
    pub(crate) fn require(&self, name: &str, expected: &str) -> Result<Value<'a, '_>, ReadError> {
        self.get(name).ok_or_else(|| {
            let column = self.names.iter().position(|known| *known == name);
            let column = column.unwrap_or_default();
            let got = self.cells[column].unwrap_or("nothing");
            self.place(column).error(got, expected)
        })
    }

    /// Reads a line or a column of a source file; `None` if it is missing or unknown.
    pub(crate) fn position(&self, name: &str) -> Result<Option<u32>, ReadError> {
        let number = self.read(name, |number| number.unsigned("a number from 0 on"))?;
        Ok(number
            .and_then(|number| u32::try_from(number).ok())
            .filter(|number| *number > 0))
    }

    /// Returns the time of the row.
    pub(crate) fn time_ns(&self) -> Result<i64, ReadError> {
        match self.time_ns {
            Some(time_ns) => Ok(time_ns),
            None => self.require("time", "a time in ms")?.time_ns(),
        }
    }
}
