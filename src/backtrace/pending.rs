//! Stacks that threads have captured of themselves and that wait for the sampler, which unwinds
//! them.
//!
//! The stacks form a linked list, whose nodes lie in the memory of the stacks themselves. A thread
//! adds a stack by exchanging the list's head. The sampler takes all stacks at once and never
//! waits; it takes a stack that is added later the next time.
//!
//! **Contract** (cited below):
//! - *own memory*: a node lies at the front of its backtrace's memory, which reserves space for it
//!   and is aligned to words. This memory came from a box of `words` words, by `Box::into_raw`;
//! - *all at once*: a node leaves the list only by a swap of the head with null, so the thread that
//!   made the swap has exclusive access to the node and to all that follow it. If the old head
//!   reappears while a thread adds a node, that is harmless: the node links to the head that is
//!   current.

use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};

use crate::backtrace::copy::{CapturedBacktrace, RESERVED_WORDS};
use crate::types::{Generation, StackFeatures};

/// Maximum size of all pending stacks, in words: 32 MiB. If the application adds stacks faster than
/// the sampler takes them, the excess is dropped and counted.
const MAX_PENDING_WORDS: usize = (32 << 20) / 8;

/// A stack that waits for the sampler.
#[derive(Debug)]
pub(crate) struct PendingStack {
    pub(crate) number: u64,
    pub(crate) session: Generation,
    pub(crate) features: StackFeatures,
    /// Whether the sampler keeps the stack when the buffer no longer has it.
    pub(crate) is_kept: bool,
    pub(crate) backtrace: CapturedBacktrace,
}

#[derive(Debug)]
struct Node {
    next: *mut Node,
    /// The stack, without its memory.
    pending: PendingStack,
    words: usize,
}
const _: () =
    assert!(size_of::<Node>() <= RESERVED_WORDS * 8 && align_of::<Node>() <= align_of::<u64>());

static HEAD: AtomicPtr<Node> = AtomicPtr::new(ptr::null_mut());
static PENDING_WORDS: AtomicUsize = AtomicUsize::new(0);
static LAST_NUMBER: AtomicU64 = AtomicU64::new(0);
static LOST: AtomicU64 = AtomicU64::new(0);

/// Hands a stack to the session's sampler, and returns the number that identifies it there. Drops
/// the stack and returns 0 when too many are pending.
pub(crate) fn add_pending_stack(
    backtrace: CapturedBacktrace,
    session: Generation,
    features: StackFeatures,
) -> u64 {
    add(backtrace, session, features, false)
}

/// Hands the whole stack of an allocation to the sampler, like [`add_pending_stack`]. The sampler
/// keeps it while the allocation is alive.
pub(crate) fn add_kept_stack(backtrace: CapturedBacktrace, session: Generation) -> u64 {
    add(backtrace, session, StackFeatures::FULL, true)
}

fn add(
    mut backtrace: CapturedBacktrace,
    session: Generation,
    features: StackFeatures,
    is_kept: bool,
) -> u64 {
    let words = backtrace.words.len();
    if PENDING_WORDS.fetch_add(words, Ordering::Relaxed) + words > MAX_PENDING_WORDS {
        PENDING_WORDS.fetch_sub(words, Ordering::Relaxed);
        count_lost_stack();
        return 0;
    }
    let number = LAST_NUMBER.fetch_add(1, Ordering::Relaxed) + 1;
    let node_address = Box::into_raw(std::mem::take(&mut backtrace.words)).cast::<Node>();
    let node = Node {
        next: ptr::null_mut(),
        pending: PendingStack {
            number,
            session,
            features,
            is_kept,
            backtrace,
        },
        words,
    };
    // SAFETY: *own memory*: only this thread has the memory until the node is in the list.
    unsafe { node_address.write(node) };
    let mut head = HEAD.load(Ordering::Relaxed);
    loop {
        // SAFETY: as above.
        unsafe { (*node_address).next = head };
        match HEAD.compare_exchange_weak(head, node_address, Ordering::Release, Ordering::Relaxed) {
            Ok(_) => return number,
            Err(other) => head = other,
        }
    }
}

/// Counts a stack as lost, for example because it could not be copied.
#[cold]
pub(crate) fn count_lost_stack() {
    LOST.fetch_add(1, Ordering::Relaxed);
}

/// Returns how many stacks of markers were lost since the last session began.
pub(crate) fn lost_stacks() -> u64 {
    LOST.load(Ordering::Relaxed)
}

/// Resets the number of lost stacks, for a new session.
pub(crate) fn reset_lost_stacks() {
    LOST.store(0, Ordering::Relaxed);
}

/// Returns whether any stack is pending.
pub(crate) fn has_pending_stacks() -> bool {
    !HEAD.load(Ordering::Relaxed).is_null()
}

/// Takes all pending stacks, and calls `body` with each, oldest first.
pub(crate) fn take_pending_stacks(mut body: impl FnMut(PendingStack)) {
    let mut node = HEAD.swap(ptr::null_mut(), Ordering::Acquire);
    let mut oldest = ptr::null_mut();
    while !node.is_null() {
        // SAFETY: *all at once*.
        let next = unsafe { std::mem::replace(&mut (*node).next, oldest) };
        oldest = node;
        node = next;
    }
    while !oldest.is_null() {
        // SAFETY: *all at once*; the memory is not read as a node again.
        let Node {
            next,
            mut pending,
            words,
        } = unsafe { oldest.read() };
        // SAFETY: *own memory*, and *all at once*.
        let words =
            unsafe { Box::from_raw(ptr::slice_from_raw_parts_mut(oldest.cast::<u64>(), words)) };
        oldest = next;
        PENDING_WORDS.fetch_sub(words.len(), Ordering::Relaxed);
        pending.backtrace.words = words;
        body(pending);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backtrace::copy::BacktraceParts;

    #[test]
    fn stacks_arrive_once_in_order_and_excess_is_counted() {
        let sessions = [1, 2, 3].map(Generation::from_number);
        let adders = sessions.map(|session| {
            std::thread::spawn(move || {
                let add = |_| {
                    let backtrace =
                        CapturedBacktrace::capture_here(BacktraceParts::Labels).expect("memory");
                    add_pending_stack(backtrace, session, StackFeatures::LABELS)
                };
                (0..2000).map(add).collect::<Vec<_>>()
            })
        });
        let mut arrived: Vec<(Generation, u64)> = Vec::new();
        let is_ours = |pending: &PendingStack| sessions.contains(&pending.session);
        while adders.iter().any(|adder| !adder.is_finished()) {
            take_pending_stacks(|pending| {
                if is_ours(&pending) {
                    arrived.push((pending.session, pending.number));
                }
            });
        }
        take_pending_stacks(|pending| {
            arrived.extend(is_ours(&pending).then_some((pending.session, pending.number)))
        });
        for (session, adder) in sessions.into_iter().zip(adders) {
            let added = adder.join().expect("thread");
            assert!(added.iter().all(|&number| number != 0));
            let arrived = arrived
                .iter()
                .filter(|(of, _)| *of == session)
                .map(|(_, number)| *number);
            assert!(arrived.eq(added));
        }
        // In the same test, because other tests cannot add stacks while the list is full.
        let backtrace = || CapturedBacktrace::capture_here(BacktraceParts::Labels).expect("memory");
        let session = Generation::from_number(9);
        PENDING_WORDS.fetch_add(MAX_PENDING_WORDS, Ordering::Relaxed);
        let before = lost_stacks();
        assert_eq!(
            add_pending_stack(backtrace(), session, StackFeatures::LABELS),
            0
        );
        PENDING_WORDS.fetch_sub(MAX_PENDING_WORDS, Ordering::Relaxed);
        assert!(lost_stacks() > before);
    }
}
