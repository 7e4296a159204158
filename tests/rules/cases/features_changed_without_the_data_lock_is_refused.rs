//! Rule: what a session records of a thread changes under the thread's data lock.
include!("layers.in");

fn broken(thread: &threads::OffThreadRef, lock: &base::PsLock) {
    thread.unlocked_rw_for_locked_profiler().clear_profiling_features(lock);
}

fn main() {}
