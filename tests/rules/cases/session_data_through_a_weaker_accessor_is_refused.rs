//! Rule: accessors weaker than that of the locked profiler do not give access to session data.
include!("layers.in");

fn broken(thread: &threads::OffThreadRef, lock: &util::PsLock) {
    thread.unlocked_const_reader_and_atomic_rw().profiled_thread_data(lock);
}

fn main() {}
