//! Rule: the accessors of an `OnThreadRef` stay on its thread.
include!("layers.in");

fn send<T: Send>(_: T) {}

fn broken(thread: threads::OnThreadRef<'_>) {
    send(thread.unlocked_reader_and_atomic_rw_on_thread());
}

fn main() {}
