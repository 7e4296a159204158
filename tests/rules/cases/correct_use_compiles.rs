//! Correct uses of the lower layers.
include!("layers.in");

use types::{Generation, ThreadProfilingFeatures};
use util::PsLock;
use threads::{OffThreadRef, OnThreadRef, ProfiledThreadData};

fn on_the_thread(thread: OnThreadRef<'_>) -> OffThreadRef {
    let own = thread.unlocked_reader_and_atomic_rw_on_thread();
    own.announce(true);
    thread.to_off_thread()
}

fn from_another(thread: &OffThreadRef, session: Generation) -> Option<usize> {
    let lock = PsLock::acquire();
    let data = ProfiledThreadData { live_index: 3, end_position: None };
    thread.unlocked_rw_for_locked_profiler().set_profiling_features(
        session,
        ThreadProfilingFeatures::MARKERS,
        data,
        &lock,
    );
    let profiler = thread.unlocked_rw_for_locked_profiler();
    profiler.profiled_thread_data(&lock).map(|data| data.live_index)
}

fn main() {
    let _ = (on_the_thread, from_another, state::ACTIVE_PS.get(&PsLock::acquire()).is_none());
}
