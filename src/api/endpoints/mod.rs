//! Profiles for clients that ask a running program over HTTP.

mod answer;
mod ask;
mod question;
#[cfg(all(has_profiler, feature = "http"))]
pub(super) mod server;

pub use answer::{EndpointAnswer, EndpointError};
pub use ask::{
    AskFuture, answer, answer_async, flamegraph_svg, gecko, pprof_cpu, pprof_heap, pprof_wall,
    summary_text, threads_text,
};
pub use question::{Endpoint, EndpointLimits, Question, set_endpoint_limits};
