//! The delay of event loops.

mod event_delay;
mod event_probes;
mod loops;
