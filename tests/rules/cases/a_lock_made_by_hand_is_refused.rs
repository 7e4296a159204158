//! Rule: there is no `PsLock` but the one that was waited for.
include!("layers.in");

fn broken(real: util::PsLock) -> util::PsLock {
    util::PsLock { guard: real.guard, own_thread: std::marker::PhantomData }
}

fn main() {}
