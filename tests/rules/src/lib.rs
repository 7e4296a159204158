//! Nothing: the cases in `cases` are crates of their own.
