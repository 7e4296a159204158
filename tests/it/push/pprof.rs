//! Reads pprof profiles, and checks what `profile.proto` demands of them.

use std::collections::BTreeSet;
use std::io::Read;

use prost::Message;

use crate::push::keep;

#[derive(Clone, PartialEq, Message)]
pub(super) struct Profile {
    #[prost(message, repeated, tag = "1")]
    pub(super) sample_type: Vec<ValueType>,
    #[prost(message, repeated, tag = "2")]
    pub(super) sample: Vec<Sample>,
    #[prost(message, repeated, tag = "3")]
    pub(super) mapping: Vec<Mapping>,
    #[prost(message, repeated, tag = "4")]
    pub(super) location: Vec<Location>,
    #[prost(message, repeated, tag = "5")]
    pub(super) function: Vec<Function>,
    #[prost(string, repeated, tag = "6")]
    pub(super) string_table: Vec<String>,
    #[prost(int64, tag = "9")]
    pub(super) time_nanos: i64,
    #[prost(int64, tag = "10")]
    pub(super) duration_nanos: i64,
    #[prost(message, optional, tag = "11")]
    pub(super) period_type: Option<ValueType>,
    #[prost(int64, tag = "12")]
    pub(super) period: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ValueType {
    #[prost(int64, tag = "1")]
    pub(super) kind: i64,
    #[prost(int64, tag = "2")]
    pub(super) unit: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Sample {
    #[prost(uint64, repeated, tag = "1")]
    pub(super) location_id: Vec<u64>,
    #[prost(int64, repeated, tag = "2")]
    pub(super) value: Vec<i64>,
    #[prost(message, repeated, tag = "3")]
    pub(super) label: Vec<Label>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Label {
    #[prost(int64, tag = "1")]
    pub(super) key: i64,
    #[prost(int64, tag = "2")]
    pub(super) str: i64,
    #[prost(int64, tag = "3")]
    pub(super) num: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Mapping {
    #[prost(uint64, tag = "1")]
    pub(super) id: u64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Location {
    #[prost(uint64, tag = "1")]
    pub(super) id: u64,
    #[prost(uint64, tag = "2")]
    pub(super) mapping_id: u64,
    #[prost(message, repeated, tag = "4")]
    pub(super) line: Vec<Line>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Line {
    #[prost(uint64, tag = "1")]
    pub(super) function_id: u64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Function {
    #[prost(uint64, tag = "1")]
    pub(super) id: u64,
    #[prost(int64, tag = "2")]
    pub(super) name: i64,
}

fn unique(ids: impl Iterator<Item = u64>) -> BTreeSet<u64> {
    let mut known = BTreeSet::new();
    for id in ids {
        assert!(
            id != 0 && known.insert(id),
            "the id {id} is 0 or not unique"
        );
    }
    known
}

impl Profile {
    /// Reads a compressed profile, and checks it.
    pub(super) fn read(compressed: &[u8]) -> Self {
        let mut bytes = Vec::new();
        let read = flate2::read::GzDecoder::new(compressed).read_to_end(&mut bytes);
        read.expect("gzip");
        keep("pprof", &bytes);
        let profile = Self::decode(&*bytes).expect("a profile");
        profile.check();
        profile
    }

    pub(super) fn text(&self, index: i64) -> &str {
        &self.string_table[usize::try_from(index).expect("not negative")]
    }

    fn check(&self) {
        assert_eq!(self.text(0), "");
        let functions = unique(self.function.iter().map(|function| function.id));
        let mappings = unique(self.mapping.iter().map(|mapping| mapping.id));
        let locations = unique(self.location.iter().map(|location| location.id));
        for function in &self.function {
            assert!(!self.text(function.name).is_empty());
        }
        for location in &self.location {
            assert!(location.mapping_id == 0 || mappings.contains(&location.mapping_id));
            let mut lines = location.line.iter();
            assert!(lines.all(|line| functions.contains(&line.function_id)));
        }
        for sample in &self.sample {
            assert_eq!(sample.value.len(), self.sample_type.len());
            assert!(sample.location_id.iter().all(|id| locations.contains(id)));
            let mut keys = BTreeSet::new();
            for label in &sample.label {
                assert!(keys.insert(self.text(label.key)), "one value for each key");
                self.text(label.str);
            }
        }
        assert!(self.period > 0 && self.period_type.is_some());
        assert!(self.time_nanos > 0 && self.duration_nanos > 0);
    }

    /// Returns the names of the values, with their units.
    pub(super) fn values(&self) -> Vec<(&str, &str)> {
        let types = self.sample_type.iter();
        types
            .map(|kind| (self.text(kind.kind), self.text(kind.unit)))
            .collect()
    }

    /// Returns the sum of a value over the samples of a thread.
    pub(super) fn sum(&self, value: &str, thread: &str) -> i64 {
        let place = self.values().iter().position(|(name, _)| *name == value);
        let place = place.expect("the value");
        let is_of_thread = |sample: &&Sample| {
            let mut labels = sample.label.iter();
            labels.any(|label| self.text(label.key) == "thread" && self.text(label.str) == thread)
        };
        let samples = self.sample.iter().filter(is_of_thread);
        samples.map(|sample| sample.value[place]).sum()
    }

    pub(super) fn has_function(&self, name: &str) -> bool {
        let mut functions = self.function.iter();
        functions.any(|function| self.text(function.name).contains(name))
    }
}
