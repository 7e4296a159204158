//! Rule: an `OnThreadRef` ends with the call that receives it, as the registration may end then.
include!("layers.in");

fn broken() {
    let kept = threads::OnThreadRef::with(|thread| thread);
    drop(kept);
}

fn main() {}
