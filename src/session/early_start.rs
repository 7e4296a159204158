//! The start before `main`, by a constructor of the program.
//!
//! Gecko starts a small Base Profiler early, whose data the main profiler takes over. Here both are
//! one: `profiler_init` continues the session that the constructor has started.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::platform::{
    install_lasting_signal_stack, is_in_executable, is_main_thread, open_missing_standard_streams,
};
use crate::session::env::environment;
use crate::session::life_cycle::init_early;
use crate::session::notices;

/// See `early_start!`. `constructor` is the address of the function that the loader has called.
/// Never panics.
///
/// The standard library's runtime begins later, and goes by what it finds. So this prepares what
/// the runtime would have prepared.
pub(crate) fn start_early(constructor: usize) {
    let start = || {
        if environment::is_early_startup_on() && is_start_of_program(constructor) {
            // Before a file is opened, which could get the number of a standard stream.
            open_missing_standard_streams();
            // Before the main thread registers, which gives it a stack until `profiler_shutdown`.
            install_lasting_signal_stack();
            init_early();
        }
    };
    if catch_unwind(AssertUnwindSafe(start)).is_err() {
        notices::notify("cannot start before main: the profiler panicked");
    }
}

/// Returns whether the constructor belongs to the program, rather than to a library that a running
/// program loads.
fn is_start_of_program(constructor: usize) -> bool {
    is_main_thread() && is_in_executable(constructor)
}
