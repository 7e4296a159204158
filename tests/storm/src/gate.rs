//! A gate between threads that call the loader and threads that fork a child which uses the loader.
//!
//! glibc 2.36 takes `dl_load_write_lock` in `dlopen`, `dlclose` and `dl_iterate_phdr`, and does not
//! reset it in the child of a `fork`. A child that was forked while some thread held the lock
//! blocks for ever in its own `dl_iterate_phdr`, with and without a profiler. So calls of the
//! loader exclude forks whose child takes a profile. Forks whose children only check the profiler,
//! or call `exec`, happen at any time.

use std::sync::{PoisonError, RwLock};

static GATE: RwLock<()> = RwLock::new(());

/// Runs `body`, which calls the loader.
pub fn without_profiling_forks<T>(body: impl FnOnce() -> T) -> T {
    let _passed = GATE.read().unwrap_or_else(PoisonError::into_inner);
    body()
}

/// Runs `body`, which forks, while no thread calls the loader.
pub fn without_loader_calls<T>(body: impl FnOnce() -> T) -> T {
    let _passed = GATE.write().unwrap_or_else(PoisonError::into_inner);
    body()
}
