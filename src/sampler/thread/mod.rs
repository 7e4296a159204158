//! The sampler's state of each thread, and what one tick does with it.

mod frame_pointer_cache;
mod identity;
mod own_samples;
mod pending_request;
mod sample_recorder;
mod seen_state;
mod signal_mask;
#[cfg(test)]
mod stopped_session_tests;
mod switch_recorder;
mod thread_lists;
mod thread_sampler;
mod thread_state;

pub(crate) use switch_recorder::{DueThreads, SwitchReadings};
pub(crate) use thread_lists::{Threads, Woken, find_outlived};
pub(crate) use thread_sampler::ThreadSampler;
