//! Counters, gauges and histograms of the `metrics` crate as tracks.

#[cfg(feature = "metrics")]
mod handles;
#[cfg(feature = "metrics")]
mod metric_texts;
#[cfg(feature = "metrics")]
mod recorder;
#[cfg(feature = "metrics")]
mod registry;
#[cfg(feature = "metrics")]
mod tracks;

#[cfg(feature = "metrics")]
pub use recorder::ProfilerRecorder;
