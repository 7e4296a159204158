//! `marker_off`: time to add a marker without a session, compared with a bare relaxed load.
//!
//! A batch is a loop that repeats the same call with constant arguments eight times per round.
//! Something opaque to the compiler follows each call, so that every call checks the state again.
//! `relaxed_load` is the same loop with a load whose result goes to a `black_box`. The batches are
//! interleaved in one process, and their order rotates. A run's figure is the median of its arm's
//! batches, and each round is a separate process.
//!
//! `ours_lazy` is `lazy_add_marker!` with a payload whose text would be copied to the heap. The peers'
//! scopes and spans have no listener: puffin is off, fastrace has no reporter and no parent, `tracing`
//! has no subscriber.

use fastrace::local::LocalSpan;
use gekkota::{
    MarkerOptions, add_marker, add_text_marker, add_untyped_marker, gecko_profiler_category,
    lazy_add_marker,
};

use crate::batch::{batch, relaxed_load};
use crate::marker::{Loaded, TEXT};
use crate::prelude::*;
use crate::turns::{Arm, Turns};

/// Rounds of the loop per batch: a fraction of a millisecond.
const ROUNDS: u32 = 100_000;
const OURS: [&str; 4] = ["ours_text", "ours_untyped", "ours_typed", "ours_lazy"];

const ARMS: [Arm<()>; 8] = [
    ("ours_text", |_| Ok(ours_text())),
    ("puffin", |_| Ok(puffin_off())),
    ("fastrace", |_| Ok(fastrace_off())),
    ("tracing", |_| Ok(tracing_off())),
    ("ours_untyped", |_| Ok(ours_untyped())),
    ("ours_typed", |_| Ok(ours_typed())),
    ("ours_lazy", |_| Ok(ours_lazy())),
    ("relaxed_load", |_| Ok(relaxed_load(ROUNDS))),
];

pub(crate) const MEASUREMENT: Measurement = Measurement {
    name: "marker_off",
    unit: "ns per call without a session, including the loop",
    goal: "ours <= 0.5 ns above a relaxed load: untyped, with a text, with three fields, and lazy",
    ours: "ours_text",
    peers: &["puffin", "fastrace", "tracing"],
    floor: "relaxed_load",
    is_met: |study| study.at_most(&OURS, study.figure("relaxed_load") + 0.5),
    rounds: [3, 9],
    sizes: [&[40], &[200]],
    size_names: &["batches of 800,000 calls per arm"],
    part: |arguments| Ok(Turns::run(arguments.get(1)?, &ARMS, &())?.answer()),
    ..Measurement::NEW
};

#[inline(never)]
fn ours_untyped() -> f64 {
    let category = gecko_profiler_category!(Other);
    batch!(
        ROUNDS,
        add_untyped_marker("a marker", category, MarkerOptions::default())
    )
}

#[inline(never)]
fn ours_text() -> f64 {
    let category = gecko_profiler_category!(Other);
    batch!(
        ROUNDS,
        add_text_marker("a marker", category, MarkerOptions::default(), TEXT)
    )
}

#[inline(never)]
fn ours_typed() -> f64 {
    let category = gecko_profiler_category!(Other);
    let payload = || Loaded {
        bytes: 1,
        share: 0.5,
        file: TEXT.into(),
    };
    batch!(
        ROUNDS,
        add_marker("a marker", category, MarkerOptions::default(), payload())
    )
}

#[inline(never)]
fn ours_lazy() -> f64 {
    let category = gecko_profiler_category!(Other);
    batch!(ROUNDS, {
        lazy_add_marker!(
            "a marker",
            category,
            MarkerOptions::default(),
            Loaded {
                bytes: 1,
                share: 0.5,
                file: TEXT.to_owned().into()
            }
        );
    })
}

#[inline(never)]
fn puffin_off() -> f64 {
    batch!(ROUNDS, puffin::profile_scope!("a marker", TEXT))
}

#[inline(never)]
fn fastrace_off() -> f64 {
    batch!(
        ROUNDS,
        let _span = LocalSpan::enter_with_local_parent("a marker").with_property(|| ("text", TEXT))
    )
}

#[inline(never)]
fn tracing_off() -> f64 {
    batch!(ROUNDS, let _entered = tracing::info_span!("a marker", text = TEXT).entered())
}
