//! The writers, one file or folder for each format. Those that few need are in features.

mod any_format;
mod collapsed;
mod flame_tree;
mod flow_fields;
#[cfg(feature = "formats")]
mod formats;
#[cfg(feature = "protobuf")]
mod marker_intervals;
#[cfg(feature = "otlp-unstable")]
mod otlp;
#[cfg(feature = "protobuf")]
mod pprof;
mod processed;
#[cfg(all(test, feature = "protobuf"))]
mod protobuf_sample;
mod stacks;
mod svg;
mod visible_frames;

pub(crate) use any_format::write_profile;
#[cfg(feature = "otlp-unstable")]
pub(crate) use otlp::{OtlpResource, write_otlp};
