//! A library that contains the profiler. Its tests load it into a process that also has another
//! copy of the profiler.

mod captured;

use gekkota::{ControlSignals, StartParams};

/// Starts a session of this copy, with its default signal. Returns whether that succeeded.
#[unsafe(no_mangle)]
pub extern "C" fn plugin_start() -> bool {
    gekkota::profiler_start(StartParams::default()).is_ok()
}

/// Starts a session of this copy that samples with `SIGUSR1`. Returns whether that succeeded.
#[unsafe(no_mangle)]
pub extern "C" fn plugin_start_by_usr1() -> bool {
    gekkota::profiler_start(StartParams::default().signal(libc::SIGUSR1)).is_ok()
}

/// Lets the default signals start and stop this copy. Returns whether that succeeded.
#[unsafe(no_mangle)]
pub extern "C" fn plugin_control() -> bool {
    gekkota::profiler_control_by_signals(ControlSignals::default()).is_ok()
}

/// Returns whether this copy has a session.
#[unsafe(no_mangle)]
pub extern "C" fn plugin_is_active() -> bool {
    gekkota::profiler_is_active()
}

/// Registers the calling thread with this copy.
#[unsafe(no_mangle)]
pub extern "C" fn plugin_register_thread() {
    gekkota::register_thread("of the plugin");
}

/// Undoes [`plugin_register_thread`].
#[unsafe(no_mangle)]
pub extern "C" fn plugin_unregister_thread() {
    gekkota::unregister_thread();
}

/// Returns the number of samples that this copy's signal handler has captured in the session.
#[unsafe(no_mangle)]
pub extern "C" fn plugin_captured_samples() -> u64 {
    captured::captured_samples()
}

/// Ends the session of this copy.
#[unsafe(no_mangle)]
pub extern "C" fn plugin_stop() {
    gekkota::profiler_stop();
}
