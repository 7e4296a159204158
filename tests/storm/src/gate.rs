//! Gates: steps that would fail for a reason of their own, without a profiler, exclude each other.
//!
//! A thread that passes both passes the one for descriptors first.

use std::sync::{PoisonError, RwLock};

/// Between threads that call the loader and threads that fork a child which uses the loader.
///
/// glibc 2.36 takes `dl_load_write_lock` in `dlopen`, `dlclose` and `dl_iterate_phdr`, and does not
/// reset it in the child of a `fork`. A child that was forked while some thread held the lock
/// blocks for ever in its own `dl_iterate_phdr`, with and without a profiler. So calls of the
/// loader exclude forks whose child takes a profile. Forks whose children only check the profiler,
/// or call `exec`, happen at any time.
static LOADER: RwLock<()> = RwLock::new(());

/// Between steps of the storm that need a descriptor, and the moments without any. Calls of the
/// profiler happen at any time.
static DESCRIPTORS: RwLock<()> = RwLock::new(());

/// Runs `body`, which calls the loader.
pub fn without_profiling_forks<T>(body: impl FnOnce() -> T) -> T {
    let _passed = LOADER.read().unwrap_or_else(PoisonError::into_inner);
    body()
}

/// Runs `body`, which forks, while no thread calls the loader.
pub fn without_loader_calls<T>(body: impl FnOnce() -> T) -> T {
    let _passed = LOADER.write().unwrap_or_else(PoisonError::into_inner);
    body()
}

/// Runs `body`, which needs descriptors.
pub fn with_descriptors<T>(body: impl FnOnce() -> T) -> T {
    let _passed = DESCRIPTORS.read().unwrap_or_else(PoisonError::into_inner);
    body()
}

/// Runs `body`, which leaves no descriptors to the process.
pub fn without_descriptors<T>(body: impl FnOnce() -> T) -> T {
    let _passed = DESCRIPTORS.write().unwrap_or_else(PoisonError::into_inner);
    body()
}
