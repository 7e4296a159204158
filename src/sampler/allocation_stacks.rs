//! The stacks of sampled allocations that are alive.
//!
//! The buffer loses its oldest entries, and memory may be alive for longer. So the sampler keeps the
//! unwound stack of each sampled allocation until the memory is freed, up to a limit. Allocations with
//! equal stacks share one.

use std::cell::RefCell;
use std::collections::hash_map::Entry;
use std::hash::BuildHasherDefault;
use std::sync::Arc;

use crate::allocations::live_allocations;
use crate::buffer::{ChunkedBuffer, LaneHandle};
use crate::sampler::encode::{SampleEncoder, SampleWriter, StoredStack};
use crate::state::Session;
use crate::types::TimeStamp;
use crate::util::{LockRank, NamedMutex, NumberMap, allocator_has};

/// Maximum memory of the stacks, in bytes. Beyond it, further allocations have no stack in a
/// snapshot of the heap.
const MAX_BYTES: usize = 64 << 20;
/// Memory that a stack takes in addition to its frames and labels, in bytes.
const STACK_BYTES: usize = 256;
/// Memory that an allocation takes whose stack is there already, in bytes.
const SHARE_BYTES: usize = 64;
/// Number of stacks that a snapshot of the heap reads under the lock.
const STACKS_AT_ONCE: usize = 256;
/// Minimum age of a stack that is dropped because its memory is not alive, in ns. The thread hands
/// over the stack before it lists the allocation.
const MIN_AGE_NS: u64 = 1_000_000_000;

/// The stack of a sampled allocation.
#[derive(Debug)]
struct KeptStack {
    time: TimeStamp,
    /// Number of the module list with which it was unwound.
    modules: u64,
    stack: Arc<StoredStack>,
}

#[derive(Debug)]
struct KeptStacks {
    by_number: Option<NumberMap<KeptStack>>,
    /// The distinct stacks by their hashes.
    distinct: NumberMap<Arc<StoredStack>>,
    /// Memory of all, in bytes.
    bytes: usize,
}

impl KeptStacks {
    const fn new() -> Self {
        Self {
            by_number: None,
            distinct: NumberMap::with_hasher(BuildHasherDefault::new()),
            bytes: 0,
        }
    }

    /// Returns the kept stack that has the same frames, or a copy. Returns `None` if memory for a
    /// copy is lacking, or if another stack has this hash.
    fn share(&mut self, stack: &StoredStack, hash: u64) -> Option<Arc<StoredStack>> {
        self.distinct.try_reserve(1).ok()?;
        match self.distinct.entry(hash) {
            Entry::Occupied(known) => {
                let known = known.get();
                known.is_same(stack).then(|| Arc::clone(known))
            }
            Entry::Vacant(place) => {
                let mut copy = StoredStack::default();
                let bytes = STACK_BYTES + stack.bytes();
                let has_memory = self.bytes + bytes <= MAX_BYTES && allocator_has(bytes);
                if !has_memory || !copy.try_copy_from(stack) {
                    return None;
                }
                self.bytes += bytes;
                Some(Arc::clone(place.insert(Arc::new(copy))))
            }
        }
    }

    /// Drops the distinct stacks that no allocation has.
    fn drop_unused(&mut self) {
        let bytes = &mut self.bytes;
        self.distinct.retain(|_, stack| {
            let is_used = Arc::strong_count(stack) > 1;
            if !is_used {
                *bytes -= STACK_BYTES + stack.bytes();
            }
            is_used
        });
    }
}

static KEPT: NamedMutex<KeptStacks> = NamedMutex::new(
    "stacks of allocations",
    LockRank::SessionData,
    KeptStacks::new(),
);

/// Keeps the stack of a sampled allocation. Returns false if memory for the stack is lacking, or if a
/// different stack has the same hash.
pub(super) fn keep_stack(number: u64, time: TimeStamp, modules: u64, stack: &StoredStack) -> bool {
    let hash = stack.hash();
    let mut kept = KEPT.lock();
    let Some(stack) = kept.share(stack, hash) else {
        return false;
    };
    let by_number = kept.by_number.get_or_insert_default();
    if by_number.try_reserve(1).is_err() {
        return false;
    }
    let kept_stack = KeptStack {
        time,
        modules,
        stack,
    };
    if by_number.insert(number, kept_stack).is_none() {
        kept.bytes += SHARE_BYTES;
    }
    true
}

/// Drops the stacks of allocations that have been freed. Without memory for the list of those that
/// are alive, does nothing.
pub(super) fn drop_freed(now: TimeStamp) {
    if KEPT.lock().by_number.is_none() {
        return;
    }
    let Some(live) = live_allocations() else {
        return;
    };
    let mut alive = NumberMap::default();
    if alive.try_reserve(live.len()).is_err() {
        return;
    }
    alive.extend(live.iter().map(|(_, allocation)| (allocation.stack, ())));
    let mut kept = KEPT.lock();
    let Some(by_number) = &mut kept.by_number else {
        return;
    };
    let before = by_number.len();
    by_number.retain(|number, stack| {
        now.since_ns(stack.time) < MIN_AGE_NS || alive.contains_key(number)
    });
    let dropped = before - by_number.len();
    kept.bytes -= dropped * SHARE_BYTES;
    kept.drop_unused();
}

/// Forgets the parent's stacks in the child of a fork.
pub(crate) fn forget_allocation_stacks_in_child() {
    KEPT.renew_in_child(KeptStacks::new());
}

/// Returns the size of the stacks of all allocations, in bytes, as if they shared none.
pub(crate) fn allocation_stack_bytes() -> u64 {
    let kept = KEPT.lock();
    let all = kept.by_number.iter().flat_map(NumberMap::values);
    all.map(|kept| kept.stack.bytes() as u64).sum()
}

/// Drops all stacks.
pub(crate) fn forget_allocation_stacks() {
    let forgotten = std::mem::replace(&mut *KEPT.lock(), KeptStacks::new());
    drop(forgotten);
}

/// Writes the stacks with these numbers to a separate buffer. Returns the numbers of the stacks
/// that are there.
pub(crate) fn write_allocation_stacks(
    session: &Session,
    buffer: &ChunkedBuffer,
    lane: &LaneHandle<'_>,
    numbers: impl Iterator<Item = u64>,
) -> NumberMap<()> {
    let encoder = RefCell::new(SampleEncoder::default());
    let writer = SampleWriter {
        lane,
        encoder: &encoder,
        session: session.generation,
        process_start: session.process_start,
    };
    let mut written = NumberMap::default();
    let mut numbers = numbers.peekable();
    while numbers.peek().is_some() {
        // Not all at once: the sampler waits for the lock.
        let kept = KEPT.lock();
        for number in numbers.by_ref().take(STACKS_AT_ONCE) {
            let found = kept.by_number.as_ref().and_then(|all| all.get(&number));
            let Some(found) = found else { continue };
            if written.try_reserve(1).is_ok()
                && writer.write_backtrace(number, found.time, found.modules, &found.stack)
            {
                written.insert(number, ());
            }
        }
    }
    buffer.maintain();
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(kept: &mut KeptStacks, stack: &StoredStack) -> Option<Arc<StoredStack>> {
        kept.share(stack, stack.hash())
    }

    #[test]
    fn equal_stacks_are_shared_and_their_memory_is_given_back() {
        let one = StoredStack::of_addresses(&[1, 2, 3]);
        let other = StoredStack::of_addresses(&[1, 2]);
        let mut kept = KeptStacks::new();
        let first = share(&mut kept, &one).expect("memory");
        let bytes = kept.bytes;
        assert_eq!(bytes, STACK_BYTES + one.bytes());
        let again = share(&mut kept, &one).expect("memory");
        assert!(Arc::ptr_eq(&first, &again));
        assert_eq!(kept.bytes, bytes);
        let different = share(&mut kept, &other).expect("memory");
        assert!(different.is_same(&other) && !different.is_same(&one));
        assert!(
            kept.share(&other, one.hash()).is_none(),
            "another stack with the same hash"
        );
        drop((first, again));
        kept.drop_unused();
        assert_eq!(kept.bytes, STACK_BYTES + other.bytes());
        drop(different);
        kept.drop_unused();
        assert_eq!((kept.bytes, kept.distinct.len()), (0, 0));
    }

    #[test]
    fn distinct_stacks_are_limited() {
        let mut kept = KeptStacks::new();
        kept.bytes = MAX_BYTES - STACK_BYTES;
        assert!(share(&mut kept, &StoredStack::of_addresses(&[1, 2, 3])).is_none());
        assert!(share(&mut kept, &StoredStack::of_addresses(&[])).is_some());
        assert!(share(&mut kept, &StoredStack::of_addresses(&[])).is_some());
        assert_eq!(kept.bytes, MAX_BYTES);
    }
}
