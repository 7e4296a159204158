//! Rule: the data lock's rung for the own thread is had there alone.
include!("layers.in");

fn broken(thread: &threads::OffThreadRef) {
    thread.locked_rw_on_thread().adopt_after_fork();
}

fn main() {}
