//! Registration and selection of threads.

mod all_threads;
mod ended_threads;
mod filters;
mod lifetimes;
mod main_thread_ended;
mod registration;
mod reused_ids;
