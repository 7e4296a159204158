//! A table of data about open spans.
//!
//! Any thread finds a span by its id. The registry's extensions could also store the data. But then
//! each span would take an allocation under its lock in the registry, the layer would execute two
//! fifths more instructions, and the child of a fork could wait for that lock for ever.

use std::cell::Cell;
use std::sync::{Mutex, MutexGuard, OnceLock};

use crate::integrations::bounded_wait::{poll_for_lock, unpoisoned};

/// A span's id and its layer's number: ids are unique only within a registry, and there may be
/// several registries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SpanKey {
    pub(crate) layer: u32,
    pub(crate) id: u64,
}

/// Data about a span.
pub(crate) trait OfSpan {
    fn key(&self) -> SpanKey;
}

/// Number of slots: with fewer open spans, collisions are rare. Colliding spans share a slot.
pub(super) const SLOTS: usize = 2048;

thread_local! {
    /// Whether the thread uses a slot. If its allocator uses spans during that time, they are
    /// skipped instead of waiting for a lock.
    static USES_SLOT: Cell<bool> = const { Cell::new(false) };
}

/// A cache line. Not `CachePadded`, because this code is also built without the profiler and its
/// dependencies.
#[derive(Debug)]
#[repr(align(64))]
struct Slot<T>(Mutex<Vec<T>>);

/// The data of a slot, locked. The fields are dropped in this order.
struct SlotData<'a, T>(MutexGuard<'a, Vec<T>>, SlotUse);

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
        let data = self.try_lock().or_else(|| self.wait_for_lock())?;
        Some(SlotData(data, slot_use))
    }

    #[inline]
    fn try_lock(&self) -> Option<MutexGuard<'_, Vec<T>>> {
        unpoisoned(self.0.try_lock())
    }

    #[cold]
    fn wait_for_lock(&self) -> Option<MutexGuard<'_, Vec<T>>> {
        poll_for_lock(|| self.try_lock())
    }
}

/// The table. It has no memory until the first span is added; until then, a lookup is one load.
#[derive(Debug)]
pub(crate) struct SpanTable<T>(OnceLock<Box<[Slot<T>]>>);

impl<T: OfSpan> SpanTable<T> {
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
    pub(crate) fn insert(&self, data: T) {
        if self.0.get().is_none() {
            self.allocate();
        }
        let Some(mut slot) = self.slot(data.key()).and_then(Slot::lock) else {
            return;
        };
        if slot.0.capacity() == 0 {
            slot.0.reserve_exact(1);
        }
        slot.0.push(data);
    }

    /// Runs `body` on a span's data; returns `None` if the table lacks the span.
    #[inline]
    pub(crate) fn with<R>(&self, key: SpanKey, body: impl FnOnce(&mut T) -> R) -> Option<R> {
        let mut slot = self.slot(key)?.lock()?;
        let data = slot.0.iter_mut().rev().find(|data| data.key() == key)?;
        Some(body(data))
    }

    /// Removes a span's data.
    #[inline]
    pub(crate) fn remove(&self, key: SpanKey) -> Option<T> {
        let mut slot = self.slot(key)?.lock()?;
        let index = slot.0.iter().rposition(|data| data.key() == key)?;
        Some(slot.0.swap_remove(index))
    }

    /// Removes the data of a dropped layer's spans: the layer is not notified of their end.
    pub(crate) fn forget_layer(&self, layer: u32) {
        let slots = self.0.get().into_iter().flatten();
        for mut slot in slots.filter_map(Slot::lock) {
            slot.0.retain(|data| data.key().layer != layer);
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

    #[test]
    fn slot_held_for_ever_is_given_up() {
        let slot = Slot(Mutex::new(Vec::<u32>::new()));
        // As by a thread that the child of a fork lacks.
        let held = slot.0.lock();
        assert!(slot.lock().is_none());
        drop(held);
        assert!(slot.lock().is_some());
    }
}
