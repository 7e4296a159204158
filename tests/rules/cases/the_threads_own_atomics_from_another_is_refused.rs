//! Rule: what a thread says of itself, it alone says.
include!("layers.in");

fn broken(thread: &threads::OffThreadRef) {
    thread.unlocked_reader_and_atomic_rw_on_thread().announce(true);
}

fn main() {}
