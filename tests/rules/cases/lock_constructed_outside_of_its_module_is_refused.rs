//! Rule: only `PsLock::acquire` creates a `PsLock`.
include!("layers.in");

fn broken(real: util::PsLock) -> util::PsLock {
    util::PsLock { _guard: real._guard, own_thread: std::marker::PhantomData }
}

fn main() {}
