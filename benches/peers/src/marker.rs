//! `marker`: time to add a marker while a session records it: with a name only, with a text of 16
//! bytes, and with three fields: a `u64`, an `f64` and a `CowString` that borrows those 16 bytes.
//!
//! A figure is the whole time of a call, including its reading of the clock and the loop around it.
//! `clock` is a reading by `ProfilerTime::now`. Each library is used as its documentation shows. The
//! benchmark counts what each library outputs, and so notices an arm that records nothing. A peer's
//! scope reads the clock at both ends; a marker is an instant, and `ours_text_scope` an interval.
//!
//! - puffin accepts one text besides the name, so three fields are formatted into one. A thousand
//!   scopes inside one scope are timed; then a new frame begins, outside of the measured time.
//! - fastrace's local spans are children of a root span, a thousand each; the root is dropped
//!   outside of the measured time. Properties are texts, so numbers are formatted. The text is a
//!   constant; any other text would have to be copied to the heap.
//! - Tracy's zones take numbers as values and a text as their text. No server is connected, so
//!   everything recorded stays in memory. The arms have no figures if Tracy is not compiled, or
//!   cannot run on this processor.
//!
//! All arms run on one registered and sampled thread, in one session at 1,000 Hz whose buffer is
//! full from the start, with all peers recording. Batches of 8,000 calls are interleaved, and their
//! order rotates. A run's figure is the median of its arm's batches, and each round is a separate
//! process. No figure includes the work that the sampler's thread does for markers, or the peers'
//! background threads for theirs.

use std::borrow::Cow;
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fastrace::Span;
use fastrace::collector::{Config, Reporter, SpanContext, SpanRecord};
use fastrace::local::LocalSpan;
use gekkota::marker::built_in::CowString;
use gekkota::{
    AutoProfilerTextMarker, MarkerOptions, ProfilerTime, add_marker, add_text_marker,
    add_untyped_marker, gecko_profiler_category,
};

use crate::batch::{PER_ROUND, batch};
use crate::prelude::*;
use crate::profile::{log_of, logged};
use crate::turns::{self, Turns};

const CAPACITY_BYTES: u64 = 16 << 20;
/// Rounds of one loop, for a thousand calls.
const ROUNDS: u32 = 125;
/// Loops per batch.
const LOOPS: u32 = 8;
/// Calls per batch.
const CALLS: u32 = LOOPS * ROUNDS * PER_ROUND;
pub(crate) const TEXT: &str = "a text, 16 bytes";
const NUMBER: u64 = 123_456;
const SHARE: f64 = 0.625;

gekkota::marker_type! {
    /// Payload of the arms with fields.
    pub(crate) struct Loaded {
        pub(crate) bytes: u64 => "Size", Bytes;
        pub(crate) share: f64 => "Share", Percentage;
        pub(crate) file: CowString => "File", String;
    }
}

pub(crate) const MEASUREMENT: Measurement = Measurement {
    name: "marker",
    unit: "ns per call, including the reading of the clock and the loop",
    goal: "ours <= 35 ns with a text, <= 50 ns with three fields, and faster than each peer in each form",
    // The report compares one figure of ours with its peers: that of the text form.
    ours: "ours_text",
    peers: &["puffin_text", "fastrace_text", "tracy_text"],
    is_met: |study| {
        let forms = [("untyped", f64::INFINITY), ("text", 35.0), ("typed", 50.0)];
        forms.iter().all(|&(form, goal)| is_met(study, form, goal))
    },
    rounds: [2, 9],
    sizes: [&[10], &[40]],
    size_names: &["batches of 8,000 calls per arm"],
    part: run,
    ..Measurement::NEW
};

/// Whether ours is fast enough, and faster than each peer, in one form.
fn is_met(study: &Study, form: &str, goal: f64) -> bool {
    let figure = |library| study.figure(&format!("{library}_{form}"));
    let ours = figure("ours");
    // A peer without a figure does not count.
    let mut peers = ["puffin", "fastrace", "tracy"].into_iter().map(figure);
    ours <= goal && peers.all(|peer| peer.is_nan() || ours < peer)
}

/// All arms. Those of ours come first; Tracy's exist only with the feature `tracy`.
const ARMS: &[turns::Arm<Recorders>] = &[
    ("ours_text", |_| ours_text()),
    ("ours_untyped", |_| ours_untyped()),
    ("ours_typed", |_| ours_typed()),
    ("ours_text_scope", |_| ours_text_scope()),
    ("puffin_text", |_| puffin_text()),
    ("puffin_untyped", |_| puffin_untyped()),
    ("puffin_typed", |_| puffin_typed()),
    ("fastrace_text", |_| fastrace_text()),
    ("fastrace_untyped", |_| fastrace_untyped()),
    ("fastrace_typed", |_| fastrace_typed()),
    #[cfg(feature = "tracy")]
    ("tracy_text", |_| tracy::text()),
    #[cfg(feature = "tracy")]
    ("tracy_untyped", |_| tracy::untyped()),
    #[cfg(feature = "tracy")]
    ("tracy_typed", |_| tracy::typed()),
    ("clock", |_| {
        mean_of_loops(|| batch!(ROUNDS, let _ = black_box(ProfilerTime::now())))
    }),
];
/// Number of the arms of ours, each of which adds a marker per call.
const OURS: usize = 4;
/// Number of the arms of each peer.
const FORMS: u64 = 3;

/// Runs one round. Arguments: the arm, which is all, and the number of batches per arm.
fn run(arguments: &Arguments) -> Fallible<Value> {
    let batches: usize = arguments.get(1)?;
    let params = StartParams::default()
        .interval(INTERVAL)
        .capacity_bytes(CAPACITY_BYTES);
    let peers = Recorders::start();
    let session = ProfilerSession::start(params)?;
    let _registered = ThreadGuard::register("marker");
    // One uncounted batch of each arm, and batches of ours until the buffer is full.
    Turns::run(1, ARMS, &peers)?;
    let filling = CAPACITY_BYTES / u64::from(CALLS) / 16;
    Turns::run(filling as usize / OURS, &ARMS[..OURS], &peers)?;
    let before = put_entries(&session)?;
    let turns = Turns::run(batches, ARMS, &peers)?;
    let put = put_entries(&session)? - before;
    peers.check(batches as u64 + 1)?;
    check_count("ours", put, (OURS * batches) as u64 * u64::from(CALLS))?;
    drop(session.finish()?);
    Ok(turns.answer())
}

/// Returns the number of entries that the session has put into its buffer.
pub(crate) fn put_entries(session: &ProfilerSession) -> Fallible<u64> {
    Ok(logged(
        &log_of(&session.snapshot()?)?,
        "buffer",
        "put_entries",
    ))
}

/// # Errors
/// Fails if a library has recorded less than it was given.
pub(crate) fn check_count(library: &str, recorded: u64, expected: u64) -> Fallible<()> {
    match recorded >= expected {
        true => Ok(()),
        false => Err(format!(
            "cannot use the figures: {library} recorded {recorded} entries, expected at least {expected}"
        )
        .into()),
    }
}

/// The recording peers, with counts of what they recorded.
struct Recorders(Arc<Seen>);

#[derive(Default)]
struct Seen {
    puffin_scopes: AtomicU64,
    fastrace_spans: AtomicU64,
}

struct CountingReporter(Arc<Seen>);

impl Reporter for CountingReporter {
    fn report(&mut self, spans: Vec<SpanRecord>) {
        let count = spans.len() as u64;
        self.0.fastrace_spans.fetch_add(count, Ordering::Relaxed);
    }
}

impl Recorders {
    /// Starts all peers. Call it once per process.
    fn start() -> Self {
        let seen = Arc::new(Seen::default());
        let sink_seen = Arc::clone(&seen);
        puffin::GlobalProfiler::lock().add_sink(Box::new(move |frame| {
            let count = frame.meta().num_scopes as u64;
            sink_seen.puffin_scopes.fetch_add(count, Ordering::Relaxed);
        }));
        puffin::set_scopes_on(true);
        // An hour, so that fastrace reports only when flushed.
        let config = Config::default().report_interval(Duration::from_secs(3600));
        fastrace::set_reporter(CountingReporter(Arc::clone(&seen)), config);
        #[cfg(feature = "tracy")]
        if tracy::can_run() {
            tracy_client::Client::start();
        }
        Self(seen)
    }

    /// Checks that each peer recorded what this many batches of each of its arms add, including the
    /// enclosing scopes and spans.
    fn check(&self, batches: u64) -> Fallible<()> {
        let expected = FORMS * batches * u64::from(LOOPS * (ROUNDS * PER_ROUND + 1));
        let seen = |count: &AtomicU64| count.load(Ordering::Relaxed);
        check_count("puffin", seen(&self.0.puffin_scopes), expected)?;
        check_count("fastrace", seen(&self.0.fastrace_spans), expected)
    }
}

/// Returns the mean of several loops.
fn mean_of_loops(mut one: impl FnMut() -> f64) -> Fallible<f64> {
    Ok((0..LOOPS).map(|_| one()).sum::<f64>() / f64::from(LOOPS))
}

#[inline(never)]
fn ours_untyped() -> Fallible<f64> {
    let category = gecko_profiler_category!(Other);
    let options = MarkerOptions::default;
    mean_of_loops(|| batch!(ROUNDS, add_untyped_marker("a marker", category, options())))
}

#[inline(never)]
fn ours_text() -> Fallible<f64> {
    let (category, text) = (gecko_profiler_category!(Other), black_box(TEXT));
    let options = MarkerOptions::default;
    mean_of_loops(|| {
        batch!(
            ROUNDS,
            add_text_marker("a marker", category, options(), text)
        )
    })
}

#[inline(never)]
fn ours_text_scope() -> Fallible<f64> {
    let (category, text) = (gecko_profiler_category!(Other), black_box(TEXT));
    let new = || AutoProfilerTextMarker::new("a marker", category, MarkerOptions::default(), text);
    mean_of_loops(|| batch!(ROUNDS, let _marker = new()))
}

#[inline(never)]
fn ours_typed() -> Fallible<f64> {
    let category = gecko_profiler_category!(Other);
    let (bytes, share, text) = black_box((NUMBER, SHARE, TEXT));
    let payload = || Loaded {
        bytes,
        share,
        file: text.into(),
    };
    let options = MarkerOptions::default;
    mean_of_loops(|| {
        batch!(
            ROUNDS,
            add_marker("a marker", category, options(), payload())
        )
    })
}

/// Runs each loop inside a scope and a new puffin frame.
fn in_frames(mut one: impl FnMut() -> f64) -> Fallible<f64> {
    mean_of_loops(|| {
        let time = {
            puffin::profile_scope!("parent");
            one()
        };
        puffin::GlobalProfiler::lock().new_frame();
        time
    })
}

#[inline(never)]
fn puffin_untyped() -> Fallible<f64> {
    in_frames(|| batch!(ROUNDS, puffin::profile_scope!("a marker")))
}

#[inline(never)]
fn puffin_text() -> Fallible<f64> {
    let text = black_box(TEXT);
    in_frames(|| batch!(ROUNDS, puffin::profile_scope!("a marker", text)))
}

#[inline(never)]
fn puffin_typed() -> Fallible<f64> {
    let (bytes, share, text) = black_box((NUMBER, SHARE, TEXT));
    in_frames(|| {
        batch!(
            ROUNDS,
            puffin::profile_scope!("a marker", format!("{bytes} {share} {text}"))
        )
    })
}

/// Runs each loop inside a root span.
fn in_roots(mut one: impl FnMut() -> f64) -> Fallible<f64> {
    let time = mean_of_loops(|| {
        let root = Span::root("parent", SpanContext::random());
        let _parent = root.set_local_parent();
        one()
    });
    fastrace::flush();
    time
}

#[inline(never)]
fn fastrace_untyped() -> Fallible<f64> {
    in_roots(|| batch!(ROUNDS, let _span = LocalSpan::enter_with_local_parent("a marker")))
}

#[inline(never)]
fn fastrace_text() -> Fallible<f64> {
    let text = black_box(TEXT);
    in_roots(|| {
        batch!(
            ROUNDS,
            let _span = LocalSpan::enter_with_local_parent("a marker").with_property(|| ("text", text))
        )
    })
}

#[inline(never)]
fn fastrace_typed() -> Fallible<f64> {
    let (bytes, share, text) = black_box((NUMBER, SHARE, TEXT));
    let properties = || -> [(&str, Cow<'static, str>); 3] {
        [
            ("bytes", bytes.to_string().into()),
            ("share", share.to_string().into()),
            ("file", text.into()),
        ]
    };
    in_roots(|| {
        batch!(
            ROUNDS,
            let _span = LocalSpan::enter_with_local_parent("a marker").with_properties(properties)
        )
    })
}

#[cfg(feature = "tracy")]
mod tracy {
    use std::hint::black_box;

    use super::{NUMBER, ROUNDS, SHARE, TEXT, mean_of_loops};
    use crate::batch::batch;
    use crate::study::Fallible;

    /// Returns whether Tracy can run: it aborts on a processor whose clock may change its rate.
    pub(super) fn can_run() -> bool {
        let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        cfg!(not(target_arch = "x86_64")) || cpuinfo.contains(" nonstop_tsc")
    }

    /// Returns the mean of several loops, or NaN if Tracy is not running.
    fn recorded(one: impl FnMut() -> f64) -> Fallible<f64> {
        match tracy_client::Client::is_running() {
            true => mean_of_loops(one),
            false => Ok(f64::NAN),
        }
    }

    #[inline(never)]
    pub(super) fn untyped() -> Fallible<f64> {
        recorded(|| batch!(ROUNDS, let _zone = tracy_client::span!("a marker")))
    }

    #[inline(never)]
    pub(super) fn text() -> Fallible<f64> {
        let text = black_box(TEXT);
        recorded(|| {
            batch!(ROUNDS, {
                let zone = tracy_client::span!("a marker");
                zone.emit_text(text);
            })
        })
    }

    #[inline(never)]
    pub(super) fn typed() -> Fallible<f64> {
        let (bytes, share, text) = black_box((NUMBER, SHARE, TEXT));
        recorded(|| {
            batch!(ROUNDS, {
                let zone = tracy_client::span!("a marker");
                zone.emit_value(bytes);
                zone.emit_value(share.to_bits());
                zone.emit_text(text);
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_peer_records_every_call() {
        let peers = Recorders::start();
        Turns::run(1, ARMS, &peers).expect("batches");
        peers.check(1).expect("all are recorded");
        assert!(
            peers
                .check(2)
                .expect_err("too few")
                .to_string()
                .contains("puffin")
        );
    }
}
