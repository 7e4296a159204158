//! Counters of the application.

use crate::api::backend;
use crate::api::status::profiler_feature_active;
use crate::types::{CounterParams, CounterUnit, Features, GraphColor};

/// A level that goes up and down, as a track of the profile: jobs that wait, open connections,
/// bytes in a cache.
///
/// It is the usual form, a `static`. [`OwnedProfilerCounter`] is for counters that come and go.
///
/// ```
/// use gekkota::counter::{CounterUnit, ProfilerCounter};
///
/// static QUEUE: ProfilerCounter = ProfilerCounter::new("queue", "Server", "jobs that wait");
/// static CACHE: ProfilerCounter =
///     ProfilerCounter::new("cache", "Server", "size of the cache").with_unit(CounterUnit::Bytes);
///
/// QUEUE.add(1);
/// QUEUE.add(-1);
/// CACHE.set(64 << 20);
/// ```
///
/// The sampler reads the value on each tick, and writes it only if it has changed: between two
/// ticks, only the last value is seen. The value wraps around at the limits of an `i64`.
///
/// The counter appears in the profile after its first change. In the viewer it is a track of its
/// own, under its label, that shows how the value changes; in the viewer's processed format
/// ([`Format::Processed`](crate::profile::Format::Processed)) also with unit and color, as a level.
/// The categories `Memory`, `Bandwidth` and `power` select the viewer's own tracks for these, of
/// which the first has bytes, and the last picowatt hours.
///
/// May be changed on any thread, also by an allocator, but not by a signal handler. The first
/// change takes a lock and allocates. So an allocator that is not re-entrant, because it holds a
/// lock of its own, changes the counter once before it serves. Cost: one atomic addition. Idea:
/// Gecko's `ProfilerCounter`.
#[doc(alias = "AtomicProfilerCount", alias = "PROFILER_DEFINE_COUNT")]
#[derive(Debug)]
pub struct ProfilerCounter(backend::StaticCounter, StaticParams);

/// A sum that only grows, with the number of operations that made it: requests, or bytes that were
/// sent, with the number of packets.
///
/// ```
/// use gekkota::counter::{CounterUnit, ProfilerCounterTotal};
///
/// static SENT: ProfilerCounterTotal =
///     ProfilerCounterTotal::new("sent", "Bandwidth", "bytes sent").with_unit(CounterUnit::Bytes);
///
/// SENT.add(1500);
/// ```
///
/// The profile has the growth since the session's start, and the track shows the growth between two
/// ticks. Otherwise as [`ProfilerCounter`]. Cost: two atomic additions. Idea: Gecko's
/// `ProfilerCounterTotal`.
#[doc(
    alias = "PROFILER_DEFINE_COUNT_TOTAL",
    alias = "AUTO_PROFILER_COUNT_TOTAL"
)]
#[derive(Debug)]
pub struct ProfilerCounterTotal(backend::StaticCounter, StaticParams);

/// A [`ProfilerCounter`] whose texts are made at run time, and that may be dropped.
///
/// ```
/// use gekkota::counter::OwnedProfilerCounter;
///
/// let shards: Vec<_> = (0..4)
///     .map(|shard| OwnedProfilerCounter::new(&format!("shard {shard}"), "Store", "entries"))
///     .collect();
/// shards[2].add(100);
/// ```
///
/// The values of a dropped counter stay in the profile. Another counter with the same texts is
/// another track. The profile has at most 10,000 counters that exist, with the `static` ones, and
/// the 1,000 that were dropped last; texts are cut at 512 bytes. A counter that is dropped while no
/// session runs is in no profile.
///
/// Making one takes a lock, and memory: about 500 bytes, and the texts. Dropping one takes the
/// lock, and searches the list of counters. Without memory, or if 10,000 other counters exist, a
/// counter counts but is not recorded.
#[derive(Debug)]
pub struct OwnedProfilerCounter(backend::OwnedCounter);

/// A [`ProfilerCounterTotal`] whose texts are made at run time, and that may be dropped. Otherwise
/// as [`OwnedProfilerCounter`].
#[derive(Debug)]
pub struct OwnedProfilerCounterTotal(backend::OwnedCounter);

type StaticParams = CounterParams<&'static str>;

macro_rules! static_counter {
    ($name:ident, $is_total:literal) => {
        impl $name {
            /// Creates a counter with the value 0. `label` is the name of the track.
            pub const fn new(
                label: &'static str,
                category: &'static str,
                description: &'static str,
            ) -> Self {
                Self::with_params(CounterParams {
                    label,
                    category,
                    description,
                    is_total: $is_total,
                    unit: CounterUnit::Number,
                    color: None,
                })
            }

            /// Sets the unit. The default is a number.
            #[must_use]
            pub const fn with_unit(self, unit: CounterUnit) -> Self {
                Self::with_params(CounterParams { unit, ..self.1 })
            }

            /// Sets the color of the graph. The default is grey.
            #[must_use]
            pub const fn with_color(self, color: GraphColor) -> Self {
                Self::with_params(CounterParams {
                    color: Some(color),
                    ..self.1
                })
            }

            const fn with_params(params: StaticParams) -> Self {
                Self(backend::StaticCounter::new(params), params)
            }
        }
    };
}

static_counter!(ProfilerCounter, false);
static_counter!(ProfilerCounterTotal, true);

impl ProfilerCounter {
    /// Adds to the value; a negative number subtracts.
    #[inline]
    pub fn add(&'static self, number: i64) {
        self.0.add(number);
    }

    /// Sets the value.
    #[inline]
    pub fn set(&'static self, value: i64) {
        self.0.set(value);
    }
}

impl ProfilerCounterTotal {
    /// Adds to the sum, and counts one operation.
    #[inline]
    pub fn add(&'static self, number: i64) {
        self.0.add_operation(number);
    }
}

macro_rules! owned_counter {
    ($name:ident, $is_total:literal) => {
        impl $name {
            /// Creates a counter with the value 0. `label` is the name of the track.
            pub fn new(label: &str, category: &str, description: &str) -> Self {
                Self::with_looks(label, category, description, CounterUnit::Number, None)
            }

            /// Creates a counter with this unit, and with this color of its graph instead of grey.
            pub fn with_looks(
                label: &str,
                category: &str,
                description: &str,
                unit: CounterUnit,
                color: Option<GraphColor>,
            ) -> Self {
                Self(backend::OwnedCounter::new(&CounterParams {
                    label,
                    category,
                    description,
                    is_total: $is_total,
                    unit,
                    color,
                }))
            }
        }
    };
}

owned_counter!(OwnedProfilerCounter, false);
owned_counter!(OwnedProfilerCounterTotal, true);

impl OwnedProfilerCounter {
    /// Adds to the value; a negative number subtracts.
    #[inline]
    pub fn add(&self, number: i64) {
        self.0.add(number);
    }

    /// Sets the value.
    #[inline]
    pub fn set(&self, value: i64) {
        self.0.set(value);
    }
}

impl OwnedProfilerCounterTotal {
    /// Adds to the sum, and counts one operation.
    #[inline]
    pub fn add(&self, number: i64) {
        self.0.add_operation(number);
    }
}

static BANDWIDTH: ProfilerCounterTotal =
    ProfilerCounterTotal::new("bandwidth", "Bandwidth", "bytes sent and received")
        .with_unit(CounterUnit::Bytes)
        .with_color(GraphColor::Blue);

/// Adds bytes that the application has sent or received to the counter of the feature `bandwidth`.
/// Does nothing in a session without it.
///
/// ```
/// use gekkota::counter::profiler_count_bandwidth_bytes;
///
/// profiler_count_bandwidth_bytes(1500);
/// ```
///
/// The viewer shows the counter as its track of the bandwidth, with the number of transfers. After
/// a session with the feature, later sessions have the track, too; without the feature it is empty.
///
/// May be called from any thread, but not by a signal handler. Cost: one relaxed load without the
/// feature, otherwise also that of [`ProfilerCounterTotal::add`]. Idea: Gecko's function of this
/// name.
#[inline]
pub fn profiler_count_bandwidth_bytes(count: i64) {
    if profiler_feature_active(Features::BANDWIDTH) {
        BANDWIDTH.add(count);
    }
}
