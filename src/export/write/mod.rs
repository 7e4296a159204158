//! The writers, one file or folder for each format.

pub(crate) mod chrome_trace;
pub(crate) mod collapsed;
pub(crate) mod cpuprofile;
pub(crate) mod flame_graph;
mod flame_tree;
pub(crate) mod js_self_profile;
pub(crate) mod speedscope;
pub(crate) mod svg;
mod trace_flows;
mod trace_markers;
mod trace_samples;
