//! Selects the writer of a format.

use std::io::{self, Write};

use crate::export::format::Format;
use crate::export::options::ExportOptions;
use crate::export::summary::write_text;
use crate::export::write::{
    chrome_trace, collapsed, cpuprofile, flame_graph, gecko, js_self_profile, processed,
    speedscope, svg, timed_flame_graph,
};
#[cfg(feature = "protobuf")]
use crate::export::write::{perfetto, pprof};
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
