//! Empty: the files in `cases` are separate crates.
