//! Rule: a change of the features that are read without a lock requires the `PsLock`.
include!("layers.in");

fn broken() {
    state::RacyFeatures::set_active(types::Features::NONE);
}

fn main() {}
