//! Numbers over time.
//!
//! # Purpose
//! What counters there are, and how the sampler reads them.
//!
//! # Threads and locks
//! Read by the sampler thread; no lock.
//!
//! # Imports
//! `base`, `platform`
//!
//! # Invariants
//! A counter's value is absolute; the profile shows what it grew by from sample to sample.
//!
//! # Read next
//! `process_cpu.rs`, then `crate::sampler`.

mod description;
mod process_cpu;

pub(crate) use description::CounterDescription;
pub(crate) use process_cpu::{PROCESS_CPU, sample_process_cpu_ns};
