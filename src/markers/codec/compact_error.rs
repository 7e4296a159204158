//! The error of the compact encoding. It says only that there was one: the profile needs no more.

use std::error::Error;
use std::fmt;

/// A payload could not be encoded or decoded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct CompactError;

pub(super) type CompactResult<T> = Result<T, CompactError>;

impl fmt::Display for CompactError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("cannot encode or decode a payload")
    }
}

impl Error for CompactError {}

impl serde::ser::Error for CompactError {
    fn custom<T: fmt::Display>(_: T) -> Self {
        Self
    }
}

impl serde::de::Error for CompactError {
    fn custom<T: fmt::Display>(_: T) -> Self {
        Self
    }
}
