//! The formats of Chrome's DevTools, speedscope and d3-flame-graph.

mod chrome_trace;
mod cpuprofile;
mod d3_flame_graphs;
mod js_self_profile;
mod profile_calls;
mod speedscope;
#[cfg(test)]
mod test_chrome_profile;
mod trace_markers;
mod v8_profile;

use crate::export::options::Writer;
use crate::types::Format;

/// Returns the writer of one of these formats.
pub(crate) fn writer_of(format: Format) -> Option<Writer> {
    Some(match format {
        Format::CpuProfile => cpuprofile::write_cpuprofile,
        Format::JsSelfProfile => js_self_profile::write_js_self_profile,
        Format::D3FlameGraph => d3_flame_graphs::write_timed_flame_graph,
        Format::D3FlameGraphMerged => d3_flame_graphs::write_flame_graph,
        Format::ChromeTrace => chrome_trace::write_chrome_trace,
        Format::Speedscope => speedscope::write_speedscope,
        _ => return None,
    })
}
