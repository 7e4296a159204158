//! The spans that sessions record, from their start to their end.
//!
//! Any thread finds a span by its id in the table of this module. The registry's extensions could
//! also store the spans. But then each span would take an allocation under its lock in the
//! registry, the layer would execute two fifths more instructions, and the child of a fork could
//! wait for that lock for ever.

use std::cell::Cell;
use std::sync::{Mutex, MutexGuard, OnceLock};
use std::time::Duration;

use tracing_core::Metadata;

use crate::api::MarkerSession;
use crate::integrations::bounded_wait::{poll_for_lock, unpoisoned};
use crate::integrations::tracing::field_values::FieldValues;
use crate::integrations::tracing::span_flow::SpanFlow;
use crate::types::ProfilerTime;

/// A span's id and its layer's number: ids are unique only within a registry, and there may be
/// several registries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SpanKey {
    pub(crate) layer: u32,
    pub(crate) id: u64,
}

/// A span that a session records.
#[derive(Debug)]
pub(crate) struct OpenSpan {
    pub(crate) key: SpanKey,
    pub(crate) session: MarkerSession,
    pub(crate) start: ProfilerTime,
    pub(crate) metadata: &'static Metadata<'static>,
    pub(crate) flow: SpanFlow,
    pub(crate) parent: Option<SpanFlow>,
    pub(crate) follows: Option<SpanFlow>,
    /// Sum of the times that threads spent in the span; `None` if busy times are not measured.
    pub(crate) busy: Option<Duration>,
    pub(crate) values: FieldValues,
}

/// Number of slots: with fewer open spans, collisions are rare. Colliding spans share a slot.
const SLOTS: usize = 2048;

thread_local! {
    /// Whether the thread uses a slot. If its allocator uses spans during that time, they are
    /// skipped instead of waiting for a lock.
    static USES_SLOT: Cell<bool> = const { Cell::new(false) };
}

/// A cache line. Not `CachePadded`, because this code is also built without the profiler and its
/// dependencies.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Slot(Mutex<Vec<OpenSpan>>);

/// Absent until the first span is recorded; until then, a lookup is one load.
static TABLE: OnceLock<Box<[Slot]>> = OnceLock::new();

/// The spans of a slot, locked. The fields are dropped in this order.
struct SlotSpans<'a>(MutexGuard<'a, Vec<OpenSpan>>, SlotUse);

/// Exists while the thread uses a slot.
struct SlotUse(());

impl SlotUse {
    /// Begins the use of a slot. Returns `None` if the thread already uses one.
    #[inline]
    fn begin() -> Option<Self> {
        (!USES_SLOT.replace(true)).then_some(Self(()))
    }
}

impl Drop for SlotUse {
    #[inline]
    fn drop(&mut self) {
        USES_SLOT.set(false);
    }
}

impl Slot {
    /// Locks the slot. Returns `None` in a nested call, and if the wait for the lock expires.
    #[inline]
    fn lock(&self) -> Option<SlotSpans<'_>> {
        let slot_use = SlotUse::begin()?;
        let spans = self.try_lock().or_else(|| self.wait_for_lock())?;
        Some(SlotSpans(spans, slot_use))
    }

    #[inline]
    fn try_lock(&self) -> Option<MutexGuard<'_, Vec<OpenSpan>>> {
        unpoisoned(self.0.try_lock())
    }

    #[cold]
    fn wait_for_lock(&self) -> Option<MutexGuard<'_, Vec<OpenSpan>>> {
        poll_for_lock(|| self.try_lock())
    }
}

#[inline]
fn slot_of(table: &[Slot], key: SpanKey) -> &Slot {
    // The upper bits of an id count how often the registry reused it. Without these bits, a span
    // gets the slot of its predecessor, and that slot's memory.
    const INDEX_BITS: u64 = (1 << 51) - 1;
    let index = (key.id & INDEX_BITS).wrapping_add(u64::from(key.layer) << 40);
    // Neighboring spans share many bits; the multiplication spreads them over the table.
    &table[(index.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize % SLOTS]
}

/// Adds a span at its start.
#[inline]
pub(crate) fn insert(span: OpenSpan) {
    let table = TABLE.get_or_init(|| (0..SLOTS).map(|_| Slot::default()).collect());
    let Some(mut slot) = slot_of(table, span.key).lock() else {
        return;
    };
    if slot.0.capacity() == 0 {
        slot.0.reserve_exact(1);
    }
    slot.0.push(span);
}

/// Runs `body` on a span; returns `None` if the span is not recorded.
#[inline]
pub(crate) fn with_span<T>(key: SpanKey, body: impl FnOnce(&mut OpenSpan) -> T) -> Option<T> {
    let mut slot = slot_of(TABLE.get()?, key).lock()?;
    let span = slot.0.iter_mut().rev().find(|span| span.key == key)?;
    Some(body(span))
}

/// Removes a span at its end.
#[inline]
pub(crate) fn remove(key: SpanKey) -> Option<OpenSpan> {
    let mut slot = slot_of(TABLE.get()?, key).lock()?;
    let index = slot.0.iter().rposition(|span| span.key == key)?;
    Some(slot.0.swap_remove(index))
}

/// Removes the spans of a dropped layer, which is not notified of their end.
pub(crate) fn forget_layer(layer: u32) {
    let slots = TABLE.get().into_iter().flatten();
    for mut slot in slots.filter_map(Slot::lock) {
        slot.0.retain(|span| span.key.layer != layer);
    }
}

#[cfg(all(test, has_profiler))]
mod tests {
    use super::*;

    fn open(layer: u32, id: u64) -> SpanKey {
        let key = SpanKey { layer, id };
        insert(OpenSpan {
            key,
            session: MarkerSession::for_test(),
            start: ProfilerTime::now(),
            metadata: tracing::subscriber::with_default(tracing_subscriber::registry(), || {
                tracing::info_span!("span").metadata().expect("enabled")
            }),
            flow: SpanFlow::new(),
            parent: None,
            follows: None,
            busy: None,
            values: FieldValues::new(),
        });
        key
    }

    #[test]
    fn span_is_found_until_its_end_or_the_end_of_its_layer() {
        const LAYER: u32 = u32::MAX;
        // Three times the number of slots, so that spans collide.
        let keys: Vec<_> = (1..=3 * SLOTS as u64).map(|id| open(LAYER, id)).collect();
        let of_other_layer = open(LAYER - 1, 1);
        let flows: Vec<_> = keys
            .iter()
            .map(|key| with_span(*key, |span| span.flow).expect("open"))
            .collect();
        for (key, flow) in keys.iter().zip(&flows).step_by(2) {
            assert_eq!(
                remove(*key).map(|span| (span.key, span.flow)),
                Some((*key, *flow))
            );
            assert!(remove(*key).is_none() && with_span(*key, |_| ()).is_none());
        }
        assert!(with_span(keys[1], |span| span.flow) == Some(flows[1]));
        forget_layer(LAYER);
        assert!(keys.iter().all(|key| with_span(*key, |_| ()).is_none()));
        assert!(remove(of_other_layer).is_some());
    }

    #[test]
    fn nested_use_of_a_slot_finds_no_span() {
        let key = open(u32::MAX - 2, 1);
        with_span(key, |_| {
            assert!(
                with_span(key, |_| ()).is_none(),
                "nested use, as by the application's allocator"
            )
        });
        let panics = || with_span(key, |_| panic!("on purpose"));
        assert!(std::panic::catch_unwind(panics).is_err());
        assert!(remove(key).is_some());
    }

    #[test]
    fn slot_held_for_ever_is_given_up() {
        let slot = Slot::default();
        // As by a thread that the child of a fork lacks.
        let held = slot.0.lock();
        assert!(slot.lock().is_none());
        drop(held);
        assert!(slot.lock().is_some());
    }
}
