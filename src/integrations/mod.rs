//! Integrations with other crates, each behind a feature.
//!
//! # Purpose
//! Records what the application reports through `log` and `tracing` as markers and labels, and through
//! `metrics` as counters: a logger, a layer and a recorder, which the application installs like any
//! other.
//!
//! # Threads and locks
//! All code runs on the thread that logs, enters a span or uses a metric. Each thread caches its
//! entered spans and its buffers. A span that a session records is kept in a table (`open_spans.rs`), where any
//! thread finds it by its id. Each slot of the table has a lock, which all spans of that slot
//! share. It is held for a few stores, seldom for an allocation, and never while a value is
//! formatted. The metrics are in tables, too (`registry.rs`), under locks that are shared except
//! when a metric is new. Every wait for these locks is bounded (`bounded_wait.rs`).
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
//! `application_text.rs`, `log.rs`; `layer.rs`, `entered_spans.rs`, `open_spans.rs`,
//! `field_values.rs`; `recorder.rs`, `registry.rs`, `tracks.rs`.

mod application_text;
mod bounded_wait;
#[cfg(feature = "log")]
pub(crate) mod log;
#[cfg(feature = "metrics")]
pub(crate) mod metrics;
#[cfg(feature = "tracing")]
pub(crate) mod tracing;
mod viewer_log;
