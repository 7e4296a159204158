//! `ProfilerRecorder` passes metrics to the recorder that it wraps.
//!
//! Also runs without the profiler: `cargo test --no-default-features --features metrics`.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use gekkota::{ProfilerRecorder, ProfilerSession, StartParams};
use metrics::atomics::AtomicU64;
use metrics::{
    Counter, Gauge, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder, SharedString, Unit,
    counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram,
    with_local_recorder,
};

use crate::common::counters::{self, sums};
use crate::common::{Read, isolated};

/// A histogram that keeps the sum and the number of its values.
#[derive(Default)]
struct Values(Mutex<(f64, usize)>);

impl HistogramFn for Values {
    fn record(&self, value: f64) {
        self.record_many(value, 1);
    }

    fn record_many(&self, value: f64, count: usize) {
        let mut values = self.0.lock().expect("no panic with the lock");
        values.0 += value * count as f64;
        values.1 += count;
    }
}

/// A recorder as an exporter has one. It can forget its metrics.
#[derive(Default)]
struct Exporter {
    numbers: Mutex<BTreeMap<String, Arc<AtomicU64>>>,
    histograms: Mutex<BTreeMap<String, Arc<Values>>>,
    described: Mutex<Vec<(String, Option<Unit>, String)>>,
}

impl Exporter {
    fn describe(&self, key: &KeyName, unit: Option<Unit>, text: &str) {
        let mut described = self.described.lock().expect("no panic with the lock");
        described.push((key.as_str().to_owned(), unit, text.to_owned()));
    }

    fn number(&self, key: &Key) -> Arc<AtomicU64> {
        let mut numbers = self.numbers.lock().expect("no panic with the lock");
        Arc::clone(numbers.entry(key.to_string()).or_default())
    }

    fn forget(&self) {
        self.numbers.lock().expect("no panic with the lock").clear();
    }

    /// Returns the bits of a counter or a gauge.
    fn bits(&self, key: &str) -> Option<u64> {
        let numbers = self.numbers.lock().expect("no panic with the lock");
        Some(numbers.get(key)?.load(Ordering::Relaxed))
    }
}

impl Recorder for Exporter {
    fn describe_counter(&self, key: KeyName, unit: Option<Unit>, description: SharedString) {
        self.describe(&key, unit, &description);
    }

    fn describe_gauge(&self, key: KeyName, unit: Option<Unit>, description: SharedString) {
        self.describe(&key, unit, &description);
    }

    fn describe_histogram(&self, key: KeyName, unit: Option<Unit>, description: SharedString) {
        self.describe(&key, unit, &description);
    }

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.number(key))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(self.number(key))
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        let mut histograms = self.histograms.lock().expect("no panic with the lock");
        Histogram::from_arc(Arc::clone(histograms.entry(key.to_string()).or_default()))
    }
}

fn use_every_metric() {
    describe_counter!("requests", Unit::Count, "all requests");
    describe_gauge!("load", "work per processor");
    describe_histogram!("query", Unit::Seconds, "time of a query");
    counter!("requests").increment(2);
    counter!("requests").absolute(7);
    counter!("requests").absolute(3);
    gauge!("load").set(1.5);
    gauge!("load").increment(1.0);
    gauge!("load").decrement(0.25);
    histogram!("query").record(0.5);
    histogram!("query").record_many(0.25, 4);
}

#[test]
fn inner_recorder_gets_all_metrics() {
    isolated(|| {
        let exporter = Arc::<Exporter>::default();
        let recorder = ProfilerRecorder::with_inner(Arc::clone(&exporter));
        let session = ProfilerSession::start(StartParams::default());
        with_local_recorder(&recorder, use_every_metric);

        assert_eq!(exporter.bits("Key(requests)"), Some(7));
        let load = exporter.bits("Key(load)").map(f64::from_bits);
        assert_eq!(load, Some(2.25));
        let histograms = exporter.histograms.lock().expect("no panic");
        let query = histograms["Key(query)"].0.lock().expect("no panic");
        assert_eq!(*query, (1.5, 5));
        let described = exporter.described.lock().expect("no panic");
        let described: Vec<_> = described
            .iter()
            .map(|(name, unit, text)| (name.as_str(), *unit, text.as_str()))
            .collect();
        let expected = [
            ("requests", Some(Unit::Count), "all requests"),
            ("load", None, "work per processor"),
            ("query", Some(Unit::Seconds), "time of a query"),
        ];
        assert_eq!(described, expected);

        let Ok(session) = session else {
            // Only a build without the profiler refuses a session.
            assert_eq!(gekkota::Features::available(), gekkota::Features::NONE);
            return;
        };
        let read = Read::from_profile(&session.finish().expect("a profile"));
        let track = |name| sums(counters::counter(&read.0, name));
        assert_eq!(track("requests"), [7, 2]);
        assert_eq!(track("load (millionths)"), [2_250_000, 0]);
        assert_eq!(track("query (ns)"), [1_500_000_000, 5]);
    });
}

#[test]
fn metric_that_the_inner_recorder_forgets_begins_anew_there() {
    isolated(|| {
        let exporter = Arc::<Exporter>::default();
        let recorder = ProfilerRecorder::with_inner(Arc::clone(&exporter));
        with_local_recorder(&recorder, || {
            counter!("idle").increment(2);
            exporter.forget();
            counter!("idle").increment(5);
        });
        assert_eq!(exporter.bits("Key(idle)"), Some(5));
    });
}
