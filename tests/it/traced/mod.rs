//! The signal handler and the marker path, traced by ptrace, instruction by instruction.

mod handler_calls;
mod handler_steps;
mod marker_steps;
mod tracer;
