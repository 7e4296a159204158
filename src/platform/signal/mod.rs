//! Signals: the sampling signal and its handler, control signals and their pipe, events of
//! a thread's CPU clock.

mod control_pipe;
mod fault_handlers;
mod handler;
mod next_signal;
#[forbid(unsafe_code)]
mod other_copy;
mod pipe_end;
mod task_clock;

pub(crate) use control_pipe::{
    ControlPipe, ControlRequest, ControlSignal, check_control_signals, check_dump_signal,
    forget_control_pipe_in_child, prepare_control_signals, release_control_signal, take_signals,
};
pub(crate) use fault_handlers::keep_out_of_fault_handlers;
pub(crate) use handler::{
    ArrivalInHandler, HandlerCheck, Sent, SignalSource, SignalTicket, ensure_handler,
    has_foreign_handler, install_handler, prepare_handler, read_action, resolve_sampling_signal,
    send_request, signal_is_queued, swap_action,
};
pub(crate) use next_signal::take_free_signal;
pub(crate) use task_clock::{EVENT_NUMBERS, RefusedClock, TaskClock};
