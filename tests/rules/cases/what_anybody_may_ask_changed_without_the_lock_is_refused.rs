//! Rule: what anybody may ask without a lock changes under the `PsLock`.
include!("layers.in");

fn broken() {
    state::RacyFeatures::set_active(types::Features::NONE);
}

fn main() {}
