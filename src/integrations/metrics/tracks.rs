//! What a metric is in the profile: a counter of the profiler, or two, with their texts and their unit.

use std::fmt::Write;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use metrics::{CounterFn, GaugeFn, HistogramFn, Key, Unit};

use crate::api::{FloatValues, OwnedCounter, ScaledFloat};
use crate::integrations::metrics::registry::{MetricDescription, make_alone};
use crate::types::{CounterParams, CounterUnit};

/// Category of the tracks.
pub(crate) const CATEGORY: &str = "Metrics";

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
        let counter = make(&CounterParams {
            label: &format!("{}{}", texts.name, scale.suffix),
            category: CATEGORY,
            description: &texts.description,
            is_total,
            unit: scale.unit,
            color: None,
        });
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

/// A gauge or a histogram of `metrics`: a number that one or two tracks show.
#[derive(Debug)]
pub(crate) struct FloatTrack {
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
    pub(crate) fn gauge(key: &Key, description: &MetricDescription) -> Option<Self> {
        Self::new(key, description, "gauge", false)
    }

    pub(crate) fn histogram(key: &Key, description: &MetricDescription) -> Option<Self> {
        Self::new(key, description, "histogram: sum of the values", true)
    }

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

/// A gauge is a level.
impl GaugeFn for FloatTrack {
    fn increment(&self, value: f64) {
        self.before(value);
        self.values.add(value);
    }

    fn decrement(&self, value: f64) {
        GaugeFn::increment(self, -value);
    }

    fn set(&self, value: f64) {
        self.before(value);
        self.values.set(value);
    }
}

/// A histogram is the sum of the values, with their number.
impl HistogramFn for FloatTrack {
    fn record(&self, value: f64) {
        self.record_many(value, 1);
    }

    fn record_many(&self, value: f64, count: usize) {
        let sum = value * count as f64;
        if sum.is_finite() {
            self.before(value);
            self.values.add_operations(sum, count as u64);
        }
    }
}

/// How many parts of a metric's unit make one of the track's.
#[derive(Clone, Copy, PartialEq, Debug)]
struct TrackScale {
    /// A whole number.
    parts_of_one: u64,
    /// Follows the metric's name in the label.
    suffix: &'static str,
    unit: CounterUnit,
    /// Whether a value may have a fraction in the track's unit that matters.
    has_fractions: bool,
}

/// How a second track shows the fractions of a metric.
const MILLIONTHS: TrackScale = TrackScale {
    parts_of_one: 1_000_000,
    suffix: " (millionths)",
    unit: CounterUnit::Number,
    has_fractions: false,
};

impl TrackScale {
    fn of(unit: Option<Unit>) -> Self {
        let in_unit = |parts_of_one, suffix| Self {
            parts_of_one,
            suffix,
            unit: CounterUnit::Number,
            has_fractions: false,
        };
        let with_fractions = |suffix| Self {
            has_fractions: true,
            ..in_unit(1, suffix)
        };
        let bytes = |parts_of_one| Self {
            unit: CounterUnit::Bytes,
            ..in_unit(parts_of_one, "")
        };
        match unit {
            None | Some(Unit::Count) => with_fractions(""),
            Some(Unit::CountPerSecond) => with_fractions(" (/s)"),
            Some(Unit::Percent) => with_fractions(" (%)"),
            Some(Unit::Seconds) => in_unit(1_000_000_000, " (ns)"),
            Some(Unit::Milliseconds) => in_unit(1_000_000, " (ns)"),
            Some(Unit::Microseconds) => in_unit(1_000, " (ns)"),
            Some(Unit::Nanoseconds) => in_unit(1, " (ns)"),
            Some(Unit::Tebibytes) => bytes(1 << 40),
            Some(Unit::Gibibytes) => bytes(1 << 30),
            Some(Unit::Mebibytes) => bytes(1 << 20),
            Some(Unit::Kibibytes) => bytes(1 << 10),
            Some(Unit::Bytes) => bytes(1),
            Some(Unit::TerabitsPerSecond) => in_unit(1_000_000_000_000, " (bit/s)"),
            Some(Unit::GigabitsPerSecond) => in_unit(1_000_000_000, " (bit/s)"),
            Some(Unit::MegabitsPerSecond) => in_unit(1_000_000, " (bit/s)"),
            Some(Unit::KilobitsPerSecond) => in_unit(1_000, " (bit/s)"),
            Some(Unit::BitsPerSecond) => in_unit(1, " (bit/s)"),
        }
    }
}

/// The texts of a metric's tracks.
#[derive(Debug)]
struct MetricTexts {
    /// The name with the labels.
    name: String,
    description: String,
}

impl MetricTexts {
    /// `kind` describes a metric that the application does not describe.
    fn new(key: &Key, description: &MetricDescription, kind: &str) -> Self {
        let description = match description.text.as_str() {
            "" => kind,
            text => text,
        };
        Self {
            name: label_of(key),
            description: description.to_owned(),
        }
    }
}

/// Returns a key as Prometheus writes it: `name{key="value",other="value"}`.
fn label_of(key: &Key) -> String {
    let mut text = key.name().to_owned();
    for (index, label) in key.labels().enumerate() {
        text.push(if index == 0 { '{' } else { ',' });
        _ = write!(text, "{}=\"", label.key());
        for character in label.value().chars() {
            match character {
                '"' | '\\' => text.extend(['\\', character]),
                '\n' => text.push_str("\\n"),
                _ => text.push(character),
            }
        }
        text.push('"');
    }
    if key.labels().len() > 0 {
        text.push('}');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn label_of_has_the_labels_in_their_order() {
        let key =
            |labels: &[(&'static str, &'static str)]| label_of(&Key::from_parts("a.b", labels));
        assert_eq!(key(&[]), "a.b");
        assert_eq!(key(&[("z", "1")]), "a.b{z=\"1\"}");
        assert_eq!(
            key(&[("z", "a\"b\\c\nd"), ("k", "")]),
            "a.b{z=\"a\\\"b\\\\c\\nd\",k=\"\"}"
        );
    }

    #[test]
    fn scales_of_one_dimension_share_the_unit_of_the_track() {
        let scale = |unit| TrackScale::of(Some(unit));
        let (seconds, millis) = (scale(Unit::Seconds), scale(Unit::Milliseconds));
        assert_eq!(seconds.parts_of_one, 1000 * millis.parts_of_one);
        assert_eq!(seconds.suffix, millis.suffix);
        let (gibi, mebi) = (scale(Unit::Gibibytes), scale(Unit::Mebibytes));
        assert_eq!(gibi.parts_of_one, 1024 * mebi.parts_of_one);
        assert_eq!(
            (gibi.unit, mebi.unit),
            (CounterUnit::Bytes, CounterUnit::Bytes)
        );
    }
}
