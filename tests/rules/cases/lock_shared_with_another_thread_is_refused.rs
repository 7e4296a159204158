//! Rule: the `PsLock` is not shared with another thread.
include!("layers.in");

fn lend<T: Send>(_: T) {}

fn broken(lock: &util::PsLock) {
    lend(lock);
}

fn main() {}
