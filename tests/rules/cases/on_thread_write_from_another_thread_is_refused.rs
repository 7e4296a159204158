//! Rule: only the thread itself writes the data that it announces.
include!("layers.in");

fn broken(thread: &threads::OffThreadRef) {
    thread.unlocked_reader_and_atomic_rw_on_thread().announce(true);
}

fn main() {}
