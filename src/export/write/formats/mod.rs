//! The formats of Chrome's DevTools, speedscope and d3-flame-graph.

#[cfg(test)]
mod chrome_sample;
mod chrome_trace;
mod cpuprofile;
mod flame_graph;
mod js_self_profile;
mod marker_spans;
mod profile_calls;
mod profile_nodes;
mod speedscope;
mod ticks;
mod timed_flame_graph;
mod trace_events;
mod trace_flows;
mod trace_markers;
mod trace_samples;
mod writer;

pub(super) use writer::writer_of;
