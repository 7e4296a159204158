//! Rule: the `PsLock` stays on the thread that took it.
include!("layers.in");

fn send<T: Send>(_: T) {}

fn broken() {
    send(util::PsLock::acquire());
}

fn main() {}
