//! Writing profiles.

mod duration;
mod exit_profiles;
mod failing_writers;
mod formats;
mod gecko_json;
mod max_rows;
mod process;
mod progress;
mod recycling;
mod snapshots_side_by_side;
