//! The writers, one file or folder for each format.

mod chrome_trace;
mod collapsed;
mod cpuprofile;
mod flame_graph;
mod flame_tree;
#[cfg(feature = "protobuf")]
mod flow_fields;
mod gecko;
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
mod trace_flows;
mod trace_markers;
mod trace_samples;
#[cfg(feature = "protobuf")]
mod visible_frames;

#[cfg(test)]
pub(super) use gecko::write_gecko;

use std::io::{self, Write};

use crate::export::format::Format;
use crate::export::options::ExportOptions;
use crate::export::summary::write_text;
use crate::model::ProfileModel;
use crate::util::ProgressLogger;

/// Writes a profile in a format.
///
/// # Errors
/// The first error of `out`; or [`io::ErrorKind::InvalidInput`] if the options choose no thread, or
/// [`io::ErrorKind::Unsupported`] if this build cannot write the format.
pub(crate) fn write_profile(
    profile: &ProfileModel,
    format: Format,
    options: &ExportOptions,
    out: &mut dyn Write,
    progress: &ProgressLogger,
) -> io::Result<()> {
    let write = match format {
        Format::Gecko => gecko::write_gecko,
        Format::Processed => processed::write_processed,
        #[cfg(feature = "protobuf")]
        Format::Pprof => pprof::write_pprof,
        #[cfg(feature = "protobuf")]
        Format::Perfetto => perfetto::write_perfetto,
        #[cfg(not(feature = "protobuf"))]
        Format::Pprof | Format::Perfetto => {
            let message = format!(
                "cannot write {}: this build lacks the crate's feature `protobuf`",
                format.name()
            );
            return Err(io::Error::new(io::ErrorKind::Unsupported, message));
        }
        Format::CpuProfile => cpuprofile::write_cpuprofile,
        Format::JsSelfProfile => js_self_profile::write_js_self_profile,
        Format::D3FlameGraph => timed_flame_graph::write_timed_flame_graph,
        Format::D3FlameGraphMerged => flame_graph::write_flame_graph,
        Format::Collapsed => collapsed::write_collapsed,
        Format::Svg => svg::write_svg,
        Format::ChromeTrace => chrome_trace::write_chrome_trace,
        Format::Speedscope => speedscope::write_speedscope,
        Format::Text => write_text,
    };
    write(profile, options, out, progress)
}
