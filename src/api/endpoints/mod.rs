//! Profiles for clients that ask a running program over HTTP.

mod answer;
mod ask;
#[cfg(feature = "http")]
mod http_server;
mod limits;
mod question;

pub use answer::{EndpointAnswer, EndpointError};
pub use ask::{
    AskFuture, answer, answer_async, flamegraph_svg, gecko, pprof_cpu, pprof_heap, pprof_wall,
    summary_text, threads_text,
};
#[cfg(feature = "http")]
pub use http_server::HttpServer;
pub use limits::{EndpointLimits, set_endpoint_limits};
pub use question::{Endpoint, Question};

/// Starts the server that the variables ask for, once in a process.
#[cfg(has_profiler)]
pub(super) fn serve_if_asked() {
    let Some((address, token)) = crate::api::backend::take_http_settings() else {
        return;
    };
    #[cfg(feature = "http")]
    let served = http_server::serve_for_variables(&address, token.as_deref())
        .map(|address| format!("serving profiles at http://{address}/"));
    #[cfg(not(feature = "http"))]
    let served: Result<String, String> = {
        let _ = (address, token);
        Err("cannot serve profiles: got a build without the crate's feature `http`, expected one with it".to_owned())
    };
    crate::api::backend::notify_user(&served.unwrap_or_else(|error| error));
}
