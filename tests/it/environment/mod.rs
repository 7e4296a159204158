//! Environment variables.

mod set_user_id;
mod startup_duration;
mod variables;
