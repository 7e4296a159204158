//! Handles that change a track and the metric of another recorder.

use std::sync::Arc;

use metrics::{Counter, CounterFn, Gauge, GaugeFn, Histogram, HistogramFn};

/// A track, and the handle of the inner recorder for the same metric.
pub(crate) struct Both<T, H> {
    pub(crate) track: Arc<T>,
    pub(crate) inner: H,
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
