//! A library that asks for a start before `main`, which is not a library's to ask for.

gekkota::early_start!();

/// Returns whether this library's copy of the profiler has a session.
#[unsafe(no_mangle)]
pub extern "C" fn early_library_is_active() -> bool {
    gekkota::profiler_is_active()
}
