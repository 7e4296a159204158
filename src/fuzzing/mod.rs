//! Properties of internal modules that must hold for any input.
//!
//! # Purpose
//! Each property is a function of bytes that panics if the property does not hold. `tests/fuzz`
//! runs them on inputs from a fuzzer, and `tests.rs` on the seeds and on pseudo-random inputs. This
//! folder is compiled only for these two, never into an application.
//!
//! # Threads and locks
//! Each property runs on one thread. It takes the `PsLock` once, for a thread that has ended.
//!
//! # Imports
//! `buffer`, `capture`, `counters`, `export`, `family`, `json`, `labels`, `markers`, `platform`, `record`, `sampler`,
//! `session`, `state`, `stream`, `threads`, `types`, `unwind`, `util`
//!
//! # Invariants
//! A property depends only on its input bytes, so that a seed always reproduces the same case.
//!
//! # Read next
//! `decoder.rs`, `samples.rs`, `profile_files.rs`, `crash_files.rs`, `family_messages.rs`,
//! `json_calls.rs`, `inputs.rs`, `tests.rs`.

mod crash_files;
mod decoder;
mod family_messages;
#[cfg(all(test, not(loom)))]
mod inputs;
mod json_calls;
mod numbers;
mod profile_files;
mod read_profile;
mod samples;
mod scripted_source;
#[cfg(all(test, not(loom)))]
mod seeds;
#[cfg(all(test, not(loom)))]
mod tests;
#[cfg(all(test, not(loom)))]
mod thinned_rows;

pub use crash_files::check_crash_file;
pub use decoder::check_decoder;
pub use family_messages::check_family_messages;
pub use json_calls::check_json;
pub use numbers::check_leb128;
pub use profile_files::check_profile_file;
pub use samples::check_samples;
