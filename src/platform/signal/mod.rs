//! Signals: the sampling signal and its handler, control signals and their pipe, thread timers.

mod control_pipe;
mod cpu_timer;
mod fault_handlers;
mod handler;
#[forbid(unsafe_code)]
mod other_copy;
mod pipe_end;
mod thread_timer;

pub(crate) use control_pipe::{
    ControlPipe, ControlRequest, ControlSignal, check_control_signals, check_dump_signal,
    forget_control_pipe_in_child, prepare_control_signals, release_control_signal, take_signals,
};
pub(crate) use cpu_timer::CpuTimer;
pub(crate) use fault_handlers::keep_out_of_fault_handlers;
pub(crate) use handler::{
    ArrivalInHandler, HandlerCheck, Sent, SignalSource, SignalTicket, ends_process_by_default,
    ensure_handler, has_foreign_handler, install_handler, prepare_handler, read_action,
    resolve_sampling_signal, send_request, signal_is_queued, swap_action,
};
pub(crate) use thread_timer::ThreadTimer;
