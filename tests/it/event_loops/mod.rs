//! Event delays: how long event loops keep their events waiting.

mod event_delay;
mod event_probes;
mod loops;
