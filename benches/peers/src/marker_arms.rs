//! The arms of `marker`: each records a name only, a name with a text of 16 bytes, or a name with
//! three fields.
//!
//! Each library is used as its documentation shows. The benchmark counts what each library outputs,
//! and so notices an arm that records nothing. A peer's scope reads the clock at both ends; a
//! marker is an instant, and `ours_text_scope` an interval.
//!
//! - puffin accepts one text besides the name, so three fields are formatted into one. A thousand
//!   scopes inside one scope are timed; then a new frame begins, outside of the measured time.
//! - fastrace's local spans are children of a root span, a thousand each; the root is dropped
//!   outside of the measured time. Properties are texts, so numbers are formatted. The text is a
//!   constant; any other text would have to be copied to the heap.
//! - `tracing`'s spans are entered, and `tracing-chrome` writes them with their fields on a
//!   background thread. The benchmark waits for that thread outside of the measured time.
//! - Tracy's zones take numbers as values and a text as their text. No server is connected, so
//!   everything recorded stays in memory.

use std::borrow::Cow;
use std::error::Error;
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fastrace::Span;
use fastrace::collector::{Config, Reporter, SpanContext, SpanRecord};
use fastrace::local::LocalSpan;
use gekkota::marker::built_in::CowString;
use gekkota::{
    AutoProfilerTextMarker, MarkerOptions, ProfilerTime, add_marker, add_text_marker,
    add_untyped_marker, gecko_profiler_category,
};

use crate::batch::{PER_ROUND, batch, empty};
use crate::chrome_trace::ChromeTrace;
use crate::raw::cycles;

/// Rounds of one loop, for a thousand calls.
const ROUNDS: u32 = 125;
/// Loops per batch. An arm with a background writer runs only one, since its calls take ten times
/// as long.
const LOOPS: u32 = 8;

/// Calls per batch of ours.
pub(crate) const CALLS: u32 = LOOPS * ROUNDS * PER_ROUND;
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

/// What a marker has besides its name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Form {
    Untyped,
    Text,
    Typed,
}

impl Form {
    pub(crate) const ALL: [Self; 3] = [Self::Untyped, Self::Text, Self::Typed];
}

/// Role of an arm in the comparison.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Role {
    Ours(Form),
    Peer(Form),
    Extra,
}

pub(crate) struct MarkerArm {
    pub(crate) name: &'static str,
    pub(crate) role: Role,
    /// Runs a batch and returns the nanoseconds of a call.
    pub(crate) run: fn(&Recorders) -> f64,
}

const fn arm(name: &'static str, role: Role, run: fn(&Recorders) -> f64) -> MarkerArm {
    MarkerArm { name, role, run }
}

/// All arms. Tracy's exist only with the feature `tracy`.
pub(crate) const ARMS: &[MarkerArm] = &[
    arm("ours_text", Role::Ours(Form::Text), ours_text),
    arm("puffin_text", Role::Peer(Form::Text), puffin_text),
    arm("fastrace_text", Role::Peer(Form::Text), fastrace_text),
    arm(
        "tracing_chrome_text",
        Role::Peer(Form::Text),
        tracing_chrome_text,
    ),
    #[cfg(feature = "tracy")]
    arm("tracy_text", Role::Peer(Form::Text), tracy::text),
    arm("ours_untyped", Role::Ours(Form::Untyped), ours_untyped),
    arm("puffin_untyped", Role::Peer(Form::Untyped), puffin_untyped),
    arm(
        "fastrace_untyped",
        Role::Peer(Form::Untyped),
        fastrace_untyped,
    ),
    arm(
        "tracing_chrome_untyped",
        Role::Peer(Form::Untyped),
        tracing_chrome_untyped,
    ),
    #[cfg(feature = "tracy")]
    arm("tracy_untyped", Role::Peer(Form::Untyped), tracy::untyped),
    arm("ours_typed", Role::Ours(Form::Typed), ours_typed),
    arm("puffin_typed", Role::Peer(Form::Typed), puffin_typed),
    arm("fastrace_typed", Role::Peer(Form::Typed), fastrace_typed),
    arm(
        "tracing_chrome_typed",
        Role::Peer(Form::Typed),
        tracing_chrome_typed,
    ),
    #[cfg(feature = "tracy")]
    arm("tracy_typed", Role::Peer(Form::Typed), tracy::typed),
    arm("ours_text_scope", Role::Extra, ours_text_scope),
    arm("clock", Role::Extra, clock),
    arm("rdtsc", Role::Extra, rdtsc),
    arm("empty", Role::Extra, |_| empty(ROUNDS * LOOPS)),
];

/// The recording peers, with counts of what they recorded.
pub(crate) struct Recorders {
    chrome: ChromeTrace,
    seen: Arc<Seen>,
}

#[derive(Default)]
struct Seen {
    puffin_scopes: AtomicU64,
    fastrace_spans: AtomicU64,
}

struct CountingReporter(Arc<Seen>);

impl Reporter for CountingReporter {
    fn report(&mut self, spans: Vec<SpanRecord>) {
        self.0
            .fastrace_spans
            .fetch_add(spans.len() as u64, Ordering::Relaxed);
    }
}

impl Recorders {
    /// Starts all peers. Call it once per process.
    pub(crate) fn start() -> Result<Self, Box<dyn Error>> {
        let seen = Arc::new(Seen::default());
        let sink_seen = Arc::clone(&seen);
        puffin::GlobalProfiler::lock().add_sink(Box::new(move |frame| {
            sink_seen
                .puffin_scopes
                .fetch_add(frame.meta().num_scopes as u64, Ordering::Relaxed);
        }));
        puffin::set_scopes_on(true);
        // An hour, so that fastrace reports only when flushed.
        let config = Config::default().report_interval(Duration::from_secs(3600));
        fastrace::set_reporter(CountingReporter(Arc::clone(&seen)), config);
        #[cfg(feature = "tracy")]
        if tracy::can_run() {
            tracy_client::Client::start();
        }
        Ok(Self {
            chrome: ChromeTrace::start()?,
            seen,
        })
    }

    /// Checks that each peer recorded exactly what this many batches of each of its arms add,
    /// including the enclosing scopes and spans.
    pub(crate) fn check(&self, batches: u64) -> Result<(), String> {
        let loops = Form::ALL.len() as u64 * batches * u64::from(LOOPS);
        let with_parents = loops * (u64::from(ROUNDS * PER_ROUND) + 1);
        let chrome_spans = Form::ALL.len() as u64 * batches * u64::from(ROUNDS * PER_ROUND);
        let seen = |count: &AtomicU64| count.load(Ordering::Relaxed);
        for (name, recorded, expected) in [
            ("puffin", seen(&self.seen.puffin_scopes), with_parents),
            ("fastrace", seen(&self.seen.fastrace_spans), with_parents),
            // Two entries per span, and one for the thread's name.
            (
                "tracing-chrome",
                self.chrome.entries(),
                2 * chrome_spans + 1,
            ),
        ] {
            if recorded != expected {
                return Err(format!(
                    "cannot use the figures: {name} recorded {recorded} spans or entries, expected {expected}"
                ));
            }
        }
        Ok(())
    }
}

/// Returns the mean of several loops.
fn mean_of_loops(mut one: impl FnMut() -> f64) -> f64 {
    (0..LOOPS).map(|_| one()).sum::<f64>() / f64::from(LOOPS)
}

#[inline(never)]
fn ours_untyped(_: &Recorders) -> f64 {
    let category = gecko_profiler_category!(Other);
    mean_of_loops(|| {
        batch!(
            ROUNDS,
            add_untyped_marker("a marker", category, MarkerOptions::default())
        )
    })
}

#[inline(never)]
fn ours_text(_: &Recorders) -> f64 {
    let (category, text) = (gecko_profiler_category!(Other), black_box(TEXT));
    mean_of_loops(|| {
        batch!(
            ROUNDS,
            add_text_marker("a marker", category, MarkerOptions::default(), text)
        )
    })
}

#[inline(never)]
fn ours_text_scope(_: &Recorders) -> f64 {
    let (category, text) = (gecko_profiler_category!(Other), black_box(TEXT));
    mean_of_loops(|| {
        batch!(
            ROUNDS,
            let _marker = AutoProfilerTextMarker::new("a marker", category, MarkerOptions::default(), text)
        )
    })
}

#[inline(never)]
fn ours_typed(_: &Recorders) -> f64 {
    let category = gecko_profiler_category!(Other);
    let (bytes, share, text) = black_box((NUMBER, SHARE, TEXT));
    let payload = || Loaded {
        bytes,
        share,
        file: text.into(),
    };
    mean_of_loops(|| {
        batch!(
            ROUNDS,
            add_marker("a marker", category, MarkerOptions::default(), payload())
        )
    })
}

/// Runs each loop inside a scope and a new puffin frame.
fn in_frames(mut one: impl FnMut() -> f64) -> f64 {
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
fn puffin_untyped(_: &Recorders) -> f64 {
    in_frames(|| batch!(ROUNDS, puffin::profile_scope!("a marker")))
}

#[inline(never)]
fn puffin_text(_: &Recorders) -> f64 {
    let text = black_box(TEXT);
    in_frames(|| batch!(ROUNDS, puffin::profile_scope!("a marker", text)))
}

#[inline(never)]
fn puffin_typed(_: &Recorders) -> f64 {
    let (bytes, share, text) = black_box((NUMBER, SHARE, TEXT));
    in_frames(|| {
        batch!(
            ROUNDS,
            puffin::profile_scope!("a marker", format!("{bytes} {share} {text}"))
        )
    })
}

/// Runs each loop inside a root span.
fn in_roots(mut one: impl FnMut() -> f64) -> f64 {
    let time = mean_of_loops(|| {
        let root = Span::root("parent", SpanContext::random());
        let _parent = root.set_local_parent();
        one()
    });
    fastrace::flush();
    time
}

#[inline(never)]
fn fastrace_untyped(_: &Recorders) -> f64 {
    in_roots(|| batch!(ROUNDS, let _span = LocalSpan::enter_with_local_parent("a marker")))
}

#[inline(never)]
fn fastrace_text(_: &Recorders) -> f64 {
    let text = black_box(TEXT);
    in_roots(|| {
        batch!(
            ROUNDS,
            let _span = LocalSpan::enter_with_local_parent("a marker").with_property(|| ("text", text))
        )
    })
}

#[inline(never)]
fn fastrace_typed(_: &Recorders) -> f64 {
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

/// Runs `one`, then waits until its output is written, so that the writer disturbs no
/// other arm.
fn then_wait_for_writer(peers: &Recorders, one: impl FnOnce() -> f64) -> f64 {
    let time = one();
    peers.chrome.wait_until_written();
    time
}

#[inline(never)]
fn tracing_chrome_untyped(peers: &Recorders) -> f64 {
    then_wait_for_writer(
        peers,
        || batch!(ROUNDS, let _entered = tracing::info_span!("a marker").entered()),
    )
}

#[inline(never)]
fn tracing_chrome_text(peers: &Recorders) -> f64 {
    let text = black_box(TEXT);
    then_wait_for_writer(
        peers,
        || batch!(ROUNDS, let _entered = tracing::info_span!("a marker", text).entered()),
    )
}

#[inline(never)]
fn tracing_chrome_typed(peers: &Recorders) -> f64 {
    let (bytes, share, file) = black_box((NUMBER, SHARE, TEXT));
    then_wait_for_writer(
        peers,
        || batch!(ROUNDS, let _entered = tracing::info_span!("a marker", bytes, share, file).entered()),
    )
}

#[inline(never)]
fn clock(_: &Recorders) -> f64 {
    mean_of_loops(|| batch!(ROUNDS, let _ = black_box(ProfilerTime::now())))
}

#[inline(never)]
fn rdtsc(_: &Recorders) -> f64 {
    mean_of_loops(|| batch!(ROUNDS, let _ = black_box(cycles())))
}

#[cfg(feature = "tracy")]
pub(crate) mod tracy {
    use std::hint::black_box;

    use super::{NUMBER, ROUNDS, Recorders, SHARE, TEXT, mean_of_loops};
    use crate::batch::batch;

    /// Returns whether Tracy can run: it aborts on a processor whose clock may change its rate.
    pub(crate) fn can_run() -> bool {
        let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        cfg!(not(target_arch = "x86_64")) || cpuinfo.contains(" nonstop_tsc")
    }

    /// Returns the mean of several loops, or NaN if Tracy is not running.
    fn recorded(one: impl FnMut() -> f64) -> f64 {
        if tracy_client::Client::is_running() {
            mean_of_loops(one)
        } else {
            f64::NAN
        }
    }

    #[inline(never)]
    pub(super) fn untyped(_: &Recorders) -> f64 {
        recorded(|| batch!(ROUNDS, let _zone = tracy_client::span!("a marker")))
    }

    #[inline(never)]
    pub(super) fn text(_: &Recorders) -> f64 {
        let text = black_box(TEXT);
        recorded(|| {
            batch!(ROUNDS, {
                let zone = tracy_client::span!("a marker");
                zone.emit_text(text);
            })
        })
    }

    #[inline(never)]
    pub(super) fn typed(_: &Recorders) -> f64 {
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
        let peers = Recorders::start().expect("the first start in this process");
        for arm in ARMS {
            assert!((arm.run)(&peers) > 0.0, "{}", arm.name);
        }
        assert_eq!(peers.check(1), Ok(()));
        (ARMS[1].run)(&peers);
        assert!(peers.check(1).expect_err("one more").contains("puffin"));
    }

    #[test]
    fn every_form_has_one_arm_of_ours_and_the_same_peers() {
        for form in Form::ALL {
            let count = |role| ARMS.iter().filter(|arm| arm.role == role).count();
            assert_eq!(
                (count(Role::Ours(form)), count(Role::Peer(form))),
                (1, 3 + usize::from(cfg!(feature = "tracy")))
            );
        }
    }
}
