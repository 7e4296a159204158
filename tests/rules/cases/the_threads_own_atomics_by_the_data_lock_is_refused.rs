//! Rule: the data lock does not give another thread what the thread says of itself.
include!("layers.in");

fn broken(thread: &threads::OffThreadRef) {
    thread.locked_rw_from_any_thread().announce(true);
}

fn main() {}
