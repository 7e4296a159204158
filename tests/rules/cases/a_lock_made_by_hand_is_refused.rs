//! Rule: there is no `PsLock` but the one that was waited for.
include!("layers.in");

fn broken(real: base::PsLock) -> base::PsLock {
    base::PsLock { guard: real.guard, own_thread: std::marker::PhantomData }
}

fn main() {}
