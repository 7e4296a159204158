//! Encodes samples: merges each stack and writes it into a chunk.

mod idle_period;
mod merge;
mod recent_gaps;
mod sample_writer;
#[cfg(any(test, fuzzing))]
mod scripted_samples;
#[cfg(any(test, fuzzing))]
mod scripted_stack;
mod stack_dictionary;
mod stored_stack;

pub(crate) use idle_period::{IdlePeriod, SampleRun, Tick};
pub(crate) use merge::{MergedFrame, merge_stacks};
pub(crate) use sample_writer::{LastStack, SampleEncoder, SampleTime, SampleWriter};
#[cfg(any(test, fuzzing))]
pub(crate) use scripted_samples::{SampleScript, ScriptedSample};
#[cfg(any(test, fuzzing))]
pub(crate) use scripted_stack::{ScriptedFrame, ScriptedStack};
pub(crate) use stored_stack::StoredStack;
