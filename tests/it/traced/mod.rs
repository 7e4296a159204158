//! The handler and the marker path, followed by ptrace instruction by instruction.

mod handler_calls;
mod handler_steps;
mod marker_steps;
mod tracer;
