//! Writes OpenTelemetry's profiles, of the version that is called `v1development` and may change.
//!
//! A request has one profile for each kind of value, because the format allows one: `samples/count`,
//! `wall/nanoseconds` and `cpu/nanoseconds`. All samples have one shape: a value, and no times. The
//! first element of each table is empty. Tables have no duplicates, and samples refer to all other
//! elements. Mappings have build ids. A sample of a span has a link with the ids of trace and span.

mod dictionary;
mod messages;
mod request;

pub(crate) use request::{OtlpResource, write_otlp};

#[cfg(test)]
mod otlp_tests;
