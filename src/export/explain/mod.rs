//! Explains where the time of a request went.
//!
//! A request is on one thread, or on several ones after each other and suspended in between, as the
//! contexts of the samples and the waits of futures tell. `request.rs` finds its markers, contexts and
//! waits. `on_threads.rs` turns them into times on threads. `pieces.rs` determines what a thread
//! did in such a time, and `suspended.rs` determines where the request waited otherwise.
//! `stacks.rs` finds the names of stacks, and `explainer.rs` combines all results.

mod explainer;
#[cfg(test)]
mod explainer_tests;
mod on_threads;
mod pieces;
mod ranges;
mod request;
mod stacks;
mod suspended;

pub(crate) use explainer::explain;
