//! What must hold for any input.
//!
//! # Purpose
//! Properties of the crate's insides, each a function of bytes that panics where it does not hold. `tests/fuzz` tries them on
//! what a fuzzer comes up with, `tests.rs` on the seeds and on numbers that look random. Here for both alone: no program has
//! this folder.
//!
//! # Threads and locks
//! On one thread. The `PsLock`, once, for a thread that has ended.
//!
//! # Imports
//! `base`, `buffer`, `control`, `counters`, `json`, `markers`, `platform`, `sampler`, `state`, `stream`, `threads`, `unwind`
//!
//! # Invariants
//! What a function does hangs on its bytes alone, so that a seed means the same tomorrow.
//!
//! # Read next
//! `decoder.rs`, `samples.rs`, `json_calls.rs`, `tests.rs`.

mod decoder;
mod json_calls;
mod numbers;
mod read_profile;
mod samples;
mod scripted_source;
#[cfg(all(test, not(loom)))]
mod seeds;
#[cfg(all(test, not(loom)))]
mod tests;

pub use decoder::check_decoder;
pub use json_calls::check_json;
pub use numbers::check_leb128;
pub use samples::check_samples;
