//! Integrations with other crates, each behind a feature.
//!
//! # Purpose
//! Records what the application reports through `log` and `tracing` as markers and labels: a logger
//! and a layer, which the application installs like any other.
//!
//! # Threads and locks
//! All code runs on the thread that logs or enters a span. Each thread caches its entered spans and
//! its buffers. A span that a session records is kept in a table (`open_spans.rs`), where any
//! thread finds it by its id. Each slot of the table has a lock, which all spans of that slot
//! share. It is held for a few stores, seldom for an allocation, and never while a value is
//! formatted. Every wait for it is bounded.
//!
//! # Imports
//! `api`, `markers`, `types`, `util`
//!
//! # Invariants
//! Values are formatted only for what is recorded. A value of the application may log, open spans
//! or panic while it is formatted; this affects only its own text. No other module imports this
//! one.
//!
//! # Read next
//! `application_text.rs`, `logger.rs`; `layer.rs`, `entered_spans.rs`, `open_spans.rs`,
//! `field_values.rs`.

mod application_text;
mod log;
mod pooled_bytes;
mod tracing;
mod viewer_log;

#[cfg(feature = "log")]
pub use log::ProfilerLogger;
#[cfg(feature = "tracing")]
pub use tracing::ProfilerLayer;
