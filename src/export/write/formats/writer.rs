//! Selects the writer of one of these formats.

use crate::export::options::Writer;
use crate::export::write::formats::{
    chrome_trace, cpuprofile, flame_graph, js_self_profile, speedscope, timed_flame_graph,
};
use crate::types::Format;

/// Returns the writer of one of these formats.
pub(crate) fn writer_of(format: Format) -> Option<Writer> {
    Some(match format {
        Format::CpuProfile => cpuprofile::write_cpuprofile,
        Format::JsSelfProfile => js_self_profile::write_js_self_profile,
        Format::D3FlameGraph => timed_flame_graph::write_timed_flame_graph,
        Format::D3FlameGraphMerged => flame_graph::write_flame_graph,
        Format::ChromeTrace => chrome_trace::write_chrome_trace,
        Format::Speedscope => speedscope::write_speedscope,
        _ => return None,
    })
}
