//! What must not go on in one thread while another forks a child that uses the loader.
//!
//! glibc 2.36 takes `dl_load_write_lock` in `dlopen`, `dlclose` and `dl_iterate_phdr`, and does not make it new in the
//! child of a `fork`. A child that was forked while some thread held it waits for ever in its own `dl_iterate_phdr`,
//! profiler or not. So those who call the loader come through here on one side, and a fork whose child takes a profile
//! on the other. Forks whose children only look and end, or call `exec`, happen at any moment.

use std::sync::{PoisonError, RwLock};

static GATE: RwLock<()> = RwLock::new(());

/// Runs `body`, which calls the loader.
pub fn while_nobody_forks_a_profiler<T>(body: impl FnOnce() -> T) -> T {
    let _passed = GATE.read().unwrap_or_else(PoisonError::into_inner);
    body()
}

/// Runs `body`, which forks, while nobody calls the loader.
pub fn while_nobody_calls_the_loader<T>(body: impl FnOnce() -> T) -> T {
    let _passed = GATE.write().unwrap_or_else(PoisonError::into_inner);
    body()
}
