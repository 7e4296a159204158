//! The writers of the formats, one file or folder each.

#[cfg(feature = "protobuf")]
mod flow_fields;
#[cfg(feature = "protobuf")]
mod marker_intervals;
#[cfg(feature = "protobuf")]
mod perfetto;
#[cfg(feature = "protobuf")]
mod pprof;
#[cfg(all(test, feature = "protobuf"))]
mod protobuf_sample;
#[cfg(feature = "protobuf")]
mod visible_frames;

#[cfg(feature = "protobuf")]
pub(crate) use perfetto::write_perfetto;
#[cfg(feature = "protobuf")]
pub(crate) use pprof::write_pprof;
