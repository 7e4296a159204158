//! Encodes samples: merges each stack and writes it into a chunk.

mod idle_period;
mod sample_writer;
#[cfg(any(test, fuzzing))]
mod scripted_samples;
#[cfg(any(test, fuzzing))]
mod scripted_stack;
mod stored_stack;

pub(crate) use idle_period::{IdlePeriod, SampleRun, Tick};
pub(crate) use sample_writer::{LastStack, SampleEncoder, SampleTime, SampleWriter};
#[cfg(any(test, fuzzing))]
pub(crate) use scripted_samples::{SampleScript, ScriptedSample};
#[cfg(any(test, fuzzing))]
pub(crate) use scripted_stack::{ScriptedFrame, ScriptedStack};
pub(crate) use stored_stack::{MergedFrame, StoredStack, label_of, merge_stacks};
