//! Registration and selection of threads.

mod all_threads;
mod filters;
mod lifetimes;
mod registration;
