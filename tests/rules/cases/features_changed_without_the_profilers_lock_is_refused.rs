//! Rule: and under the `PsLock`.
include!("layers.in");

fn broken(thread: &threads::OffThreadRef) {
    thread.locked_rw_from_any_thread().clear_profiling_features();
}

fn main() {}
