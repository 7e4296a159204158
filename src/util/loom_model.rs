//! Runs models of concurrent code under loom, which tries the possible orders of their operations.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

/// Maximum number of preemptions in an order that is tried. Without a bound, trying all orders
/// takes minutes.
const MAX_PREEMPTIONS: usize = 3;

/// Runs a model in all orders with at most [`MAX_PREEMPTIONS`], or `LOOM_MAX_PREEMPTIONS`,
/// preemptions.
///
/// The model returns which of its `outcomes` an order led to. Each outcome must occur, so that no
/// assertion of the model is vacuous.
pub(crate) fn explore_model<const N: usize>(
    outcomes: [&'static str; N],
    model: impl Fn() -> &'static str + Send + Sync + 'static,
) {
    let seen = Arc::new(Mutex::new(BTreeSet::new()));
    let seen_by_model = Arc::clone(&seen);
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound.get_or_insert(MAX_PREEMPTIONS);
    builder.check(move || {
        let outcome = model();
        let mut seen = seen_by_model.lock().expect("no panic under the lock");
        seen.insert(outcome);
    });
    let seen = seen.lock().expect("no panic under the lock");
    assert_eq!(*seen, BTreeSet::from(outcomes));
}
