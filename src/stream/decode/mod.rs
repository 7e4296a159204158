//! From entries to decoded threads: samples, stacks, markers and counters.

mod chunk_stacks;
mod contexts;
#[cfg(any(test, fuzzing))]
mod plain_samples;
mod process_data;
mod rows;
mod source;
mod streaming_context;
mod thread_context;
mod tick_gaps;

pub(crate) use chunk_stacks::FrameKey;
pub(crate) use contexts::ContextInterval;
#[cfg(any(test, fuzzing))]
pub(crate) use plain_samples::{PlainSample, PlainSamples};
pub(crate) use process_data::TaskWaitEntry;
#[cfg(any(test, fuzzing))]
pub(crate) use process_data::max_wait_rows;
#[cfg(any(test, fuzzing))]
pub(crate) use rows::RowEvent;
pub(crate) use rows::SpreadRows;
pub(crate) use source::{
    FrozenChildren, GatherRequest, Gathering, GatheringLog, PastProcess, PastScript, ProfileSource,
    last_entry_ns,
};
pub(crate) use streaming_context::{ProcessStreamingContext, decode_newest};
pub(crate) use thread_context::ThreadStreamingContext;
