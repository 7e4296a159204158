//! Explains where the time of a request went.
//!
//! A request is on one thread, or, as the samples' contexts tell, on several ones after each other
//! and on none in between. `request.rs` finds its times on threads, `pieces.rs` tells what a thread
//! did in such a time, and `stacks.rs` merges the
//! stacks. `explainer.rs` puts them together.

mod explainer;
#[cfg(test)]
mod explainer_tests;
mod pieces;
mod request;
mod stacks;

pub(crate) use explainer::explain;
