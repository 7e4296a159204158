//! A summary of a profile as text.

mod facts;
mod report;
mod tables;
mod text_columns;

pub(crate) use facts::meta_field;
pub(crate) use report::write_text;
pub(crate) use text_columns::{ColumnKind, Columns, time_text};
