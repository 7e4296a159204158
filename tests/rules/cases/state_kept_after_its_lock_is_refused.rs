//! Rule: what was reached by a `PsLock` is let go before the lock.
include!("layers.in");

fn broken() -> bool {
    let lock = util::PsLock::acquire();
    let active = state::ACTIVE_PS.get(&lock);
    drop(lock);
    active.is_some()
}

fn main() {}
