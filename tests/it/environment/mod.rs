//! Environment variables.

mod report;
mod set_user_id;
mod startup_duration;
mod variables;
mod warnings;
