//! What a function of a script is called, and where it stands.

/// What the host says of a script's function.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct ScriptDescription<'a> {
    pub(crate) name: &'a str,
    pub(crate) file: &'a str,
    /// Where it begins, counted from 1; 0 when that is not known.
    pub(crate) line: u32,
    pub(crate) column: u32,
}
