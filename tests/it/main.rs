//! The crate's integration tests, one module a subject.
//!
//! A test that uses the process's profiler, signals, environment, working directory or `fork` runs in a process of its
//! own: see [`common::isolated`].

mod common;
mod isolation;
