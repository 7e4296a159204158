//! The memory of the application.

use crate::api::backend;
use crate::api::profile::Profile;

/// Returns a profile of the memory that is allocated now, with the stacks that allocated it, and
/// without any other data of the session.
///
/// It has the sampled allocations since the session began that have not been freed. A paused
/// session samples no allocations. Each sample represents a number of bytes, and the sums estimate
/// the true ones. In the viewer, the samples are “Retained memory” of the main thread's track. A
/// pprof profile ([`Format::Pprof`](crate::profile::Format)) has `inuse_space` and `inuse_objects`.
///
/// Needs a running session with
/// [`Features::NATIVE_ALLOCATIONS`](crate::Features::NATIVE_ALLOCATIONS), and a
/// [`ProfilerAllocator`](crate::memory::ProfilerAllocator) as the global allocator. Returns `None`
/// without such a session, without memory, or when called from inside the profiler's own work.
///
/// A session keeps at most 131,072 live samples, and 64 MiB of their stacks. `profilingLog` of the
/// profile counts what it leaves out: `dropped_allocations` and `unkept_allocation_stacks`.
///
/// May be called on any thread. Waits for the sampler's next tick. Takes memory for each live
/// sample.
///
/// ```
/// use gekkota::profile::Format;
///
/// if let Some(heap) = gekkota::memory::profiler_heap_snapshot() {
///     let mut file = Vec::new();
///     heap.write(Format::Gecko, &mut file)?;
/// }
/// # Ok::<(), gekkota::StreamError>(())
/// ```
pub fn profiler_heap_snapshot() -> Option<Profile> {
    backend::heap_snapshot().map(Profile::of_session)
}
