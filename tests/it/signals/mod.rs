//! Signals of the application, and control by signals.

mod awaited;
mod chained;
mod choice;
mod control;
mod control_edges;
mod foreign;
mod hosts_event;
mod over_foreign;
mod pending_limit;
mod replaced_handler;
mod small_stack;
