//! The profiler's global state.
//!
//! # Purpose
//! Holds the data of the initialized profiler (`CorePs`) and of the running one (`ActivePs`),
//! the data that a running session shares with its sampler (`Session`), and the state that any
//! thread may read without a lock (`RacyFeatures`).
//!
//! # Threads and locks
//! `CorePs` and `ActivePs`, which holds the threads of the session, lie in cells that require the
//! `PsLock`. The core buffer has its own lock; `RacyFeatures` is one atomic word. In a `Session`,
//! the pauses, the log, the after-sampling callbacks, the modules and the perf map have one lock
//! each. No lock is held while a callback runs.
//!
//! # Imports
//! `allocations`, `buffer`, `counters`, `labels`, `markers`, `platform`, `threads`, `types`,
//! `unwind`, `util`
//!
//! # Invariants
//! `RacyFeatures` is active only while there is an `ActivePs`. This folder does not import the
//! sampler: the layer above provides it as a `RunningSampler`.
//!
//! # Read next
//! `active_ps.rs`, then `crate::session`.

mod active_ps;
mod callbacks;
mod child_profile;
mod core_ps;
mod crash_facts;
mod expiring_list;
mod facts;
mod marker_limit;
mod pauses;
mod profiled_threads;
mod racy_features;
mod sampler_stage;
mod session;
mod session_counts;
#[cfg(all(test, loom))]
mod session_model;

pub(crate) use active_ps::{
    ACTIVE_PS, ActivePs, REGISTRATION_HOOKS, RunningSampler, find_thread, lasting_facts,
};
pub(crate) use callbacks::{StateCallback, UnservedCallbacks, disown_callbacks_in_child};
pub(crate) use child_profile::{ChildProfile, ChildText, ProcessPlace};
pub(crate) use core_ps::{
    CORE_PS, CorePs, core_buffer, own_lane_index, prepare_own_lane, put_entry,
};
pub(crate) use crash_facts::{
    CrashFacts, CurrentFacts, all_marker_types, hold_crash_facts_for_fork, set_current_facts,
};
pub(crate) use expiring_list::{KeptKind, OVERHEAD_BYTES as KEPT_OVERHEAD_BYTES};
pub(crate) use facts::{
    CategoryFact, CounterFact, Fact, KeyedFacts, ModuleFact, OwnerWord, PageFact, ProcessFact,
    ScriptFact, SessionFact, ThreadFact, TypeFact,
};
#[cfg(all(test, not(loom)))]
pub(crate) use facts::{CodeFact, FactBytes};
pub(crate) use marker_limit::{begin_marker_limit, choose_marker};
pub(crate) use pauses::{OpenPauses, SeenPauses};
pub(crate) use racy_features::{PauseKind, RacyFeatures};
pub(crate) use sampler_stage::SamplerEnd;
pub(crate) use session::{Session, SessionSettings, describe_session};
#[cfg(test)]
pub(crate) use session_counts::SamplerOverheads;
pub(crate) use session_counts::{OverheadStats, SessionCounts};
