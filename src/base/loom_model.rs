//! Models of what threads do beside each other, tried by loom in the orders that they can take.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

/// So often a thread is interrupted in an order that is tried; one that takes more of them is not tried. All orders without a
/// bound take some minutes.
const MOST_PREEMPTIONS: usize = 3;

/// Tries a model in all orders of [`MOST_PREEMPTIONS`], or of as many as `LOOM_MAX_PREEMPTIONS` says. The model says which of
/// its `ways` an order took, and each must have been taken: so what it asserts is true of something.
pub(crate) fn explore_model<const N: usize>(
    ways: [&'static str; N],
    model: impl Fn() -> &'static str + Send + Sync + 'static,
) {
    let taken = Arc::new(Mutex::new(BTreeSet::new()));
    let seen = Arc::clone(&taken);
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound.get_or_insert(MOST_PREEMPTIONS);
    builder.check(move || {
        let way = model();
        seen.lock().expect("no model panics here").insert(way);
    });
    let taken = taken.lock().expect("no model panics here");
    assert_eq!(*taken, BTreeSet::from(ways));
}
