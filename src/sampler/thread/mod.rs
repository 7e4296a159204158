//! The sampler's state of each thread, and what one tick does with it.

mod frame_pointer_cache;
mod paused_thread;
mod pending_request;
mod thread_lists;
mod thread_sampler;
mod write_samples;

pub(crate) use thread_lists::Threads;
pub(crate) use thread_sampler::{ThreadLife, ThreadSampler};
