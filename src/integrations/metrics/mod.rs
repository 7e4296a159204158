//! Counters, gauges and histograms of the `metrics` crate as tracks.

mod recorder;
mod registry;
mod tracks;

pub use recorder::ProfilerRecorder;
