//! Counters: numbers sampled over time.
//!
//! # Purpose
//! Defines the counters, and reads their values for the sampler.
//!
//! # Threads and locks
//! Counters are read by the sampler thread, without a lock.
//!
//! # Imports
//! `model`, `platform`, `types`
//!
//! # Invariants
//! A counter's value is absolute; the profile shows its growth from sample to sample.
//!
//! # Read next
//! `process_cpu.rs`, then `crate::sampler`.

mod description;
mod process_cpu;
mod resident_memory;

pub(crate) use description::CounterDescription;
pub(crate) use process_cpu::{PROCESS_CPU, sample_process_cpu_ns};
pub(crate) use resident_memory::RESIDENT_MEMORY;
