//! Environment variables.

mod startup_duration;
mod variables;
