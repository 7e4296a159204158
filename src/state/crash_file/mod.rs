//! The facts of a session in its crash file: what a rescuer needs that is not in the chunks.
//!
//! # Purpose
//! Says what each fact is, encodes and decodes it, and adds facts when they come into being.
//!
//! # Threads and locks
//! Any thread adds facts; the sampler adds those that its samples refer to, and writes all of them
//! again when the space is nearly used up. One named mutex (`LockRank::CrashFacts`) holds the facts
//! of the running session for threads that have no session at hand.
//!
//! # Imports
//! `buffer`, `counters`, `labels`, `markers`, `platform`, `threads`, `types`, `unwind`, `util`
//!
//! # Invariants
//! A fact is in the file before the first entry that refers to it. A later fact replaces an earlier
//! one with the same key. Decoding accepts any bytes.
//!
//! # Read next
//! `fact.rs`, `crash_facts.rs`, `crate::buffer::crash_area`, then `crate::session::saving::rescue`.

mod crash_facts;
mod current;
mod fact;
mod fields;
mod keyed_facts;
mod make_facts;
mod words;

pub(crate) use crash_facts::{CrashFacts, KeepsFact};
pub(crate) use current::{CurrentFacts, hold_crash_facts_for_fork, set_current_facts};
#[cfg(all(test, not(loom)))]
pub(crate) use fact::CodeFact;
pub(crate) use fact::{
    CategoryFact, CounterFact, Fact, ModuleFact, PageFact, ProcessFact, ScriptFact, SessionFact,
    ThreadFact, TypeFact,
};
#[cfg(all(test, not(loom)))]
pub(crate) use fields::FactBytes;
pub(crate) use keyed_facts::KeyedFacts;
pub(crate) use make_facts::all_marker_types;
pub(crate) use words::OwnerWord;
