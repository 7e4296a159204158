//! Counters: numbers sampled over time.
//!
//! # Purpose
//! Defines the counters of this crate and those of the application, and reads their values for the
//! sampler.
//!
//! # Threads and locks
//! The sampler thread reads the values without a lock; any thread changes those of the application.
//! The list of the application's counters has a lock of its own.
//!
//! # Imports
//! `model`, `platform`, `types`, `util`
//!
//! # Invariants
//! A counter's value is absolute; the profile shows its growth from sample to sample.
//!
//! # Read next
//! `application_counters.rs`, `process_cpu.rs`, `energy.rs`, then `crate::sampler`.

mod allocated_memory;
mod application_counters;
mod description;
mod energy;
mod float_values;
mod process_cpu;
mod resident_memory;

pub(crate) use allocated_memory::ALLOCATED_MEMORY;
pub(crate) use application_counters::may_list_counters;
pub(crate) use application_counters::{
    ApplicationCounter, ApplicationCounters, KnownCounter, OwnedCounter, StaticCounter,
    application_counter_changes, for_each_application_counter, forget_dropped_counters,
    hold_counters_for_fork, keep_dropped_counters,
};
pub(crate) use description::{CounterDescription, CounterKind, CounterReading};
pub(crate) use energy::energy_descriptions;
pub(crate) use float_values::{FloatValues, ScaledFloat};
pub(crate) use process_cpu::{PROCESS_CPU, sample_process_cpu_ns};
pub(crate) use resident_memory::RESIDENT_MEMORY;
