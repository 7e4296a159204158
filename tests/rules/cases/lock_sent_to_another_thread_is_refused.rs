//! Rule: the `PsLock` stays on the thread that acquired it.
include!("layers.in");

fn send<T: Send>(_: T) {}

fn broken() {
    send(util::PsLock::acquire());
}

fn main() {}
