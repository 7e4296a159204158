//! The ends of the process: `exit`, the signals that end it, and `abort`.

mod exit;
mod gate;
mod signals;

pub(crate) use exit::install_exit_handler;
pub(crate) use gate::{
    EndRequest, WaitEnd, begin_save, close_gate, finish_save, is_open_in_handler as is_gate_open,
    is_saving_thread_in_handler as is_saving_thread, open_gate,
    request_save_in_handler as request_save, serve_gate, signal_survived, wait_for_request,
    wait_for_running_save, wait_for_save_in_handler as wait_for_save,
};
pub(crate) use signals::{
    die_by_in_handler as die_by_signal, release_end_signals, take_end_signals,
};
