//! The stacks of sampled allocations that are alive.
//!
//! The buffer loses its oldest entries, and memory may be alive for longer. So the sampler keeps the
//! unwound stack of each sampled allocation until the memory is freed, up to a limit.

use std::cell::RefCell;
use std::sync::atomic::AtomicU64;

use crate::allocations::live_allocations;
use crate::buffer::{ChunkedBuffer, LaneHandle};
use crate::sampler::encode::{SampleEncoder, SampleWriter, StoredStack};
use crate::state::Session;
use crate::types::TimeStamp;
use crate::util::{LockRank, NamedMutex, NumberMap};

/// Maximum memory of the stacks, in bytes. Beyond it, further allocations have no stack in a
/// snapshot of the heap.
const MAX_BYTES: usize = 64 << 20;
/// Memory that a stack takes beside its frames and labels, in bytes.
const STACK_BYTES: usize = 256;
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
    bytes: usize,
    stack: StoredStack,
}

#[derive(Debug)]
struct KeptStacks {
    by_number: Option<NumberMap<KeptStack>>,
    bytes: usize,
}

static KEPT: NamedMutex<KeptStacks> = NamedMutex::new(
    "stacks of allocations",
    LockRank::SessionData,
    KeptStacks {
        by_number: None,
        bytes: 0,
    },
);

/// Keeps the stack of a sampled allocation. Returns false if there is no memory for it.
pub(super) fn keep_stack(number: u64, time: TimeStamp, modules: u64, stack: &StoredStack) -> bool {
    let mut copy = StoredStack::default();
    if !copy.try_copy_from(stack) {
        return false;
    }
    let bytes = STACK_BYTES + copy.bytes();
    let mut kept = KEPT.lock();
    let KeptStacks {
        by_number,
        bytes: all_bytes,
    } = &mut *kept;
    let by_number = by_number.get_or_insert_default();
    if *all_bytes + bytes > MAX_BYTES || by_number.try_reserve(1).is_err() {
        return false;
    }
    *all_bytes += bytes;
    by_number.insert(
        number,
        KeptStack {
            time,
            modules,
            bytes,
            stack: copy,
        },
    );
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
    let KeptStacks { by_number, bytes } = &mut *kept;
    let Some(by_number) = by_number else { return };
    by_number.retain(|number, stack| {
        let stays = now.since_ns(stack.time) < MIN_AGE_NS || alive.contains_key(number);
        if !stays {
            *bytes -= stack.bytes;
        }
        stays
    });
}

/// Forgets the parent's stacks in the child of a fork.
pub(crate) fn forget_allocation_stacks_in_child() {
    KEPT.renew_in_child(KeptStacks {
        by_number: None,
        bytes: 0,
    });
}

/// Returns the memory of all stacks, in bytes.
pub(crate) fn allocation_stack_bytes() -> u64 {
    KEPT.lock().bytes as u64
}

/// Drops all stacks.
pub(crate) fn forget_allocation_stacks() {
    let mut kept = KEPT.lock();
    kept.bytes = 0;
    let forgotten = kept.by_number.take();
    drop(kept);
    drop(forgotten);
}

/// Writes the stacks with these numbers to a buffer of their own. Returns the numbers of those that
/// are there.
pub(crate) fn write_allocation_stacks(
    session: &Session,
    buffer: &ChunkedBuffer,
    lane: &LaneHandle<'_>,
    numbers: impl Iterator<Item = u64>,
) -> NumberMap<()> {
    let encoder = RefCell::new(SampleEncoder::default());
    let dropped = AtomicU64::new(0);
    let writer = SampleWriter {
        lane,
        encoder: &encoder,
        session: session.generation,
        process_start: session.process_start,
        dropped: &dropped,
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
