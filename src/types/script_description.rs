//! Name and source location of a script function.

/// The application's description of a script function.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct ScriptDescription<'a> {
    pub(crate) name: &'a str,
    pub(crate) file: &'a str,
    /// Line where the function begins, counted from 1; 0 when it is not known.
    pub(crate) line: u32,
    /// Column where the function begins, counted from 1; 0 when it is not known.
    pub(crate) column: u32,
}
