//! The tracks of one kind of metrics by their keys, and what the application says of their names.
//!
//! The macros of `metrics` ask the recorder for the metric at each use. So a metric that is known is
//! found under a shared lock, without an allocation. A new one is made with no lock of a shard held,
//! because making it waits for the lock of the profiler's counters.
//!
//! An allocator of the application may use metrics, too. So a thread that allocates for the registry
//! or that has a lock of the profiler makes no metric until then, and finds the known ones only if
//! that takes no wait.

use std::cell::Cell;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::{Arc, Mutex, RwLock, RwLockReadGuard};

use metrics::{Key, KeyName, Unit};

use crate::api::may_list_counters;
use crate::integrations::bounded_wait::{poll_for_lock, unpoisoned};
use crate::util::cut_at_character;

/// Maximum number of names with a description, of one kind.
const MAX_DESCRIPTIONS: usize = 8_000;
/// Maximum length of a description, in bytes. A longer one is cut.
const MAX_DESCRIPTION_BYTES: usize = 512;
/// Maximum length of the texts of a metric's key, in bytes.
const MAX_KEY_BYTES: usize = 2048;
/// Number of shards: threads that look for different metrics seldom share a cache line.
const SHARDS: usize = 16;

/// Held while a metric or a track is made, so that each is made once.
static MAKING: Mutex<()> = Mutex::new(());

thread_local! {
    /// Whether the thread makes a metric or keeps a description.
    static IS_MAKING: Cell<bool> = const { Cell::new(false) };
}

/// Exists while the thread makes a metric or keeps a description.
struct Making(());

impl Making {
    /// Returns `None` if the thread does so already, or if it has a lock of the profiler.
    fn begin() -> Option<Self> {
        if !may_list_counters() || IS_MAKING.replace(true) {
            return None;
        }
        Some(Self(()))
    }
}

impl Drop for Making {
    fn drop(&mut self) {
        IS_MAKING.set(false);
    }
}

/// Runs `make` on one thread at a time. Returns `None` if this thread may not make a track now.
#[cold]
pub(crate) fn make_alone<T>(make: impl FnOnce() -> T) -> Option<T> {
    let _making = Making::begin()?;
    let _alone = poll_for_lock(|| MAKING.try_lock())?;
    Some(make())
}

/// Returns the hash that a key brings along.
#[derive(Default)]
struct KeyHash(u64);

impl Hasher for KeyHash {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        }
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

type Shard<T> = RwLock<HashMap<Key, Arc<T>, BuildHasherDefault<KeyHash>>>;

/// What the application says of the metrics of one name.
#[derive(Clone, Debug, Default)]
pub(crate) struct MetricDescription {
    pub(crate) unit: Option<Unit>,
    pub(crate) text: String,
}

impl MetricDescription {
    pub(crate) fn new(unit: Option<Unit>, text: &str) -> Self {
        let text = cut_at_character(text, MAX_DESCRIPTION_BYTES).to_owned();
        Self { unit, text }
    }
}

/// The reason why a key has no metric.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Missing {
    /// The thread may not make one now. A later call may.
    NotNow,
    /// There are too many, or the key is too long.
    Refused,
}

/// The metrics of one kind.
pub(crate) struct Registry<T> {
    shards: [Shard<T>; SHARDS],
    descriptions: RwLock<HashMap<KeyName, MetricDescription>>,
}

impl<T> Default for Registry<T> {
    fn default() -> Self {
        Self {
            shards: Default::default(),
            descriptions: RwLock::default(),
        }
    }
}

/// Locks for reading. A thread that may not wait tries only once.
fn read<T>(lock: &RwLock<T>) -> Option<RwLockReadGuard<'_, T>> {
    unpoisoned(lock.try_read()).or_else(|| match may_list_counters() && !IS_MAKING.get() {
        true => poll_for_lock(|| lock.try_read()),
        false => None,
    })
}

impl<T> Registry<T> {
    fn shard(&self, key: &Key) -> &Shard<T> {
        // The map itself uses the lowest and the highest bits.
        &self.shards[(key.get_hash() >> 40) as usize % SHARDS]
    }

    #[inline]
    fn find(&self, key: &Key) -> Option<Arc<T>> {
        read(self.shard(key))?.get(key).map(Arc::clone)
    }

    /// Returns the metric of a key. `make` makes the first one; its result is not kept if it is
    /// `None`.
    #[inline]
    pub(crate) fn get_or_make(
        &self,
        key: &Key,
        make: impl FnOnce(&MetricDescription) -> Option<T>,
    ) -> Result<Arc<T>, Missing> {
        match self.find(key) {
            Some(known) => Ok(known),
            None => self.make(key, make),
        }
    }

    #[cold]
    fn make(
        &self,
        key: &Key,
        make: impl FnOnce(&MetricDescription) -> Option<T>,
    ) -> Result<Arc<T>, Missing> {
        let made = make_alone(|| {
            // Another thread may have been faster.
            if let Some(known) = self.find(key) {
                return Ok(known);
            }
            if key_bytes(key) > MAX_KEY_BYTES {
                return Err(Missing::Refused);
            }
            let metric = Arc::new(make(&self.description(key)).ok_or(Missing::Refused)?);
            let shard = poll_for_lock(|| self.shard(key).try_write());
            let mut shard = shard.ok_or(Missing::NotNow)?;
            if shard.try_reserve(1).is_err() {
                return Err(Missing::Refused);
            }
            shard.insert(key.clone(), Arc::clone(&metric));
            Ok(metric)
        });
        made.unwrap_or(Err(Missing::NotNow))
    }

    fn description(&self, key: &Key) -> MetricDescription {
        let descriptions = poll_for_lock(|| self.descriptions.try_read());
        let found = descriptions.and_then(|known| known.get(key.name()).cloned());
        found.unwrap_or_default()
    }

    /// Keeps a description for the metrics of this name that are made from now on.
    pub(crate) fn describe(&self, name: &KeyName, description: impl FnOnce() -> MetricDescription) {
        if name.as_str().len() > MAX_KEY_BYTES {
            return;
        }
        let Some(_making) = Making::begin() else {
            return;
        };
        let description = description();
        let Some(mut descriptions) = poll_for_lock(|| self.descriptions.try_write()) else {
            return;
        };
        let is_known = descriptions.contains_key(name);
        if is_known
            || (descriptions.len() < MAX_DESCRIPTIONS && descriptions.try_reserve(1).is_ok())
        {
            descriptions.insert(name.clone(), description);
        }
    }
}

/// Returns the length of the texts of a key, in bytes.
pub(crate) fn key_bytes(key: &Key) -> usize {
    let labels = key
        .labels()
        .map(|label| label.key().len() + label.value().len());
    key.name().len() + labels.sum::<usize>()
}

#[cfg(all(test, has_profiler))]
mod tests {
    use super::*;

    #[test]
    fn nested_use_finds_known_metrics_and_makes_none() {
        let registry = Registry::default();
        let (known, new) = (Key::from_name("known"), Key::from_name("new"));
        let make = |_: &MetricDescription| Some(7);
        assert_eq!(registry.get_or_make(&known, make).as_deref(), Ok(&7));
        make_alone(|| {
            assert_eq!(registry.get_or_make(&known, |_| None).as_deref(), Ok(&7));
            assert_eq!(registry.get_or_make(&new, make), Err(Missing::NotNow));
            assert_eq!(make_alone(|| ()), None);
        })
        .expect("no other thread makes one");
        assert_eq!(registry.get_or_make(&new, make).as_deref(), Ok(&7));
    }

    #[test]
    fn metric_without_a_track_or_with_a_long_key_is_refused() {
        let registry = Registry::default();
        let key = Key::from_name("full");
        assert_eq!(registry.get_or_make(&key, |_| None), Err(Missing::Refused));
        let long = Key::from_parts("long", &[("key", "x".repeat(MAX_KEY_BYTES))]);
        let result = registry.get_or_make(&long, |_| Some(()));
        assert_eq!(result, Err(Missing::Refused));
        assert_eq!(registry.get_or_make(&key, |_| Some(())).as_deref(), Ok(&()));
    }

    #[test]
    fn each_metric_is_made_once() {
        let registry = Registry::default();
        let made = std::sync::atomic::AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for number in 0..500 {
                        let key = Key::from_name(format!("metric {number}"));
                        let metric = registry.get_or_make(&key, |_| {
                            made.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                            Some(number)
                        });
                        assert_eq!(metric.as_deref(), Ok(&number));
                    }
                });
            }
        });
        assert_eq!(made.into_inner(), 500);
    }

    #[test]
    fn description_is_that_of_the_name_and_can_be_replaced() {
        let registry = Registry::default();
        let name = KeyName::from("name");
        let unit_of = |registry: &Registry<()>, name: &'static str| {
            let mut unit = None;
            _ = registry.get_or_make(&Key::from_name(name), |description| {
                unit = description.unit;
                None
            });
            unit
        };
        for unit in [Unit::Bytes, Unit::Percent] {
            registry.describe(&name, || MetricDescription::new(Some(unit), ""));
            assert_eq!(unit_of(&registry, "name"), Some(unit));
        }
        assert_eq!(unit_of(&registry, "other"), None);
    }
}
