//! Starts, pauses and stops the profiler, and takes profiles.
//!
//! # Purpose
//! Implements the calls of the API: life cycle, pauses, state callbacks, snapshots,
//! profile files, dumps, crash files and their rescue, environment variables, control by
//! signals, and the handling of `fork`. `crate::disabled` replaces this module in builds without
//! the profiler.
//!
//! # Threads and locks
//! The functions run on any thread of the application. Start and stop take the life-cycle lock,
//! which is the outermost one, and then the `PsLock`. They join the sampler under the life-cycle
//! lock, but not under the `PsLock`.
//!
//! - The sampler takes the `PsLock` briefly when the session's threads change. It takes the
//!   life-cycle lock only inside a callback of the application, and no thread waits for such a
//!   callback.
//! - Callbacks of the application run without any lock.
//! - The control thread handles control signals. It starts and stops the profiler like any other
//!   thread, so no thread joins it under either lock.
//! - The thread that saves at exit sleeps until the process ends. No thread joins it under a lock.
//! - The event watcher posts probes to event loops. It ends by itself soon after the session and is
//!   never joined.
//!
//! # Imports
//! `allocations`, `backtrace`, `buffer`, `capture`, `counters`, `event_loop`, `export`, `labels`,
//! `markers`, `model`, `platform`, `sampler`, `state`, `stream`, `symbols`, `threads`, `types`,
//! `unwind`, `util`, `waiting_tasks`
//!
//! # Invariants
//! The folders have one direction: `env`, `saving`, `dumps`, `ends`, `life_cycle`. Each imports from
//! those before it, and from `running.rs` and `family.rs`. To register a thread, nothing of a fork,
//! of dumps or of formats is needed.
//!
//! Before a session's sampler begins, the previous one has ended or no longer touches shared data.
//! A profile's file is complete or absent. An existing file that no other file can replace is
//! overwritten, once the profile is complete.
//!
//! # Read next
//! `running.rs`, `life_cycle/start_stop.rs`, `life_cycle/init.rs`, `saving/snapshot.rs`,
//! `saving/frozen_profile.rs`, `env/environment_table.rs`.

mod dumps;
mod ends;
mod env;
mod family;
mod life_cycle;
mod running;
mod saving;

pub(crate) use dumps::dump::{
    Cause, WrittenDump, dumps_at_panic, is_long_interval, permit_dump, spawn_task,
};
pub(crate) use ends::exec::{ExecHandover, prepare_exec};
pub(crate) use ends::fork::ensure_fork_handlers;
pub(crate) use ends::last_profile::{watch_ends_for_parent, watch_exit};
pub(crate) use env::http_variables;
pub(crate) use env::notices::notify;
#[cfg(feature = "push")]
pub(crate) use env::{certificate_file_of_variables, push_settings_of_variables, service_name};
pub(crate) use env::{env_vars_for_child_process, environment, environment_docs};
pub(crate) use family::{FAMILY_VARIABLE, Family, SessionEvent, set_family};
pub(crate) use life_cycle::clients::{SessionClient, join_session};
pub(crate) use life_cycle::event_loops::{
    EventToken, EventWatchToken, begin_event, end_event, unwatch_event_loop, watch_event_loop,
};
pub(crate) use life_cycle::init::{
    end_guarded_session, ensure_started, ensure_started_for_parent, init, init_with_end,
    save_at_exit, shutdown, shutdown_after, start, start_early, start_guarded,
};
pub(crate) use life_cycle::process::{
    clear_all_pages, register_page, set_process_name, set_process_type, set_version,
    unregister_page,
};
pub(crate) use life_cycle::registration::{
    is_current_thread, is_other_thread_being_profiled, is_thread_being_profiled,
    is_thread_registered, register_if_recorded, register_thread,
};
pub(crate) use life_cycle::signals::{control_by_signals, set_dumps};
pub(crate) use life_cycle::start_stop::{check_session, stop, stop_generation};
pub(crate) use life_cycle::status::{
    buffer_info, features_if_active, features_if_active_and_unpaused, is_active,
    is_active_and_unpaused, is_paused, is_sampling_paused, start_params,
};
#[cfg(feature = "push")]
pub(crate) use life_cycle::windows::{
    FrozenWindow, WindowCutter, WindowFormat, WrittenWindow, freeze_window,
};
pub(crate) use running::{
    add_state_change_callback, callback_after_sampling, pause, pause_sampling,
    remove_state_change_callback, resume, resume_sampling, running_generation, running_session,
};
pub(crate) use saving::crash_file::open_crash_file;
pub(crate) use saving::exit_profile::{
    child_profile, keep_child_profile, max_exit_profile_bytes, received_exit_profile,
};
pub(crate) use saving::frozen_profile::LongInterval;
pub(crate) use saving::read_profile::ReadProfile;
#[cfg(any(test, fuzzing))]
pub(crate) use saving::rescue::rescue_image;
pub(crate) use saving::rescue::{rescue, rescue_child};
pub(crate) use saving::save::{WriteOptions, default_options};
pub(crate) use saving::snapshot::{FrozenProfile, freeze, freeze_for_heap, freeze_unnoticed};
