//! The writers, one file or folder for each format.

mod any_format;
mod chrome_trace;
mod collapsed;
mod cpuprofile;
mod flame_graph;
mod flame_tree;
#[cfg(feature = "protobuf")]
mod flow_fields;
mod gecko;
mod gecko_process;
mod gecko_thread;
mod js_self_profile;
#[cfg(feature = "protobuf")]
mod marker_intervals;
#[cfg(feature = "protobuf")]
mod perfetto;
#[cfg(feature = "protobuf")]
mod pprof;
mod processed;
#[cfg(all(test, feature = "protobuf"))]
mod protobuf_sample;
mod speedscope;
mod svg;
mod timed_flame_graph;
mod trace_events;
mod trace_flows;
mod trace_markers;
mod trace_samples;
#[cfg(feature = "protobuf")]
mod visible_frames;

pub(crate) use any_format::write_profile;
#[cfg(test)]
pub(crate) use gecko::write_gecko;
