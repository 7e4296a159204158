//! What the server computes: a library that logs by way of `log`, and has never heard of a profiler.

use std::hint::black_box;
use std::time::{Duration, Instant};

/// Reads what is asked for.
#[tracing::instrument]
pub(crate) fn parse(path: &str) {
    compute(Duration::from_micros(500));
    log::info!("asked for {path}");
}

/// Makes rows of what the database has said; `None` where it knows nothing.
pub(crate) fn decode(path: &str) -> Option<usize> {
    compute(Duration::from_millis(1));
    match path {
        "/missing" => {
            log::warn!("nothing is known of {path}");
            None
        }
        "/report" => Some(40),
        _ => Some(10),
    }
}

/// Makes a page of rows.
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
