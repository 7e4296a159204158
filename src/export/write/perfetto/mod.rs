//! Writes Perfetto traces: a `Trace` of `TracePacket`s.
//!
//! - Samples are `TracePacket.stack_sample`, which trace processors read from v58 on; older ones
//!   show the rest. A sample weighs one interval (`wall`) and, beside it, the CPU time that is
//!   charged to it (`cpu`); `SampleWeight::Cpu` exchanges the two. A sample that is weighted by bytes
//!   weighs these instead; a negative weight counts as 0.
//! - Markers are track events on their thread's track, with their category, fields and stack.
//!   Intervals that overlap without nesting are on further tracks below it. Fields that name flows
//!   become flows, too.
//! - Counters are counter tracks of their process: the sum of the values for memory, the values
//!   themselves for others.
//!
//! Times are on the trace's own clock, from the profile's earliest entry or its start, whichever is
//! earlier. A clock snapshot says when that was.

mod events;
mod lanes;
mod messages;
mod packets;
mod profile;
mod tracks;

pub(crate) use profile::write_perfetto;

#[cfg(test)]
mod perfetto_tests;
