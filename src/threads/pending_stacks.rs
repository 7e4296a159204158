//! Stacks that threads have copied of themselves, on their way to the sampler, which unwinds them.
//!
//! A list, in which each stack is written into its own memory. Whoever adds one swaps the list's head; the sampler takes all at
//! once, and never waits: what is not in the list yet comes with the next tick.
//!
//! **Contract** (cited below):
//! - *own memory*: a node lies at the front of the memory of the backtrace that it is of, which has room for it there and is
//!   aligned to words; it came from a box of `words` words by `Box::into_raw`;
//! - *all at once*: a node leaves the list by a swap of the head with null alone, so who took it has it, and what follows it,
//!   alone; a head that comes back meanwhile is right all the same, since who adds to it refers to the head that is there.

use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};

use crate::base::{Generation, StackFeatures};
use crate::threads::backtrace::{BacktraceHead, CapturedBacktrace, FREE_WORDS};

/// More may not wait: a host that adds stacks faster than the sampler comes by loses them, and that is counted.
const MOST_WORDS: usize = (32 << 20) / 8;

/// A stack that waits.
#[derive(Debug)]
pub(crate) struct PendingStack {
    pub(crate) number: u64,
    pub(crate) session: Generation,
    pub(crate) features: StackFeatures,
    pub(crate) backtrace: CapturedBacktrace,
}

#[derive(Debug)]
struct Node {
    next: *mut Node,
    words: usize,
    number: u64,
    session: Generation,
    features: StackFeatures,
    head: BacktraceHead,
}
const _: () =
    assert!(size_of::<Node>() <= FREE_WORDS * 8 && align_of::<Node>() <= align_of::<u64>());

static HEAD: AtomicPtr<Node> = AtomicPtr::new(ptr::null_mut());
static WAITING_WORDS: AtomicUsize = AtomicUsize::new(0);
static LAST_NUMBER: AtomicU64 = AtomicU64::new(0);
static LOST: AtomicU64 = AtomicU64::new(0);

/// Hands a stack to the session's sampler, and gives the number by which it is found there; 0 when there are too many.
pub(crate) fn add_pending_stack(
    mut backtrace: CapturedBacktrace,
    session: Generation,
    features: StackFeatures,
) -> u64 {
    let words = backtrace.words.len();
    if WAITING_WORDS.fetch_add(words, Ordering::Relaxed) + words > MOST_WORDS {
        WAITING_WORDS.fetch_sub(words, Ordering::Relaxed);
        count_lost_stack();
        return 0;
    }
    let number = LAST_NUMBER.fetch_add(1, Ordering::Relaxed) + 1;
    let node = Node {
        next: ptr::null_mut(),
        words,
        number,
        session,
        features,
        head: backtrace.head,
    };
    let place = Box::into_raw(std::mem::take(&mut backtrace.words)).cast::<Node>();
    // SAFETY: *own memory*: this thread's alone until it is in the list.
    unsafe { place.write(node) };
    let mut head = HEAD.load(Ordering::Relaxed);
    loop {
        // SAFETY: as above.
        unsafe { (*place).next = head };
        match HEAD.compare_exchange_weak(head, place, Ordering::Release, Ordering::Relaxed) {
            Ok(_) => return number,
            Err(other) => head = other,
        }
    }
}

/// One that could not even be copied.
#[cold]
pub(crate) fn count_lost_stack() {
    LOST.fetch_add(1, Ordering::Relaxed);
}

/// How many stacks of markers were lost since the last session began.
pub(crate) fn lost_stacks() -> u64 {
    LOST.load(Ordering::Relaxed)
}

/// For a new session.
pub(crate) fn forget_lost_stacks() {
    LOST.store(0, Ordering::Relaxed);
}

/// Whether any waits.
pub(crate) fn has_pending_stacks() -> bool {
    !HEAD.load(Ordering::Relaxed).is_null()
}

/// Calls `body` with all that wait, the oldest first.
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
        // SAFETY: *all at once*; nothing of a node needs to be dropped.
        let Node {
            next,
            words,
            number,
            session,
            features,
            head,
        } = unsafe { oldest.read() };
        // SAFETY: *own memory*, and *all at once*.
        let words =
            unsafe { Box::from_raw(ptr::slice_from_raw_parts_mut(oldest.cast::<u64>(), words)) };
        oldest = next;
        WAITING_WORDS.fetch_sub(words.len(), Ordering::Relaxed);
        body(PendingStack {
            number,
            session,
            features,
            backtrace: CapturedBacktrace { head, words },
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::threads::BacktraceParts;

    #[test]
    fn each_stack_arrives_once_and_in_order_and_what_is_too_much_is_counted() {
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
        // In the same test, since it keeps others from adding theirs.
        let backtrace = || CapturedBacktrace::capture_here(BacktraceParts::Labels).expect("memory");
        let session = Generation::from_number(9);
        WAITING_WORDS.fetch_add(MOST_WORDS, Ordering::Relaxed);
        let before = lost_stacks();
        assert_eq!(
            add_pending_stack(backtrace(), session, StackFeatures::LABELS),
            0
        );
        WAITING_WORDS.fetch_sub(MOST_WORDS, Ordering::Relaxed);
        assert!(lost_stacks() > before);
    }
}
