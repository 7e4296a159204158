//! How much of an address is looked up.

/// How much a profile contains of each address.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[non_exhaustive]
pub enum Symbolicate {
    /// Names of functions, including inlined ones, with files, lines and columns, from the debug
    /// information and symbol tables on this machine. Each distinct address is looked up once. The
    /// first lookup in a large executable takes seconds and memory.
    #[default]
    Full,
    /// Names from the symbol tables, which is faster. The debug information is read only if the
    /// symbol tables lack an address, and lack the functions that only their own module calls, too.
    /// Inlined functions, files and lines are missing.
    NamesOnly,
    /// Addresses only. The viewer asks a symbol server for names, such as the one that `samply
    /// load` or the example `view` starts.
    No,
}

/// How the addresses of a profile are named.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NameOptions {
    pub(crate) symbolicate: Symbolicate,
    /// Maximum memory for names that later profiles of the session may use, in bytes.
    pub(crate) max_cache_bytes: usize,
    /// Maximum number of threads that look up addresses, with the calling one; `None` for half the
    /// processors, but at most four.
    pub(crate) max_threads: Option<usize>,
}
