//! Rule: a change of what a session records of a thread requires the `PsLock`.
include!("layers.in");

fn broken(thread: &threads::OffThreadRef) {
    thread.unlocked_rw_for_locked_profiler().clear_profiling_features();
}

fn main() {}
