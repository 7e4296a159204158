//! The spans that sessions record, from their beginnings to their ends.
//!
//! They are found by their ids, from any thread, in a table of this room. The registry's extensions would do, but each look into
//! them costs two looks into the registry, and each span an allocation.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{LazyLock, Mutex, MutexGuard, TryLockError};
use std::time::Duration;

use tracing_core::Metadata;

use crate::api::MarkerSession;
use crate::base::ProfilerTime;
use crate::interop::field_values::FieldValues;
use crate::interop::span_flow::SpanFlow;

/// A span's id, with the layer's number: ids are those of a registry, and there may be several.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct SpanKey {
    pub(super) layer: u32,
    pub(super) id: u64,
}

/// What is known of a span that a session records.
#[derive(Debug)]
pub(super) struct OpenSpan {
    pub(super) key: SpanKey,
    pub(super) session: MarkerSession,
    pub(super) start: ProfilerTime,
    pub(super) metadata: &'static Metadata<'static>,
    pub(super) flow: SpanFlow,
    pub(super) parent: Option<SpanFlow>,
    pub(super) follows: Option<SpanFlow>,
    /// How long threads were in it, all together; `None` where that is not measured.
    pub(super) busy: Option<Duration>,
    pub(super) values: FieldValues,
}

/// So many spans at once do not meet, mostly. Those that do have a slot in common.
const SLOTS: usize = 2048;

/// A slot's lock is held for a few stores, and an allocation when it gets more spans than ever. Whoever has it and does not run gives
/// it back when it runs again. Who waits in vain for the last of these is in the child of a fork, and the holder is not: a fifth of a
/// second, after which the slot is done without.
const MOST_SPINS: u32 = 100;
const MOST_YIELDS: u32 = 10_000;
const MOST_SLEEPS: u32 = 200;

thread_local! {
    /// The thread has a slot's lock, so that what its allocator asks for meanwhile is not waited for.
    static HOLDS_SLOT: Cell<bool> = const { Cell::new(false) };
}

#[derive(Debug, Default)]
#[repr(align(64))]
struct Slot(Mutex<Vec<OpenSpan>>);

static TABLE: LazyLock<Box<[Slot]>> =
    LazyLock::new(|| (0..SLOTS).map(|_| Slot::default()).collect());

/// Whether there ever was one, for those who look for theirs while no profiler is active.
static HAS_ANY: AtomicBool = AtomicBool::new(false);

/// A slot's spans, locked.
struct SlotSpans<'a>(MutexGuard<'a, Vec<OpenSpan>>);

impl Drop for SlotSpans<'_> {
    fn drop(&mut self) {
        HOLDS_SLOT.set(false);
    }
}

impl Slot {
    /// `None` where the lock cannot be had.
    #[inline]
    fn lock(&self) -> Option<SlotSpans<'_>> {
        if HOLDS_SLOT.get() {
            return None;
        }
        let spans = match self.0.try_lock() {
            Ok(spans) => spans,
            Err(TryLockError::Poisoned(spans)) => spans.into_inner(),
            Err(TryLockError::WouldBlock) => self.wait_for_lock()?,
        };
        HOLDS_SLOT.set(true);
        Some(SlotSpans(spans))
    }

    #[cold]
    fn wait_for_lock(&self) -> Option<MutexGuard<'_, Vec<OpenSpan>>> {
        for tries in 0..MOST_SPINS + MOST_YIELDS + MOST_SLEEPS {
            match self.0.try_lock() {
                Ok(spans) => return Some(spans),
                Err(TryLockError::Poisoned(spans)) => return Some(spans.into_inner()),
                Err(TryLockError::WouldBlock) if tries < MOST_SPINS => std::hint::spin_loop(),
                Err(TryLockError::WouldBlock) if tries < MOST_SPINS + MOST_YIELDS => {
                    std::thread::yield_now()
                }
                Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(1)),
            }
        }
        None
    }
}

#[inline]
fn slot_of(key: SpanKey) -> Option<SlotSpans<'static>> {
    // Registries count how often they have used an id in its upper bits: without them a span has the slot of the one before it,
    // and that one's memory.
    const PLACE_BITS: u64 = (1 << 51) - 1;
    let place = (key.id & PLACE_BITS).wrapping_add(u64::from(key.layer) << 40);
    // A multiplication spreads places, which have much in common.
    TABLE[(place.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize % SLOTS].lock()
}

/// A span begins.
#[inline]
pub(super) fn insert(span: OpenSpan) {
    if !HAS_ANY.load(Ordering::Relaxed) {
        HAS_ANY.store(true, Ordering::Relaxed);
    }
    if let Some(mut slot) = slot_of(span.key) {
        let spans = &mut slot.0;
        if spans.capacity() == 0 {
            spans.reserve_exact(1);
        }
        spans.push(span);
    }
}

/// What is asked of a span that is recorded; `None` for any other.
#[inline]
pub(super) fn with_span<T>(key: SpanKey, body: impl FnOnce(&mut OpenSpan) -> T) -> Option<T> {
    if !HAS_ANY.load(Ordering::Relaxed) {
        return None;
    }
    slot_of(key)?
        .0
        .iter_mut()
        .rev()
        .find(|span| span.key == key)
        .map(body)
}

/// A span ends.
#[inline]
pub(super) fn remove(key: SpanKey) -> Option<OpenSpan> {
    if !HAS_ANY.load(Ordering::Relaxed) {
        return None;
    }
    let mut slot = slot_of(key)?;
    let place = slot.0.iter().rposition(|span| span.key == key)?;
    Some(slot.0.swap_remove(place))
}

/// Forgets the spans of a layer that is gone, of which nobody tells when they end.
pub(super) fn forget_layer(layer: u32) {
    if HAS_ANY.load(Ordering::Relaxed) {
        TABLE
            .iter()
            .filter_map(Slot::lock)
            .for_each(|mut slot| slot.0.retain(|span| span.key.layer != layer));
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
    fn a_span_is_there_from_its_beginning_to_its_end_or_its_layers() {
        const LAYER: u32 = u32::MAX;
        // More than there are slots, so that some meet.
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
    fn a_lock_that_cannot_be_had_is_done_without() {
        let key = open(u32::MAX - 2, 1);
        with_span(key, |_| {
            assert!(
                with_span(key, |_| ()).is_none(),
                "below itself, as in an allocator of the host's"
            )
        });
        assert!(remove(key).is_some());
    }
}
