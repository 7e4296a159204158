//! `label`: time to push and pop a label.
//!
//! The arms' batches are interleaved in one process, and their order rotates. A run's figure is the
//! median of its arm's batches, and each round is a separate process. A batch is a loop that
//! repeats the same scope eight times per round. Each scope contains something opaque to the
//! compiler, so that no push is removed or merged with the next. All figures include the loop.
//!
//! The scopes contain no store of the application. With one in each, the total was 1.62 ns on a
//! machine where a push and a pop took 1.35 ns and the store alone 0.15 ns: more than the sum.
//!
//! `ours` runs in a session at 1,000 Hz, on a thread that it samples; `ours_inactive` runs without
//! a session, `ours_unregistered` on an unregistered thread. puffin's scopes and tracing's spans have
//! no listener; `puffin_on` records its scopes, a thousand of them in an outer scope.

use gekkota::auto_profiler_label;

use crate::batch::{batch, relaxed_load};
use crate::prelude::*;
use crate::turns::{Arm, Turns, in_session, registered};

/// Rounds of the loop per batch: a few milliseconds, except for an arm that records.
const ROUNDS: u32 = 200_000;
const ROUNDS_RECORDED: u32 = 125;

const ARMS: [Arm<()>; 7] = [
    ("ours", |_| in_session(labels)),
    ("ours_inactive", |_| registered(labels)),
    ("ours_unregistered", |_| unregistered()),
    ("puffin", |_| Ok(puffin_off())),
    ("tracing", |_| Ok(tracing_span())),
    ("relaxed_load", |_| Ok(relaxed_load(ROUNDS))),
    ("puffin_on", |_| Ok(puffin_on())),
];

pub(crate) const MEASUREMENT: Measurement = Measurement {
    name: "label",
    unit: "ns per push and pop, including the loop",
    goal: "ours <= 1.5 ns, in a session, without a session, and on an unregistered thread",
    peers: &["puffin", "tracing"],
    floor: "relaxed_load",
    is_met: |study| study.at_most(&["ours", "ours_inactive", "ours_unregistered"], 1.5),
    rounds: [3, 9],
    sizes: [&[20], &[100]],
    size_names: &["batches of 1,600,000 scopes per arm"],
    part: |arguments| Ok(Turns::run(arguments.get(1)?, &ARMS, &())?.answer()),
    ..Measurement::NEW
};

/// Runs a batch of labels. All arms of ours run this one copy of the machine code.
#[inline(never)]
fn labels() -> f64 {
    batch!(ROUNDS, auto_profiler_label!("a label", Other))
}

/// Runs on a new thread: the main thread is registered from the first session on.
fn unregistered() -> Fallible<f64> {
    let thread = std::thread::spawn(labels);
    thread.join().map_err(|_| "a thread panicked".into())
}

#[inline(never)]
fn puffin_off() -> f64 {
    puffin::set_scopes_on(false);
    batch!(ROUNDS, puffin::profile_scope!("a label"))
}

#[inline(never)]
fn puffin_on() -> f64 {
    puffin::set_scopes_on(true);
    let time = {
        puffin::profile_scope!("around");
        batch!(ROUNDS_RECORDED, puffin::profile_scope!("a label"))
    };
    puffin::set_scopes_on(false);
    puffin::GlobalProfiler::lock().new_frame();
    time
}

#[inline(never)]
fn tracing_span() -> f64 {
    batch!(ROUNDS, let _entered = tracing::info_span!("a label").entered())
}
