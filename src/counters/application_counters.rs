//! The counters of the application.
//!
//! A counter is two numbers, which any thread of the application changes without a lock, and a place
//! in one list, which the counter takes with its first change. The sampler reads the numbers of all
//! counters in the list. While a session runs, a counter that has been dropped keeps a place in a
//! second list, because the buffer may hold its values.
//!
//! A change may come from the application's allocator while the profiler allocates. So a change
//! takes the list's lock only if its thread holds no lock of the profiler, and otherwise leaves that
//! to a later change.
//!
//! The profile has whole numbers. So a counter shows a number with a fraction in parts of one: the
//! sampler reads the number, multiplies it and rounds. The number itself is kept as a float, so that a
//! sum does not collect the rounding errors of its parts.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

use crate::counters::description::{
    CounterDescription, CounterKind, CounterReading, next_counter_id,
};
use crate::platform::monotonic_now;
use crate::types::{CounterParams, Features, TimeStamp};
use crate::util::{
    Guard, LockRank, NamedMutex, allocator_has, cut_at_character,
    is_any_lock_held_on_current_thread,
};

/// Maximum number of counters that exist at once. Further ones are not recorded: each costs a few
/// nanoseconds of each tick.
const MAX_LIVE: usize = 10_000;
/// Maximum number of dropped counters that are kept; the newest ones are.
const MAX_ENDED: usize = 1_000;
/// Maximum length of each text of a counter, in bytes. A longer text is cut.
const MAX_TEXT_BYTES: usize = 512;
/// Memory that a counter takes without its texts, in bytes.
const COUNTER_BYTES: usize = 512;

/// The numbers of a counter. They wrap around at the limits of their types.
#[derive(Debug, Default)]
pub(crate) struct CounterValues {
    count: AtomicI64,
    operations: AtomicU64,
}

impl CounterValues {
    const fn new() -> Self {
        Self {
            count: AtomicI64::new(0),
            operations: AtomicU64::new(0),
        }
    }

    /// Reads both numbers. A concurrent change may be in only one of them.
    fn read(&self) -> CounterReading {
        CounterReading {
            count: self.count.load(Ordering::Relaxed),
            operations: self.operations.load(Ordering::Relaxed),
        }
    }

    #[inline]
    fn add(&self, number: i64) {
        self.count.fetch_add(number, Ordering::Relaxed);
    }

    #[inline]
    fn add_operation(&self, number: i64) {
        self.add(number);
        self.operations.fetch_add(1, Ordering::Relaxed);
    }

    #[inline]
    fn set(&self, number: i64) {
        self.count.store(number, Ordering::Relaxed);
    }
}

/// A number with a fraction, and the number of changes that made it.
#[derive(Debug, Default)]
pub(crate) struct FloatValues {
    /// The bits of the float.
    value: AtomicU64,
    operations: AtomicU64,
}

impl FloatValues {
    fn value(&self) -> f64 {
        f64::from_bits(self.value.load(Ordering::Relaxed))
    }

    fn operations(&self) -> u64 {
        self.operations.load(Ordering::Relaxed)
    }

    /// Adds to the number. Ignores what would not give a finite number.
    #[inline]
    pub(crate) fn add(&self, number: f64) {
        let add = |before| {
            let sum = f64::from_bits(before) + number;
            sum.is_finite().then(|| sum.to_bits())
        };
        let _ = (self.value).fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
    }

    /// Adds to the number what a few operations add together.
    #[inline]
    pub(crate) fn add_operations(&self, number: f64, operations: u64) {
        self.add(number);
        self.operations.fetch_add(operations, Ordering::Relaxed);
    }

    /// Sets the number. Ignores what is not a finite number.
    #[inline]
    pub(crate) fn set(&self, number: f64) {
        if number.is_finite() {
            self.value.store(number.to_bits(), Ordering::Relaxed);
        }
    }
}

/// How a counter shows a number with a fraction.
#[derive(Debug)]
pub(crate) struct ScaledFloat {
    values: Arc<FloatValues>,
    parts_of_one: f64,
    /// The number and the operations that the counter does not show.
    base: (f64, u64),
}

impl ScaledFloat {
    /// Shows the whole number.
    pub(crate) fn new(values: &Arc<FloatValues>, parts_of_one: f64) -> Self {
        Self {
            values: Arc::clone(values),
            parts_of_one,
            base: (0.0, 0),
        }
    }

    /// Shows the growth of the number from now on.
    pub(crate) fn from_now(values: &Arc<FloatValues>, parts_of_one: f64) -> Self {
        let base = (values.value(), values.operations());
        Self {
            base,
            ..Self::new(values, parts_of_one)
        }
    }

    /// Reads both numbers. A concurrent change may be in only one of them. A number beyond the
    /// limits of the type becomes the limit.
    pub(crate) fn read(&self) -> CounterReading {
        let value = (self.values.value() - self.base.0) * self.parts_of_one;
        CounterReading {
            count: value.round() as i64,
            operations: self.values.operations().wrapping_sub(self.base.1),
        }
    }
}

/// Where the numbers of a counter are.
#[derive(Debug)]
enum ValuesPlace {
    Static(&'static CounterValues),
    Own(CounterValues),
    /// In a number with a fraction, which several counters may show.
    Scaled(ScaledFloat),
}

/// A counter of the application, in the list of counters.
#[derive(Debug)]
pub(crate) struct ApplicationCounter {
    pub(crate) description: CounterDescription,
    values: ValuesPlace,
    pub(crate) registered_at: TimeStamp,
    /// Set once. The sampler reads the counter once more, and forgets it.
    is_dropped: AtomicBool,
}

impl ApplicationCounter {
    fn new(description: CounterDescription, values: ValuesPlace) -> Self {
        Self {
            description,
            values,
            registered_at: monotonic_now(),
            is_dropped: AtomicBool::new(false),
        }
    }

    /// Returns whether the application has dropped the counter. Its values do not change any more.
    pub(crate) fn is_dropped(&self) -> bool {
        self.is_dropped.load(Ordering::Acquire)
    }

    /// Returns the numbers that changes of the counter itself go to.
    fn values(&self) -> Option<&CounterValues> {
        match &self.values {
            ValuesPlace::Static(values) => Some(values),
            ValuesPlace::Own(values) => Some(values),
            ValuesPlace::Scaled(_) => None,
        }
    }

    pub(crate) fn read(&self) -> CounterReading {
        match &self.values {
            ValuesPlace::Static(values) => values.read(),
            ValuesPlace::Own(values) => values.read(),
            ValuesPlace::Scaled(scaled) => scaled.read(),
        }
    }
}

impl<Text> CounterParams<Text> {
    fn to_description(&self, text: impl Fn(&Text) -> Cow<'static, str>) -> CounterDescription {
        let kind = match self.is_total {
            true => CounterKind::Total,
            false => CounterKind::Level,
        };
        CounterDescription {
            id: next_counter_id(),
            feature: Features::NONE,
            name: text(&self.label),
            category: text(&self.category),
            description: text(&self.description),
            kind,
            counts_operations: self.is_total,
            unit: self.unit,
            color: self.color,
        }
    }
}

/// A counter in a static variable of the application.
#[derive(Debug)]
pub(crate) struct StaticCounter {
    params: CounterParams<&'static str>,
    values: CounterValues,
    is_listed: AtomicBool,
    /// The number of changes of the lists at which the counter got no place, plus 1; 0 before that.
    /// Before another change, it would get none again.
    refused_at: AtomicU64,
}

impl StaticCounter {
    pub(crate) const fn new(params: CounterParams<&'static str>) -> Self {
        Self {
            params,
            values: CounterValues::new(),
            is_listed: AtomicBool::new(false),
            refused_at: AtomicU64::new(0),
        }
    }

    #[inline]
    pub(crate) fn add(&'static self, number: i64) {
        self.ensure_listed();
        self.values.add(number);
    }

    #[inline]
    pub(crate) fn add_operation(&'static self, number: i64) {
        self.ensure_listed();
        self.values.add_operation(number);
    }

    #[inline]
    pub(crate) fn set(&'static self, number: i64) {
        self.ensure_listed();
        self.values.set(number);
    }

    #[inline]
    fn ensure_listed(&'static self) {
        if !self.is_listed.load(Ordering::Relaxed) {
            self.list();
        }
    }

    #[cold]
    fn list(&'static self) {
        let refusal = || application_counter_changes() + 1;
        let was_refused = self.refused_at.load(Ordering::Relaxed) == refusal();
        if was_refused || is_any_lock_held_on_current_thread() {
            return;
        }
        // The caller may be an allocator, inside `parking_lot` even.
        let mut lists = LISTS.lock_by_polling();
        if self.is_listed.load(Ordering::Relaxed) {
            return;
        }
        let refusal = refusal();
        let listed = lists.add(0, || {
            let description = self.params.to_description(|text| Cow::Borrowed(text));
            ApplicationCounter::new(description, ValuesPlace::Static(&self.values))
        });
        match listed {
            Some(_) => self.is_listed.store(true, Ordering::Relaxed),
            None => self.refused_at.store(refusal, Ordering::Relaxed),
        }
    }
}

/// A counter that the application owns.
#[derive(Debug)]
pub(crate) struct OwnedCounter(Result<Arc<ApplicationCounter>, CounterValues>);

impl OwnedCounter {
    /// Without memory for the list, the counter counts and is not recorded.
    pub(crate) fn new(params: &CounterParams<&str>) -> Self {
        Self::with_place(params, ValuesPlace::Own(CounterValues::new()))
    }

    /// Creates a counter that shows a number with a fraction. Changes go to that number, not to the
    /// counter.
    pub(crate) fn of_float(params: &CounterParams<&str>, scaled: ScaledFloat) -> Self {
        Self::with_place(params, ValuesPlace::Scaled(scaled))
    }

    fn with_place(params: &CounterParams<&str>, values: ValuesPlace) -> Self {
        let texts = [params.label, params.category, params.description];
        let bytes = texts
            .map(|text| text.len().min(MAX_TEXT_BYTES))
            .iter()
            .sum();
        if is_any_lock_held_on_current_thread() {
            return Self(Err(CounterValues::new()));
        }
        let text = |text: &&str| Cow::Owned(cut_at_character(text, MAX_TEXT_BYTES).to_owned());
        let listed = LISTS.lock().add(bytes, || {
            ApplicationCounter::new(params.to_description(text), values)
        });
        Self(listed.ok_or_else(CounterValues::new))
    }

    #[cfg(test)]
    pub(crate) fn id(&self) -> Option<u64> {
        let counter = self.0.as_ref().ok()?;
        Some(counter.description.id)
    }

    /// Whether the counter is in the list, so that sessions record it.
    pub(crate) fn is_listed(&self) -> bool {
        self.0.is_ok()
    }

    fn values(&self) -> Option<&CounterValues> {
        match &self.0 {
            Ok(counter) => counter.values(),
            Err(values) => Some(values),
        }
    }

    #[inline]
    pub(crate) fn add(&self, number: i64) {
        if let Some(values) = self.values() {
            values.add(number);
        }
    }

    #[inline]
    pub(crate) fn add_operation(&self, number: i64) {
        if let Some(values) = self.values() {
            values.add_operation(number);
        }
    }

    #[inline]
    pub(crate) fn set(&self, number: i64) {
        if let Some(values) = self.values() {
            values.set(number);
        }
    }
}

impl Drop for OwnedCounter {
    fn drop(&mut self) {
        let Ok(counter) = &self.0 else {
            return;
        };
        counter.is_dropped.store(true, Ordering::Release);
        if is_any_lock_held_on_current_thread() {
            // Inside the profiler's own work: the counter keeps its place until that is needed, or
            // until another session begins.
            CHANGES.fetch_add(1, Ordering::Release);
            return;
        }
        let lost = LISTS.lock().end(counter);
        drop(lost);
    }
}

/// The lists of counters.
#[derive(Debug)]
pub(crate) struct ApplicationCounters {
    live: Vec<Arc<ApplicationCounter>>,
    /// Dropped counters, in the order of their drops.
    ended: VecDeque<Arc<ApplicationCounter>>,
    /// Whether a session runs, whose buffer may hold values of dropped counters.
    keeps_ended: bool,
}

static LISTS: NamedMutex<ApplicationCounters> = NamedMutex::new(
    "counters",
    LockRank::Counters,
    ApplicationCounters {
        live: Vec::new(),
        ended: VecDeque::new(),
        keeps_ended: false,
    },
);

/// Number of changes of the lists. The sampler takes the lock only after a change.
static CHANGES: AtomicU64 = AtomicU64::new(0);

impl ApplicationCounters {
    /// Adds a counter whose texts have this size. Returns `None` if there are too many or if there is
    /// no memory.
    fn add(
        &mut self,
        text_bytes: usize,
        counter: impl FnOnce() -> ApplicationCounter,
    ) -> Option<Arc<ApplicationCounter>> {
        if self.live.len() >= MAX_LIVE {
            self.live.retain(|counter| !counter.is_dropped());
        }
        let has_memory =
            self.live.try_reserve(1).is_ok() && allocator_has(COUNTER_BYTES + text_bytes);
        if self.live.len() >= MAX_LIVE || !has_memory {
            return None;
        }
        let counter = Arc::new(counter());
        self.live.push(Arc::clone(&counter));
        CHANGES.fetch_add(1, Ordering::Release);
        Some(counter)
    }

    /// Moves a counter to the dropped ones. Returns one that is not kept any more.
    fn end(&mut self, counter: &Arc<ApplicationCounter>) -> Option<Arc<ApplicationCounter>> {
        let place = self
            .live
            .iter()
            .position(|live| Arc::ptr_eq(live, counter))?;
        let ended = self.live.swap_remove(place);
        CHANGES.fetch_add(1, Ordering::Release);
        if !self.keeps_ended {
            return Some(ended);
        }
        let lost = if self.ended.len() >= MAX_ENDED {
            self.ended.pop_front()
        } else {
            None
        };
        match self.ended.try_reserve(1) {
            Ok(()) => {
                self.ended.push_back(ended);
                lost
            }
            Err(_) => Some(ended),
        }
    }
}

/// Returns the number of changes of the list of counters.
pub(crate) fn application_counter_changes() -> u64 {
    CHANGES.load(Ordering::Acquire)
}

/// Calls `visit` with all counters: first the dropped ones, then those that exist.
pub(crate) fn for_each_application_counter(visit: impl FnMut(&Arc<ApplicationCounter>)) {
    let lists = LISTS.lock();
    lists.ended.iter().chain(&lists.live).for_each(visit);
}

/// Keeps the counters that are dropped from now on, because a session begins.
pub(crate) fn keep_dropped_counters() {
    forget_dropped(true);
}

/// Forgets the dropped counters, and keeps no further ones, because the session has ended.
pub(crate) fn forget_dropped_counters() {
    forget_dropped(false);
}

fn forget_dropped(keeps_ended: bool) {
    let mut lists = LISTS.lock();
    let dropped = std::mem::take(&mut lists.ended);
    lists.live.retain(|counter| !counter.is_dropped());
    lists.keeps_ended = keeps_ended;
    CHANGES.fetch_add(1, Ordering::Release);
    drop(lists);
    drop(dropped);
}

/// Whether a counter that the calling thread makes now would be listed, if there is space.
pub(crate) fn may_list_counters() -> bool {
    !is_any_lock_held_on_current_thread()
}

/// Locks the counters while the process forks. The child has the same ones.
pub(crate) fn hold_counters_for_fork() -> Guard<'static, ApplicationCounters> {
    LISTS.lock()
}

/// A counter of this crate or of the application, with its description.
#[derive(Clone, Debug)]
pub(crate) enum KnownCounter {
    Own(&'static CounterDescription),
    /// A counter of this crate for something that this machine has.
    Found(Arc<CounterDescription>),
    Application(Arc<ApplicationCounter>),
}

impl Deref for KnownCounter {
    type Target = CounterDescription;

    fn deref(&self) -> &CounterDescription {
        match self {
            Self::Own(description) => description,
            Self::Found(description) => description,
            Self::Application(counter) => &counter.description,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(scaled: &ScaledFloat) -> (i64, u64) {
        let reading = scaled.read();
        (reading.count, reading.operations)
    }

    #[test]
    fn sum_does_not_collect_rounding_errors() {
        let values = Arc::default();
        let whole = ScaledFloat::new(&values, 1.0);
        let parts = ScaledFloat::new(&values, 1e6);
        for _ in 0..1000 {
            values.add_operations(0.0004, 1);
        }
        assert_eq!(read(&whole), (0, 1000));
        assert_eq!(read(&parts), (400_000, 1000));
        let later = ScaledFloat::from_now(&values, 1e6);
        values.add_operations(1.5, 3);
        assert_eq!(read(&later), (1_500_000, 3));
        assert_eq!(read(&whole), (2, 1003));
    }

    #[test]
    fn number_stays_finite_and_within_the_limits() {
        let values = Arc::default();
        let scaled = ScaledFloat::new(&values, 1000.0);
        values.set(-2.5);
        values.set(f64::NAN);
        values.add(f64::INFINITY);
        assert_eq!(read(&scaled), (-2500, 0));
        values.set(f64::MAX);
        values.add(f64::MAX);
        assert_eq!(read(&scaled), (i64::MAX, 0));
        values.set(1.0);
        assert_eq!(read(&scaled), (1000, 0));
    }

    #[test]
    fn changes_of_all_threads_are_added() {
        let values = Arc::<FloatValues>::default();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..10_000).for_each(|_| values.add_operations(0.25, 1)));
            }
        });
        let scaled = ScaledFloat::new(&values, 1.0);
        assert_eq!(read(&scaled), (10_000, 40_000));
    }
}
