//! Rule: reading a session's data of a thread requires the `PsLock`.
include!("layers.in");

fn broken(thread: &threads::OffThreadRef) {
    thread.unlocked_rw_for_locked_profiler().profiled_thread_data();
}

fn main() {}
