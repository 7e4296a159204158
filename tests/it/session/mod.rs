//! Start, stop, pause, and the callbacks of a session.

mod across_sessions;
mod after_sampling;
mod any_order;
mod ensure_started;
mod feature_combinations;
mod pause;
mod sampler_overheads;
mod start_edges;
mod start_errors;
mod start_stop;
mod state_callbacks;
