//! The computations of the server, as in a library that logs with `log` and does not use the
//! profiler.

use std::hint::black_box;
use std::time::{Duration, Instant};

/// Parses a request.
#[tracing::instrument]
pub(crate) fn parse(path: &str) {
    compute(Duration::from_micros(500));
    log::info!("request for {path}");
}

/// Decodes the database's answer and returns the number of rows, or `None` for an unknown path.
pub(crate) fn decode(path: &str) -> Option<usize> {
    compute(Duration::from_millis(1));
    match path {
        "/missing" => {
            log::warn!("unknown path {path}");
            None
        }
        "/report" => Some(40),
        _ => Some(10),
    }
}

/// Renders a page with this many rows.
pub(crate) fn render(rows: usize) {
    for row in 0..rows {
        compute(Duration::from_micros(250));
        log::trace!("row {row}");
    }
    log::debug!("{rows} rows");
}

#[inline(never)]
fn compute(time: Duration) {
    let end = Instant::now() + time;
    let mut value = 1u64;
    while Instant::now() < end {
        for _ in 0..1000 {
            value = black_box(
                value
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1),
            );
        }
    }
}
