//! Signals of the application, and control by signals.

mod control;
mod control_edges;
mod foreign;
mod hosts_event;
mod replaced_handler;
