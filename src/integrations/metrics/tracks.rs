//! What a metric is in the profile: a counter of the profiler, or two.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use metrics::{CounterFn, GaugeFn, HistogramFn, Key};

use crate::api::{FloatValues, OwnedCounter, ScaledFloat};
use crate::integrations::metrics::metric_texts::{
    MILLIONTHS, MetricDescription, MetricTexts, TrackScale,
};
use crate::integrations::metrics::registry::make_alone;
use crate::types::CounterParams;

/// Maximum number of tracks, of all recorders together. Below the maximum number of counters, so
/// that the application's own ones have space.
const MAX_TRACKS: usize = 8_000;

static TRACKS: AtomicUsize = AtomicUsize::new(0);

/// A counter of the profiler, which sessions record. Made by one thread at a time.
#[derive(Debug)]
struct Track(OwnedCounter);

impl Track {
    fn new(
        texts: &MetricTexts,
        scale: TrackScale,
        is_total: bool,
        make: impl FnOnce(&CounterParams<&str>) -> OwnedCounter,
    ) -> Option<Self> {
        if TRACKS.load(Ordering::Relaxed) >= MAX_TRACKS {
            return None;
        }
        let counter = texts.with_params(scale, is_total, make);
        if !counter.is_listed() {
            return None;
        }
        TRACKS.fetch_add(1, Ordering::Relaxed);
        Some(Self(counter))
    }
}

impl Drop for Track {
    fn drop(&mut self) {
        TRACKS.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A counter of `metrics`: a total.
#[derive(Debug)]
pub(crate) struct CounterTrack {
    /// The value in the metric's unit.
    value: AtomicU64,
    parts_of_one: u64,
    track: Track,
}

impl CounterTrack {
    pub(crate) fn new(key: &Key, description: &MetricDescription) -> Option<Self> {
        let scale = TrackScale::of(description.unit);
        let texts = MetricTexts::new(key, description, "counter");
        Some(Self {
            value: AtomicU64::new(0),
            parts_of_one: scale.parts_of_one,
            track: Track::new(&texts, scale, true, OwnedCounter::new)?,
        })
    }

    #[inline]
    fn add(&self, growth: u64) {
        let parts = growth.wrapping_mul(self.parts_of_one);
        self.track.0.add_operation(parts.cast_signed());
    }
}

impl CounterFn for CounterTrack {
    fn increment(&self, value: u64) {
        self.value.fetch_add(value, Ordering::Relaxed);
        self.add(value);
    }

    /// Raises the value, as `metrics` demands: reports of several threads may come late.
    fn absolute(&self, value: u64) {
        let before = self.value.fetch_max(value, Ordering::Relaxed);
        if before < value {
            self.add(value - before);
        }
    }
}

/// A number that one or two tracks show.
#[derive(Debug)]
struct FloatTrack {
    values: Arc<FloatValues>,
    is_total: bool,
    /// Exists for its counter, which reads the number.
    _track: Track,
    fractions: Option<FractionTrack>,
}

/// A second track, which exists from the first value with a fraction on.
#[derive(Debug)]
struct FractionTrack {
    texts: MetricTexts,
    /// The inner option is `None` if no space is left for the track.
    track: OnceLock<Option<Track>>,
}

impl FloatTrack {
    fn new(key: &Key, description: &MetricDescription, kind: &str, is_total: bool) -> Option<Self> {
        let scale = TrackScale::of(description.unit);
        let texts = MetricTexts::new(key, description, kind);
        let values = Arc::default();
        let track = Track::new(&texts, scale, is_total, |params| {
            OwnedCounter::of_float(params, ScaledFloat::new(&values, scale.parts_of_one as f64))
        })?;
        let fractions = FractionTrack {
            texts,
            track: OnceLock::new(),
        };
        Some(Self {
            values,
            is_total,
            _track: track,
            fractions: scale.has_fractions.then_some(fractions),
        })
    }

    /// Makes the second track before the first value with a fraction changes the number.
    #[inline]
    fn before(&self, value: f64) {
        if value.fract() != 0.0
            && value.is_finite()
            && let Some(fractions) = &self.fractions
            && fractions.track.get().is_none()
        {
            self.show_fractions(fractions);
        }
    }

    #[cold]
    fn show_fractions(&self, fractions: &FractionTrack) {
        // If this thread may not make it now, a later value does.
        make_alone(|| {
            if fractions.track.get().is_some() {
                return;
            }
            let parts = MILLIONTHS.parts_of_one as f64;
            let scaled = match self.is_total {
                true => ScaledFloat::from_now(&self.values, parts),
                false => ScaledFloat::new(&self.values, parts),
            };
            let track = Track::new(&fractions.texts, MILLIONTHS, self.is_total, |params| {
                OwnedCounter::of_float(params, scaled)
            });
            _ = fractions.track.set(track);
        });
    }
}

/// A gauge of `metrics`: a level.
#[derive(Debug)]
pub(crate) struct GaugeTrack(FloatTrack);

impl GaugeTrack {
    pub(crate) fn new(key: &Key, description: &MetricDescription) -> Option<Self> {
        FloatTrack::new(key, description, "gauge", false).map(Self)
    }
}

impl GaugeFn for GaugeTrack {
    fn increment(&self, value: f64) {
        self.0.before(value);
        self.0.values.add(value);
    }

    fn decrement(&self, value: f64) {
        self.increment(-value);
    }

    fn set(&self, value: f64) {
        self.0.before(value);
        self.0.values.set(value);
    }
}

/// A histogram of `metrics`: the sum of the values, with their number.
#[derive(Debug)]
pub(crate) struct HistogramTrack(FloatTrack);

impl HistogramTrack {
    pub(crate) fn new(key: &Key, description: &MetricDescription) -> Option<Self> {
        FloatTrack::new(key, description, "histogram: sum of the values", true).map(Self)
    }
}

impl HistogramFn for HistogramTrack {
    fn record(&self, value: f64) {
        self.record_many(value, 1);
    }

    fn record_many(&self, value: f64, count: usize) {
        let sum = value * count as f64;
        if sum.is_finite() {
            self.0.before(value);
            self.0.values.add_operations(sum, count as u64);
        }
    }
}
