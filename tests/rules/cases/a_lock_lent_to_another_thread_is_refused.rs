//! Rule: the `PsLock` is not lent to another thread either.
include!("layers.in");

fn lend<T: Send>(_: T) {}

fn broken(lock: &base::PsLock) {
    lend(lock);
}

fn main() {}
