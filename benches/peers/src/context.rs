//! `context`: time to enter and leave the context of a request.
//!
//! The arms' batches are interleaved in one process, as for `label`. Each scope enters a context
//! that differs from the one before, with both ids and two labels, and leaves it again.
//!
//! `ours` runs in a session at 1,000 Hz, on a thread that it samples; `ours_inactive` runs without
//! a session. `ours_with_label` interns a label each time, as a program does that keeps no contexts.
//! The peer `opentelemetry_thread_local` is what the in-process SDKs do: a shared context is put into
//! a thread-local, and the one before put back. `stores` is a floor: six stores into a thread-local,
//! and one to clear it.

use std::cell::{Cell, RefCell};
use std::hint::black_box;
use std::sync::Arc;

use gekkota::context::ProfilerContext;

use crate::batch::batch;
use crate::prelude::*;
use crate::turns::{self, Turns, in_session, registered};

const ROUNDS: u32 = 200_000;
const ROUNDS_WITH_LABEL: u32 = 5_000;

const ARMS: [turns::Arm<()>; 5] = [
    ("ours", |_| in_session(contexts)),
    ("ours_inactive", |_| registered(contexts)),
    ("ours_with_label", |_| registered(with_label)),
    ("opentelemetry_thread_local", |_| Ok(shared())),
    ("stores", |_| Ok(stores())),
];

pub(crate) const MEASUREMENT: Measurement = Measurement {
    name: "context",
    unit: "ns to enter and leave, including the loop",
    goal: "ours <= 5 ns, in a session and without one",
    peers: &["opentelemetry_thread_local"],
    floor: "stores",
    is_met: |study| study.at_most(&["ours", "ours_inactive"], 5.0),
    rounds: [3, 9],
    sizes: [&[20], &[100]],
    size_names: &["batches per arm"],
    part: |arguments| Ok(Turns::run(arguments.get(1)?, &ARMS, &())?.answer()),
    ..Measurement::NEW
};

/// Runs a batch of contexts. Both arms of ours run this one copy of the machine code.
#[inline(never)]
fn contexts() -> f64 {
    let context = ProfilerContext::new().with_label("route", "/search");
    let context = context.with_label("tenant", "one");
    let two = [1, 2].map(|request| {
        let context = context.with_trace_id(u128::MAX - request);
        context.with_span_id(request as u64)
    });
    let mut turn = 0usize;
    batch!(ROUNDS, {
        turn ^= 1;
        let _context = black_box(&two)[turn].enter();
        black_box(());
    })
}

fn with_label() -> f64 {
    let context = ProfilerContext::new().with_trace_id(1);
    batch!(ROUNDS_WITH_LABEL, {
        let _context = context.with_label("route", black_box("/search")).enter();
        black_box(());
    })
}

/// A context as in-process SDKs keep it.
struct Shared([u64; 3]);

#[inline(never)]
fn shared() -> f64 {
    thread_local! {
        static CURRENT: RefCell<Option<Arc<Shared>>> = const { RefCell::new(None) };
    }
    let two = [1, 2].map(|request| Arc::new(Shared([request; 3])));
    let mut turn = 0usize;
    let time = batch!(ROUNDS, {
        turn ^= 1;
        let next = Some(Arc::clone(&black_box(&two)[turn]));
        let before = CURRENT.with(|current| current.replace(next));
        black_box(());
        drop(CURRENT.with(|current| current.replace(before)));
    });
    black_box(two[0].0);
    time
}

#[inline(never)]
fn stores() -> f64 {
    thread_local! {
        static WORDS: [Cell<u64>; 6] = const { [const { Cell::new(0) }; 6] };
    }
    let words = black_box([1u64; 6]);
    WORDS.with(|cells| {
        batch!(ROUNDS, {
            cells
                .iter()
                .zip(words)
                .for_each(|(cell, word)| cell.set(word));
            black_box(cells);
            cells[0].set(0);
            black_box(cells);
        })
    })
}
