//! Signals: the sampling signal and its handler, control signals and their pipe, events of
//! a thread's CPU clock.

pub(super) mod control_pipe;
pub(super) mod fault_handlers;
pub(super) mod handler;
#[forbid(unsafe_code)]
mod other_copy;
mod pipe_end;
pub(super) mod task_clock;
