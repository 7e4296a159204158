//! The crate's integration tests, one module per subject.
//!
//! A test that uses the process's profiler, signals, environment, working directory or `fork` runs
//! in a process of its own. See [`common::isolated`].

// Under the name of Mozilla's crate, as its applications import it.
#[cfg(all(has_profiler, feature = "attributes"))]
#[macro_use]
extern crate gekkota as gecko_profiler;

mod common;
mod isolation;

mod api;
#[cfg(has_profiler)]
mod backtraces;
#[cfg(has_profiler)]
mod contexts;
#[cfg(has_profiler)]
mod crash;
#[cfg(has_profiler)]
mod descriptors;
#[cfg(has_profiler)]
mod dumps;
#[cfg(has_profiler)]
mod endpoints;
#[cfg(has_profiler)]
mod ends;
#[cfg(has_profiler)]
mod environment;
#[cfg(has_profiler)]
mod event_loops;
#[cfg(has_profiler)]
mod family;
#[cfg(has_profiler)]
mod fork;
mod integrations;
#[cfg(has_profiler)]
mod labels;
#[cfg(has_profiler)]
mod markers;
#[cfg(has_profiler)]
mod memory;
#[cfg(all(has_profiler, feature = "push"))]
mod push;
#[cfg(has_profiler)]
mod sampling;
#[cfg(has_profiler)]
mod saving;
#[cfg(has_profiler)]
mod session;
#[cfg(has_profiler)]
mod signals;
#[cfg(has_profiler)]
mod streaming;
#[cfg(has_profiler)]
mod threads;
#[cfg(has_profiler)]
mod traced;
#[cfg(has_profiler)]
mod unwinding;
