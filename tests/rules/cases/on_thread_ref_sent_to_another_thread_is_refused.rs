//! Rule: an `OnThreadRef` stays on its thread.
include!("layers.in");

fn send<T: Send>(_: T) {}

fn broken(thread: threads::OnThreadRef<'_>) {
    send(thread);
}

fn main() {}
