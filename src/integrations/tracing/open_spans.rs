//! What is kept of open spans: those that sessions record, from their start to their end, and where
//! the futures of spans wait.
//!
//! Any thread finds a span by its id. The registry's extensions could also store the data. But then
//! each span would take an allocation under its lock in the registry, the layer would execute two
//! fifths more instructions, and the child of a fork could wait for that lock for ever.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock};
use std::time::Duration;

use tracing_core::Metadata;

use crate::api::{EnteredWait, MarkerSession, ProfilerContext, TaskWait};
use crate::integrations::bounded_wait::poll_for_lock;
use crate::integrations::tracing::field_values::FieldValues;
use crate::markers::FlowId;
use crate::types::ProfilerTime;

/// A span's id and its layer's number: ids are unique only within a registry, and there may be
/// several registries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SpanKey {
    pub(crate) layer: u32,
    pub(crate) id: u64,
}

/// The number by which markers refer to a span. `tracing` reuses its ids after a span's end, but
/// these numbers are unique.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SpanFlow(u64);

impl SpanFlow {
    /// Returns a new number. Each thread reserves blocks of numbers, so that threads rarely
    /// contend.
    #[inline]
    pub(crate) fn new() -> Self {
        const BLOCK: u64 = 1024;
        // Starts at 1, because 0 means no flow.
        static NEXT_BLOCK: AtomicU64 = AtomicU64::new(1);
        thread_local! {
            static NEXT: Cell<(u64, u64)> = const { Cell::new((0, 0)) };
        }
        let (mut next, mut end) = NEXT.get();
        if next == end {
            next = NEXT_BLOCK.fetch_add(BLOCK, Ordering::Relaxed);
            end = next + BLOCK;
        }
        NEXT.set((next + 1, end));
        Self(next)
    }

    /// Returns the number by which a payload refers to a flow; 0 for `None`.
    #[inline]
    pub(crate) fn number_of(flow: Option<Self>) -> u64 {
        flow.map_or(0, |flow| flow.0)
    }

    pub(crate) fn from_number(number: u64) -> Option<Self> {
        (number != 0).then_some(Self(number))
    }

    /// Returns the id for the profile. It differs from ids that the application derives from
    /// addresses, and from those of spans in other processes.
    pub(crate) fn id(self) -> FlowId {
        const MARK: u64 = 1 << 63;
        const NUMBER_BITS: u32 = 40;
        let process = (u64::from(std::process::id()) << NUMBER_BITS) & !MARK;
        FlowId::from(MARK | process | (self.0 & ((1 << NUMBER_BITS) - 1)))
    }
}

/// A span that a session records.
#[derive(Debug)]
pub(crate) struct OpenSpan {
    pub(crate) session: MarkerSession,
    pub(crate) start: ProfilerTime,
    pub(crate) metadata: &'static Metadata<'static>,
    pub(crate) flow: SpanFlow,
    pub(crate) parent: Option<SpanFlow>,
    pub(crate) follows: Option<SpanFlow>,
    /// The id of the trace in which a thread has exited the span; 0 for none.
    pub(crate) trace_id: u128,
    /// Sum of the times that threads spent in the span; `None` if busy times are not measured.
    pub(crate) busy: Option<Duration>,
    pub(crate) values: FieldValues,
}

pub(crate) static OPEN_SPANS: SpanTable<OpenSpan> = SpanTable::new();

/// The spans that a thread has entered during a session that records waits. A span that is open, and
/// that no thread is in, waits.
pub(crate) static SPAN_WAITS: SpanTable<TaskWait> = SpanTable::new();

/// Ends the wait of a span that the thread enters.
pub(crate) fn enter_wait(key: SpanKey, name: &str) -> Option<EnteredWait> {
    let enter = |wait: &mut TaskWait| wait.enter(name, key.id);
    if let Some(entered) = SPAN_WAITS.with(key, enter) {
        return entered;
    }
    SPAN_WAITS.insert(key, TaskWait::new());
    SPAN_WAITS.with(key, enter).flatten()
}

/// Begins the wait of a span that the thread exits. `context` is that of the span.
pub(crate) fn exit_wait(key: SpanKey, entered: EnteredWait, context: ProfilerContext) {
    let exit = |wait: &mut TaskWait| wait.exit(entered, context.words());
    if SPAN_WAITS.with(key, exit).is_none() {
        TaskWait::new().abandon(entered);
    }
}

/// Ends an entry whose exit will not be noticed.
pub(crate) fn abandon_wait(key: SpanKey, entered: EnteredWait) {
    let abandon = |wait: &mut TaskWait| wait.abandon(entered);
    if SPAN_WAITS.with(key, abandon).is_none() {
        TaskWait::new().abandon(entered);
    }
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
#[derive(Debug)]
#[repr(align(64))]
struct Slot<T>(Mutex<Vec<(SpanKey, T)>>);

/// The data of a slot, locked. The fields are dropped in this order.
struct SlotData<'a, T>(MutexGuard<'a, Vec<(SpanKey, T)>>, SlotUse);

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

impl<T> Slot<T> {
    /// Locks the slot. Returns `None` in a nested call, and if the wait for the lock expires.
    #[inline]
    fn lock(&self) -> Option<SlotData<'_, T>> {
        let slot_use = SlotUse::begin()?;
        let data = poll_for_lock(|| self.0.try_lock())?;
        Some(SlotData(data, slot_use))
    }
}

/// The table. It has no memory until the first span is added; until then, a lookup is one load.
#[derive(Debug)]
pub(crate) struct SpanTable<T>(OnceLock<Box<[Slot<T>]>>);

impl<T> SpanTable<T> {
    pub(crate) const fn new() -> Self {
        Self(OnceLock::new())
    }

    #[inline]
    fn slot(&self, key: SpanKey) -> Option<&Slot<T>> {
        Some(slot_of(self.0.get()?, key))
    }

    /// Allocates the table, before other threads wait for it: the application's allocator may use
    /// spans.
    #[cold]
    fn allocate(&self) {
        let slots = (0..SLOTS).map(|_| Slot(Mutex::new(Vec::new())));
        let slots: Box<[Slot<T>]> = slots.collect();
        drop(self.0.set(slots));
    }

    /// Adds the data of a span.
    #[inline]
    pub(crate) fn insert(&self, key: SpanKey, data: T) {
        if self.0.get().is_none() {
            self.allocate();
        }
        let Some(mut slot) = self.slot(key).and_then(Slot::lock) else {
            return;
        };
        if slot.0.capacity() == 0 {
            slot.0.reserve_exact(1);
        }
        slot.0.push((key, data));
    }

    /// Runs `body` on a span's data; returns `None` if the table lacks the span.
    #[inline]
    pub(crate) fn with<R>(&self, key: SpanKey, body: impl FnOnce(&mut T) -> R) -> Option<R> {
        let mut slot = self.slot(key)?.lock()?;
        let mut newest_first = slot.0.iter_mut().rev();
        let (_, data) = newest_first.find(|(known, _)| *known == key)?;
        Some(body(data))
    }

    /// Removes a span's data.
    #[inline]
    pub(crate) fn remove(&self, key: SpanKey) -> Option<T> {
        let mut slot = self.slot(key)?.lock()?;
        let index = slot.0.iter().rposition(|(known, _)| *known == key)?;
        Some(slot.0.swap_remove(index).1)
    }

    /// Removes the data of a dropped layer's spans: the layer is not notified of their end.
    pub(crate) fn forget_layer(&self, layer: u32) {
        let slots = self.0.get().into_iter().flatten();
        for mut slot in slots.filter_map(Slot::lock) {
            slot.0.retain(|(key, _)| key.layer != layer);
        }
    }
}

#[inline]
fn slot_of<T>(slots: &[Slot<T>], key: SpanKey) -> &Slot<T> {
    // The upper bits of an id count how often the registry reused it. Without these bits, a span
    // gets the slot of its predecessor, and that slot's memory.
    const INDEX_BITS: u64 = (1 << 51) - 1;
    let index = (key.id & INDEX_BITS).wrapping_add(u64::from(key.layer) << 40);
    // Neighboring spans share many bits; the multiplication spreads them over the table.
    &slots[(index.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize % SLOTS]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(layer: u32, id: u64) -> SpanKey {
        let key = SpanKey { layer, id };
        let span = OpenSpan {
            session: MarkerSession::for_test(),
            start: ProfilerTime::now(),
            metadata: tracing::subscriber::with_default(tracing_subscriber::registry(), || {
                tracing::info_span!("span").metadata().expect("enabled")
            }),
            flow: SpanFlow::new(),
            parent: None,
            follows: None,
            trace_id: 0,
            busy: None,
            values: FieldValues::new(),
        };
        OPEN_SPANS.insert(key, span);
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
            .map(|key| OPEN_SPANS.with(*key, |span| span.flow).expect("open"))
            .collect();
        for (key, flow) in keys.iter().zip(&flows).step_by(2) {
            assert_eq!(OPEN_SPANS.remove(*key).map(|span| span.flow), Some(*flow));
            assert!(OPEN_SPANS.remove(*key).is_none() && OPEN_SPANS.with(*key, |_| ()).is_none());
        }
        assert!(OPEN_SPANS.with(keys[1], |span| span.flow) == Some(flows[1]));
        OPEN_SPANS.forget_layer(LAYER);
        assert!(
            keys.iter()
                .all(|key| OPEN_SPANS.with(*key, |_| ()).is_none())
        );
        assert!(OPEN_SPANS.remove(of_other_layer).is_some());
    }

    #[test]
    fn nested_use_of_a_slot_finds_no_span() {
        let key = open(u32::MAX - 2, 1);
        OPEN_SPANS.with(key, |_| {
            assert!(
                OPEN_SPANS.with(key, |_| ()).is_none(),
                "nested use, as by the application's allocator"
            )
        });
        let panics = || OPEN_SPANS.with(key, |_| panic!("on purpose"));
        assert!(std::panic::catch_unwind(panics).is_err());
        assert!(OPEN_SPANS.remove(key).is_some());
    }

    #[test]
    fn slot_held_for_ever_is_given_up() {
        let slot = Slot::<u32>(Mutex::default());
        // As by a thread that the child of a fork lacks.
        let held = slot.0.lock();
        assert!(slot.lock().is_none());
        drop(held);
        assert!(slot.lock().is_some());
    }

    #[test]
    fn flows_from_several_threads_are_unique() {
        let make = || (0..3000).map(|_| SpanFlow::new().0).collect::<Vec<_>>();
        let mut all = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(make)).collect();
            threads
                .into_iter()
                .flat_map(|thread| thread.join().expect("numbers"))
                .collect::<Vec<_>>()
        });
        all.sort_unstable();
        all.dedup();
        assert_eq!((all.len(), all.contains(&0)), (4 * 3000, false));
    }

    #[test]
    fn id_is_not_an_address() {
        let flow = SpanFlow(5).id();
        assert_ne!(flow, SpanFlow(6).id());
        assert!(flow.to_hex()[0] >= b'8');
    }
}
