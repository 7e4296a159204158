//! The one global instance.
//!
//! # Purpose
//! What is known from initialisation on (`CorePs`), what is known while the profiler runs (`ActivePs`), what the two
//! share with the sampler (`Session`), and what anybody may ask without a lock (`RacyFeatures`).
//!
//! # Threads and locks
//! `CorePs` and `ActivePs`, in which the session's threads are, stand in cells that ask for the `PsLock`. The core buffer has
//! its own lock; `RacyFeatures` is one atomic word. A session's pauses and its after-sampling callbacks have a lock each;
//! nobody holds one while a callback runs.
//!
//! # Imports
//! `base`, `buffer`, `counters`, `platform`, `threads`, `unwind`
//!
//! # Invariants
//! `RacyFeatures` says "active" only while there is an `ActivePs`. The sampler is reached through a slot that is filled
//! from above.
//!
//! # Read next
//! `active_ps.rs`, then `crate::control`.

mod active_ps;
mod after_sampling;
mod core_buffer;
mod core_ps;
mod pauses;
mod profiled_threads;
mod racy_features;
mod session;
#[cfg(all(test, loom))]
mod session_model;
mod state_callbacks;
mod while_buffered;

pub(crate) use active_ps::{ACTIVE_PS, ActivePs, REGISTRATION_HOOKS, RunningSampler};
pub(crate) use after_sampling::{LeftOverCallbacks, SamplerEnd, leave_callbacks_to_parent};
pub(crate) use core_buffer::{core_buffer, own_lane_index, prepare_own_lane, put_entry};
pub(crate) use core_ps::{CORE_PS, CorePs};
pub(crate) use pauses::{OpenPauses, SeenPauses};
pub(crate) use profiled_threads::ProfiledThreads;
pub(crate) use racy_features::{PauseKind, RacyFeatures};
pub(crate) use session::{EngineTrial, Session, SessionCounts, SessionSettings};
pub(crate) use state_callbacks::StateCallback;
