//! A recorder that shows metrics in the profile.

use std::fmt;
use std::sync::Arc;

use metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, HistogramFn, Key, KeyName, Metadata,
    NoopRecorder, Recorder, SetRecorderError, SharedString, Unit,
};

use crate::api::ProfilerCounterTotal;
use crate::integrations::metrics::registry::{MetricDescription, Missing, Registry};
use crate::integrations::metrics::tracks::{CATEGORY, CounterTrack, FloatTrack};

static NOT_RECORDED: ProfilerCounterTotal = ProfilerCounterTotal::new(
    "metrics that are not recorded",
    CATEGORY,
    "uses of metrics beyond the maximum number, or with longer names",
);

/// A recorder of the `metrics` crate, which shows counters, gauges and histograms as tracks of the
/// profile.
///
/// ```
/// gekkota::ProfilerRecorder::new().install()?;
///
/// metrics::describe_histogram!("query", metrics::Unit::Seconds, "time of a query");
/// metrics::counter!("requests", "method" => "GET").increment(1);
/// metrics::gauge!("queue").set(3);
/// metrics::histogram!("query").record(0.0025);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// A program has one recorder. If yours has an exporter, wrap the exporter's recorder with
/// [`with_inner`](Self::with_inner): it gets all that it would get without this one.
///
/// Each metric is a track in the category “Metrics”, whose name is that of the metric with its
/// labels: `requests{method="GET"}`. The description is the one that the application gave before it
/// first used the metric.
///
/// | Metric | Track |
/// |---|---|
/// | counter | its growth, as of a [`ProfilerCounterTotal`](crate::counter::ProfilerCounterTotal): an increment is an operation, and an absolute value is one if it raises the counter |
/// | gauge | its level, as of a [`ProfilerCounter`](crate::counter::ProfilerCounter) |
/// | histogram | the sum of the recorded values, with their number. The sum divided by the number is the mean between two ticks |
///
/// A profile has whole numbers. So the unit that the application gave before the first use decides
/// what one is:
///
/// | Unit of the metric | Track |
/// |---|---|
/// | seconds and their parts | in nanoseconds; the name ends in ` (ns)` |
/// | bytes and their multiples | in bytes |
/// | bits per second and their multiples | in bits per second; the name ends in ` (bit/s)` |
/// | none, count, percent, count per second | rounded to a whole number. From the first value with a fraction on, there is a second track, whose name ends in ` (millionths)` |
///
/// Levels and sums are kept as an `f64`, and rounded only when they are sampled. Values that are not
/// finite are not recorded. The numbers of counters wrap around at the limits of an `i64`; those of
/// gauges and histograms stay at the limits.
///
/// All recorders together have at most 8,000 tracks. The name and the labels of a metric have at most
/// 2 KiB, and are cut at 512 bytes in the profile. The track “metrics that are not recorded” counts
/// the uses of further metrics; the inner recorder gets these, too.
///
/// Metrics may be used on any thread, but not in a signal handler. An allocator may change metrics
/// whose handles it keeps.
///
/// Cost, equal with and without a session: a change is two or three atomic operations. A macro
/// also finds the metric, which takes a hash and a shared lock; keep its result where that is too
/// much. With an inner recorder, a macro also allocates 40 bytes, and costs what the inner recorder
/// does. Each metric takes about 1 KiB, and a few nanoseconds of each tick. Idea: this crate's own;
/// Gecko's counters are their form in the profile.
pub struct ProfilerRecorder<R = NoopRecorder> {
    inner: R,
    has_inner: bool,
    // In a box, because a failed `install` returns the recorder.
    metrics: Box<Metrics>,
}

/// The metrics of a recorder.
#[derive(Default)]
struct Metrics {
    counters: Registry<CounterTrack>,
    gauges: Registry<FloatTrack>,
    histograms: Registry<FloatTrack>,
}

impl ProfilerRecorder {
    /// Creates a recorder for a program that has no other one.
    pub fn new() -> Self {
        Self {
            has_inner: false,
            ..Self::with_inner(NoopRecorder)
        }
    }
}

impl Default for ProfilerRecorder {
    fn default() -> Self {
        Self::new()
    }
}

impl<R: Recorder> ProfilerRecorder<R> {
    /// Wraps a recorder, such as that of an exporter. It may be a `Box` or a reference.
    pub fn with_inner(inner: R) -> Self {
        Self {
            inner,
            has_inner: true,
            metrics: Box::default(),
        }
    }
}

impl<R: Recorder + Sync + 'static> ProfilerRecorder<R> {
    /// Installs this as the recorder of the program.
    ///
    /// # Errors
    /// Fails if the application has installed a recorder already, which stays installed.
    pub fn install(self) -> Result<(), SetRecorderError<Self>> {
        metrics::set_global_recorder(self)
    }
}

impl<R> fmt::Debug for ProfilerRecorder<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProfilerRecorder").finish_non_exhaustive()
    }
}

/// Returns the track of a metric, and counts it if it is not recorded.
#[inline]
fn known<T>(track: Result<Arc<T>, Missing>) -> Option<Arc<T>> {
    if matches!(track, Err(Missing::Refused)) {
        NOT_RECORDED.add(1);
    }
    track.ok()
}

macro_rules! register {
    ($recorder:ident.$registry:ident, $key:ident, $make:expr, $handle:ident, $inner:expr) => {{
        let track = $recorder
            .metrics
            .$registry
            .get_or_make($key, |description| $make($key, description));
        match known(track) {
            Some(track) if $recorder.has_inner => $handle::from_arc(Arc::new(Both {
                track,
                inner: $inner,
            })),
            Some(track) => $handle::from_arc(track),
            None => $inner,
        }
    }};
}

/// The inner recorder is asked for its handle at each use, because an exporter may forget a metric
/// that has not changed for some time.
impl<R: Recorder> Recorder for ProfilerRecorder<R> {
    fn describe_counter(&self, key: KeyName, unit: Option<Unit>, description: SharedString) {
        (self.metrics.counters).describe(&key, || MetricDescription::new(unit, &description));
        self.inner.describe_counter(key, unit, description);
    }

    fn describe_gauge(&self, key: KeyName, unit: Option<Unit>, description: SharedString) {
        (self.metrics.gauges).describe(&key, || MetricDescription::new(unit, &description));
        self.inner.describe_gauge(key, unit, description);
    }

    fn describe_histogram(&self, key: KeyName, unit: Option<Unit>, description: SharedString) {
        (self.metrics.histograms).describe(&key, || MetricDescription::new(unit, &description));
        self.inner.describe_histogram(key, unit, description);
    }

    fn register_counter(&self, key: &Key, metadata: &Metadata<'_>) -> Counter {
        let inner = || self.inner.register_counter(key, metadata);
        register!(self.counters, key, CounterTrack::new, Counter, inner())
    }

    fn register_gauge(&self, key: &Key, metadata: &Metadata<'_>) -> Gauge {
        let inner = || self.inner.register_gauge(key, metadata);
        register!(self.gauges, key, FloatTrack::gauge, Gauge, inner())
    }

    fn register_histogram(&self, key: &Key, metadata: &Metadata<'_>) -> Histogram {
        let inner = || self.inner.register_histogram(key, metadata);
        register!(
            self.histograms,
            key,
            FloatTrack::histogram,
            Histogram,
            inner()
        )
    }
}

/// A track, and the handle of the inner recorder for the same metric.
struct Both<T, H> {
    track: Arc<T>,
    inner: H,
}

impl<T: CounterFn> CounterFn for Both<T, Counter> {
    fn increment(&self, value: u64) {
        self.track.increment(value);
        self.inner.increment(value);
    }

    fn absolute(&self, value: u64) {
        self.track.absolute(value);
        self.inner.absolute(value);
    }
}

impl<T: GaugeFn> GaugeFn for Both<T, Gauge> {
    fn increment(&self, value: f64) {
        self.track.increment(value);
        self.inner.increment(value);
    }

    fn decrement(&self, value: f64) {
        self.track.decrement(value);
        self.inner.decrement(value);
    }

    fn set(&self, value: f64) {
        self.track.set(value);
        self.inner.set(value);
    }
}

impl<T: HistogramFn> HistogramFn for Both<T, Histogram> {
    fn record(&self, value: f64) {
        self.track.record(value);
        self.inner.record(value);
    }

    fn record_many(&self, value: f64, count: usize) {
        (*self.track).record_many(value, count);
        self.inner.record_many(value, count);
    }
}
