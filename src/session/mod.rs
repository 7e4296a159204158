//! Starts, pauses and stops the profiler, and takes profiles.
//!
//! # Purpose
//! Implements the calls of the API: life cycle, pauses, state callbacks, snapshots, stacks on
//! demand, profile files, dumps, crash files and their rescue, environment variables, control by
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
//! Before a session's sampler begins, the previous one has ended or no longer touches shared data.
//! A profile's file is complete or absent. An existing file that no other file can replace is
//! overwritten, once the profile is complete.
//!
//! # Read next
//! `life_cycle.rs`, `start_stop.rs`, `pause.rs`, `callbacks.rs`, `snapshot.rs`,
//! `frozen_profile.rs`, `env/environment_table.rs`.

mod asked;
mod callbacks;
mod control_state;
mod crash_file;
mod dump_causes;
mod dump_janks;
mod dump_limits;
mod dumps;
mod early_start;
mod embedded_sources;
mod ends;
mod env;
mod event_loops;
mod event_watcher;
mod exec;
mod exit_profile;
mod family_events;
mod family_slot;
mod fork;
mod frozen_profile;
mod hand_over;
mod lacking_features;
mod last_profile;
mod life_cycle;
mod long_interval;
mod notices;
mod own_registration;
mod pause;
mod process;
mod read_profile;
mod rescue;
mod running;
mod save;
mod shutdown_file;
mod signals;
mod snapshot;
mod spooled;
mod stacks;
mod start_stop;
mod status;
mod task;
mod turn;
#[cfg(feature = "push")]
mod windows;
mod write_options;

pub(crate) use asked::{SessionClient, join_session};
pub(crate) use callbacks::{
    add_state_change_callback, callback_after_sampling, remove_state_change_callback,
};
pub(crate) use crash_file::open_crash_file;
pub(crate) use dump_limits::set_dumps;
pub(crate) use dumps::{Cause, WrittenDump, dumps_at_panic, is_long_interval, permit_dump};
pub(crate) use early_start::start_early;
pub(crate) use ends::{save_at_exit, watch_ends_for_parent, watch_exit};
pub(crate) use env::http_variables;
#[cfg(feature = "push")]
pub(crate) use env::{certificate_file_of_variables, push_settings_of_variables, service_name};
pub(crate) use env::{env_vars_for_child_process, environment, environment_docs};
pub(crate) use event_loops::{
    EventToken, EventWatchToken, begin_event, end_event, unwatch_event_loop, watch_event_loop,
};
pub(crate) use exec::{ExecHandover, prepare_exec};
pub(crate) use exit_profile::child_profile;
pub(crate) use family_events::{FAMILY_VARIABLE, Family, SessionEvent, set_family};
pub(crate) use family_slot::set_freeze_children;
pub(crate) use fork::ensure_fork_handlers;
pub(crate) use hand_over::set_hand_over;
pub(crate) use life_cycle::{
    end_guarded_session, ensure_started, ensure_started_for_parent, init, init_with_end, shutdown,
    shutdown_after, start, start_guarded,
};
pub(crate) use long_interval::LongInterval;
pub(crate) use notices::notify;
pub(crate) use own_registration::register_if_recorded;
pub(crate) use pause::{pause, pause_sampling, resume, resume_sampling};
pub(crate) use process::{
    clear_all_pages, keep_child_profile, max_exit_profile_bytes, received_exit_profile,
    register_page, set_process_name, set_process_type, set_version, unregister_page,
};
pub(crate) use read_profile::ReadProfile;
#[cfg(any(test, fuzzing))]
pub(crate) use rescue::rescue_image;
pub(crate) use rescue::{rescue, rescue_child};
pub(crate) use running::{running_generation, running_session};
pub(crate) use signals::control_by_signals;
pub(crate) use snapshot::{FrozenProfile, freeze, freeze_for_heap, freeze_unnoticed};
pub(crate) use stacks::{
    capture_backtrace, is_current_thread, own_thread_id, resolve_backtrace, suspend_and_sample,
};
pub(crate) use start_stop::check_session;
pub(crate) use start_stop::{stop, stop_generation};
pub(crate) use status::{
    buffer_info, features_if_active, features_if_active_and_unpaused, is_active,
    is_active_and_unpaused, is_other_thread_being_profiled, is_paused, is_sampling_paused,
    is_thread_being_profiled, is_thread_registered, start_params,
};
pub(crate) use task::spawn_task;
#[cfg(feature = "push")]
pub(crate) use windows::{FrozenWindow, WindowCutter, WindowFormat, WrittenWindow, freeze_window};
pub(crate) use write_options::{WriteOptions, default_options};
