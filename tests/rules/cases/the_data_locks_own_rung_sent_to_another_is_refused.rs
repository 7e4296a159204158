//! Rule: the data lock's rung for the own thread stays there.
include!("layers.in");

fn send<T: Send>(_: T) {}

fn broken(thread: threads::OnThreadRef<'_>) {
    send(thread.locked_rw_on_thread());
}

fn main() {}
