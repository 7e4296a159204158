//! Registration and selection of threads.

mod all_threads;
mod asleep;
mod ended_threads;
mod filters;
mod gecko_form;
mod lifetimes;
mod main_thread_ended;
mod policies;
mod registration;
#[cfg(target_env = "gnu")]
mod reused_ids;
mod spawned;
mod unregistered;
