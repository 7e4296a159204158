//! The texts of a metric's track, and the unit that the track is in.

use std::fmt::Write;

use metrics::{Key, Unit};

use crate::types::{CounterParams, CounterUnit};
use crate::util::cut_at_character;

/// Category of the tracks.
pub(crate) const CATEGORY: &str = "Metrics";

/// Maximum length of a description, in bytes. A longer one is cut.
const MAX_DESCRIPTION_BYTES: usize = 512;

/// What the application says of the metrics of one name.
#[derive(Clone, Debug, Default)]
pub(crate) struct MetricDescription {
    pub(crate) unit: Option<Unit>,
    text: String,
}

impl MetricDescription {
    pub(crate) fn new(unit: Option<Unit>, text: &str) -> Self {
        let text = cut_at_character(text, MAX_DESCRIPTION_BYTES).to_owned();
        Self { unit, text }
    }
}

/// How many parts of a metric's unit make one of the track's.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct TrackScale {
    /// A whole number.
    pub(crate) parts_of_one: u64,
    /// Follows the metric's name in the label.
    suffix: &'static str,
    unit: CounterUnit,
    /// Whether a value may have a fraction in the track's unit that matters.
    pub(crate) has_fractions: bool,
}

/// How a second track shows the fractions of a metric.
pub(crate) const MILLIONTHS: TrackScale = TrackScale {
    parts_of_one: 1_000_000,
    suffix: " (millionths)",
    unit: CounterUnit::Number,
    has_fractions: false,
};

impl TrackScale {
    pub(crate) fn of(unit: Option<Unit>) -> Self {
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
pub(crate) struct MetricTexts {
    /// The name with the labels.
    name: String,
    description: String,
}

impl MetricTexts {
    /// `kind` describes a metric that the application does not describe.
    pub(crate) fn new(key: &Key, description: &MetricDescription, kind: &str) -> Self {
        let description = match description.text.as_str() {
            "" => kind,
            text => text,
        };
        Self {
            name: label_of(key),
            description: description.to_owned(),
        }
    }

    /// Calls `make` with the parameters of a track.
    pub(crate) fn with_params<T>(
        &self,
        scale: TrackScale,
        is_total: bool,
        make: impl FnOnce(&CounterParams<&str>) -> T,
    ) -> T {
        make(&CounterParams {
            label: &format!("{}{}", self.name, scale.suffix),
            category: CATEGORY,
            description: &self.description,
            is_total,
            unit: scale.unit,
            color: None,
        })
    }
}

/// Returns the length of the texts of a key, in bytes.
pub(crate) fn key_bytes(key: &Key) -> usize {
    let labels = key
        .labels()
        .map(|label| label.key().len() + label.value().len());
    key.name().len() + labels.sum::<usize>()
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
