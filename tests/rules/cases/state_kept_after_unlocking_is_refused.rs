//! Rule: references to state guarded by the `PsLock` end before the lock is released.
include!("layers.in");

fn broken() -> bool {
    let lock = util::PsLock::acquire();
    let active = state::ACTIVE_PS.get(&lock);
    drop(lock);
    active.is_some()
}

fn main() {}
