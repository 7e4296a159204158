//! From entries to decoded threads: samples, stacks, markers and counters.

pub(crate) mod chunk_stacks;
mod contexts;
mod entry_counts;
mod event_delays;
mod marker_index;
mod newest;
mod overheads;
mod past_process;
mod paused_ranges;
#[cfg(any(test, fuzzing))]
mod plain_samples;
mod rows;
mod sleeping_place;
mod source;
mod spread_rows;
mod streaming_context;
mod task_waits;
mod thread_index;
mod tick_gaps;

pub(crate) use chunk_stacks::FrameKey;
pub(crate) use contexts::ContextInterval;
pub(crate) use newest::decode_newest;
pub(crate) use past_process::{PastProcess, PastScript, last_entry_ns};
#[cfg(any(test, fuzzing))]
pub(crate) use plain_samples::{PlainSample, PlainSamples};
#[cfg(any(test, fuzzing))]
pub(crate) use rows::RowEvent;
pub(crate) use source::ProfileSource;
pub(crate) use spread_rows::SpreadRows;
pub(crate) use streaming_context::{ProcessStreamingContext, ThreadStreamingContext};
pub(crate) use task_waits::TaskWaitEntry;
#[cfg(any(test, fuzzing))]
pub(crate) use task_waits::max_wait_rows;
