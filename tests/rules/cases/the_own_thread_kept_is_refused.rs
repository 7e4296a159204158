//! Rule: an `OnThreadRef` ends with the call that was given it, as the registration may.
include!("layers.in");

fn broken() {
    let kept = threads::OnThreadRef::with(|thread| thread);
    drop(kept);
}

fn main() {}
