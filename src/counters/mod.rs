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
//! `description.rs`, `application_counters.rs`, then `crate::sampler`.

mod application_counters;
mod description;

pub(crate) use application_counters::{
    ApplicationCounter, ApplicationCounters, FloatValues, KnownCounter, OwnedCounter, ScaledFloat,
    StaticCounter, application_counter_changes, for_each_application_counter,
    forget_dropped_counters, hold_counters_for_fork, keep_dropped_counters, may_list_counters,
};
pub(crate) use description::{
    ALLOCATED_MEMORY, CounterDescription, CounterKind, CounterReading, PROCESS_CPU,
    RESIDENT_MEMORY, energy_descriptions, sample_process_cpu_ns,
};
