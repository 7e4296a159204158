//! Edges to other crates, each behind a feature.
//!
//! # Purpose
//! What the program says by way of `log` and `tracing` becomes markers and labels: a logger and a layer that a host installs
//! where it installs its own.
//!
//! # Threads and locks
//! Everything runs on the thread that logs, or enters a span. What a thread needs again it keeps for itself. What a span needs that a
//! session records lies in a table of this room (`open_spans.rs`), in which any thread finds it by its id. Each slot of that has a
//! lock, which spans share that fall into the slot. It is held for a few stores, seldom an allocation, and never while a value is
//! formatted; nobody waits for it without end.
//!
//! # Imports
//! `api`, `base`, `markers`
//!
//! # Invariants
//! Where nothing is recorded nothing is formatted. A value of the host's that logs, opens spans or panics while it is formatted
//! spoils no more than itself. Nobody imports this room.
//!
//! # Read next
//! `host_text.rs`, `logger.rs`; `layer.rs`, `entered_spans.rs`, `open_spans.rs`, `field_values.rs`.

#[cfg(feature = "tracing")]
mod callsites;
#[cfg(feature = "tracing")]
mod entered_spans;
#[cfg(feature = "tracing")]
mod event_marker;
#[cfg(feature = "tracing")]
mod field_values;
mod host_text;
#[cfg(feature = "tracing")]
mod layer;
#[cfg(feature = "log")]
mod log_record;
#[cfg(feature = "log")]
mod logger;
#[cfg(feature = "tracing")]
mod open_spans;
mod pooled_bytes;
#[cfg(feature = "tracing")]
mod short_code;
#[cfg(feature = "tracing")]
mod span_flow;
#[cfg(feature = "tracing")]
mod span_marker;
mod viewer_log;

#[cfg(feature = "tracing")]
pub use layer::ProfilerLayer;
#[cfg(feature = "log")]
pub use logger::ProfilerLogger;
