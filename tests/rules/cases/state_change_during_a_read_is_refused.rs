//! Rule: a change of state guarded by the `PsLock` is exclusive.
include!("layers.in");

fn broken() -> bool {
    let mut lock = util::PsLock::acquire();
    let active = state::ACTIVE_PS.get(&lock).as_ref();
    *state::ACTIVE_PS.get_mut(&mut lock) = None;
    active.is_some()
}

fn main() {}
