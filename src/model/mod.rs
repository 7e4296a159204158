//! The neutral model of a profile: what every format but Gecko's is written from.
//!
//! # Purpose
//! Holds a profile whose entries are decoded and whose frames are named: processes, threads,
//! samples, stacks with inlined functions, markers, counters and modules. `stream` makes it from a
//! session, and `export` reads it from a file. `export` writes every format but Gecko's from it.
//!
//! # Threads and locks
//! Plain values, without locks.
//!
//! # Imports
//! `util`
//!
//! # Invariants
//! - Each text, function, frame and stack is held once, for all threads of all processes.
//! - The prefix of a stack comes before the stack.
//! - An id always refers to an element of the profile that it came from.
//! - Times are in ns since the profile's start, for all processes. They may be negative: a process
//!   may begin before the profile's own.
//! - The samples of a thread, and the values of a counter, are in the order of their times.
//!
//! # Read next
//! `profile.rs`, `stacks.rs`, `samples.rs`, `charged_cpu.rs`, `markers.rs`, `call_nodes.rs`.

mod alike;
mod call_nodes;
mod charged_cpu;
mod markers;
mod profile;
mod samples;
mod stacks;

pub(crate) use crate::types::MarkerPhase;
pub(crate) use alike::{Shown, show_threads};
pub(crate) use call_nodes::{CallNodes, NodeId};
#[cfg(feature = "protobuf")]
pub(crate) use charged_cpu::even_share;
pub(crate) use charged_cpu::{ChargedSample, ChargedSamples};
pub(crate) use markers::{FieldValue, Marker, MarkerPayload, Markers, STANDS_FOR};
pub(crate) use profile::{
    Category, Counter, CounterGraph, CounterSample, MarkerSchema, Meta, Module,
    PROCESS_CPU_CATEGORY, PROCESS_CPU_NAME, PausedRange, Process, ProfileModel, Thread,
    WAITING_TASKS,
};
pub(crate) use samples::{RowTicks, Sample, Samples, WeightUnit, hull};
pub(crate) use stacks::{
    CategoryPair, Frame, FrameId, Function, FunctionId, FunctionKind, LABELS_LEFT_OUT, ModuleId,
    NativeSymbol, OTHER_STACK, ROOT, SourceText, StackId, TRUNCATED, TextId, UNLOADED,
    UniqueStacks, is_placeholder, is_whole_stack,
};
