//! Threads, registered or found by the sampler.
//!
//! # Purpose
//! Registration, the registry, and the ladder of accessors: which proof allows access to which data
//! of a thread.
//!
//! A thread that the sampler finds has data of the same type, which the registry does not list. If
//! that thread registers later, it registers with those data: a profile shows one thread.
//!
//! # Threads and locks
//! A thread registers and unregisters itself; the sampler unregisters a thread that it finds dead.
//! Both take the `PsLock` and then the registry's lock, for a push or a removal.
//! `registration_data.rs` lists for each datum which thread writes it, which threads read it, and
//! under which lock.
//!
//! # Imports
//! `capture`, `labels`, `platform`, `types`, `util`
//!
//! # Invariants
//! - A thread's data is reached through the accessors only.
//! - A thread that ends is unregistered, by its own thread-local destructor or by the sampler.
//!
//! # Read next
//! `registration_data.rs`, `registration.rs`, `registry.rs`, then `crate::sampler`.

#[forbid(unsafe_code)]
mod atomic_profiling_state;
#[forbid(unsafe_code)]
mod registration;
#[forbid(unsafe_code)]
mod registration_data;
#[forbid(unsafe_code)]
mod registry;
#[forbid(unsafe_code)]
mod thread_name;

#[cfg(all(test, loom))]
pub(crate) use registration::register;
pub(crate) use registration::{
    MAIN_THREAD_NAME, OnThreadRef, RegistrationHooks, may_register_itself, register_current_thread,
    register_current_thread_itself, unregister, unregister_current_thread,
};
pub(crate) use registration_data::{OffThreadRef, ProfiledThreadData, ThreadRegistrationInfo};
pub(crate) use registry::{CachedThreadInfo, RegistryForkGuard, ThreadRegistry};
