//! Writers, one file for each format.

pub(crate) mod chrome_trace;
pub(crate) mod cpuprofile;
pub(crate) mod js_self_profile;
mod trace_flows;
mod trace_markers;
mod trace_samples;
