//! The writers, one file or folder for each format. Those that few need are in features.

mod any_format;
#[cfg(feature = "formats")]
mod chrome_trace;
mod collapsed;
#[cfg(feature = "formats")]
mod cpuprofile;
#[cfg(feature = "formats")]
mod flame_graph;
mod flame_tree;
#[cfg(any(feature = "formats", feature = "protobuf"))]
mod flow_fields;
#[cfg(feature = "formats")]
mod js_self_profile;
#[cfg(feature = "protobuf")]
mod marker_intervals;
#[cfg(feature = "otlp-unstable")]
mod otlp;
#[cfg(feature = "protobuf")]
mod pprof;
mod processed;
#[cfg(all(test, feature = "protobuf"))]
mod protobuf_sample;
#[cfg(feature = "formats")]
mod speedscope;
mod stacks;
mod svg;
#[cfg(feature = "formats")]
mod timed_flame_graph;
#[cfg(feature = "formats")]
mod trace_events;
#[cfg(feature = "formats")]
mod trace_flows;
#[cfg(feature = "formats")]
mod trace_markers;
#[cfg(feature = "formats")]
mod trace_samples;
mod visible_frames;

pub(crate) use any_format::write_profile;
#[cfg(feature = "otlp-unstable")]
pub(crate) use otlp::{OtlpResource, write_otlp};
