//! Rule: the `PsLock` is not lent to another thread either.
include!("layers.in");

fn lend<T: Send>(_: T) {}

fn broken(lock: &util::PsLock) {
    lend(lock);
}

fn main() {}
