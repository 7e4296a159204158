//! The moves of `slot_state.rs`, tried by loom in every order that they can take and with every value that a read may
//! see.
//!
//! A handler is a thread of its own that has nothing but its ticket: no edge from the sampler to it is taken for granted
//! but the slot's. What lies behind the slot is the sequence number of the request that it answers, in a cell in which
//! loom reports any two accesses that are not in order, one of them a write; so two writers, or a reader beside a writer,
//! fail a model, and a capture that is another request's fails it here.
//!
//! Run by `RUSTFLAGS="--cfg loom" cargo test --release --lib slot_model`. Each model ends with what it must have seen, so
//! that none is true of nothing.
//!
//! **Contract** (cited below):
//! - *watched*: loom fails the model when an access to the cell is not in order with all that went before.

use std::sync::atomic::{AtomicUsize, Ordering};

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread::{JoinHandle, spawn};

use crate::threads::slot_state::{SlotPhase, SlotState};

/// A slot whose capture is the sequence number that it was made for.
#[derive(Debug)]
struct Slot {
    state: SlotState,
    capture: UnsafeCell<u32>,
}

impl Slot {
    fn new() -> Arc<Self> {
        Arc::new(Self { state: SlotState::new(), capture: UnsafeCell::new(0) })
    }

    fn write(&self, sequence: u32) {
        // SAFETY: *watched*.
        self.capture.with_mut(|capture| unsafe { *capture = sequence });
    }

    fn read(&self) -> u32 {
        // SAFETY: *watched*.
        self.capture.with(|capture| unsafe { *capture })
    }

    /// The handler: whether it was let in.
    fn answer(&self, ticket: u32) -> bool {
        let begun = self.state.begin_in_handler(ticket);
        if begun {
            self.write(ticket);
            self.state.publish_in_handler(ticket);
        }
        begun
    }

    /// The sampler: the number of the capture that it took up.
    fn take_up(&self) -> Option<u32> {
        let sequence = self.state.take()?;
        assert_eq!(self.read(), sequence, "a capture is what its request asked for");
        self.state.give_back(sequence);
        Some(sequence)
    }

    /// With everybody gone: the slot can be had again.
    fn assert_comes_back(&self) {
        assert!(self.state.retire(), "lost: {:?}", self.state);
        assert_eq!(self.state.phase(), SlotPhase::Idle);
        self.write(0);
    }
}

/// A handler that comes at some time.
fn handler(slot: &Arc<Slot>, ticket: u32) -> JoinHandle<bool> {
    let slot = Arc::clone(slot);
    spawn(move || slot.answer(ticket))
}

fn let_in(handler: JoinHandle<bool>) -> bool {
    handler.join().expect("a handler ends")
}

/// How often a model took one of its ways, over all orders.
#[derive(Debug, Default)]
struct Ways(std::sync::Arc<AtomicUsize>);

impl Ways {
    fn taken(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn share(&self) -> Self {
        Self(std::sync::Arc::clone(&self.0))
    }

    #[track_caller]
    fn assert_taken(&self, way: &str) {
        assert!(self.0.load(Ordering::Relaxed) > 0, "no order in which {way}");
    }
}

#[test]
fn every_answer_is_taken_up_once_and_the_slot_goes_round() {
    let twice = Ways::default();
    let seen = twice.share();
    loom::model(move || {
        let slot = Slot::new();
        let target = Arc::clone(&slot);
        let target = spawn(move || [1, 2].map(|ticket| target.answer(ticket)));
        let mut taken = Vec::new();
        assert_eq!(slot.state.request(), Some(1));
        taken.extend(slot.take_up());
        let second = slot.state.request();
        assert_eq!(
            second,
            (taken == [1]).then_some(2),
            "asked again as soon as it was answered, and not before"
        );
        taken.extend(slot.take_up());
        let answered = target.join().expect("the target ends");
        taken.extend(slot.take_up());
        let expected: Vec<u32> = [1, 2].into_iter().filter(|n| answered[*n as usize - 1]).collect();
        assert_eq!(taken, expected, "each answer once, in order");
        if taken == [1, 2] {
            seen.taken();
        }
        slot.assert_comes_back();
    });
    twice.assert_taken("both requests were answered and taken up");
}

#[test]
fn an_old_ticket_does_not_answer_a_new_request() {
    let (late, in_time) = (Ways::default(), Ways::default());
    let (seen_late, seen_in_time) = (late.share(), in_time.share());
    loom::model(move || {
        let slot = Slot::new();
        assert_eq!(slot.state.request(), Some(1));
        let first = handler(&slot, 1);
        slot.state.cancel();
        let second = slot.state.request();
        let current = second.map(|ticket| handler(&slot, ticket));
        let early = slot.take_up();
        let (first, current) = (let_in(first), current.map(let_in));
        let taken = early.or_else(|| slot.take_up());
        match second {
            Some(second) => {
                assert!(!first && current == Some(true), "the old one never, the new one always");
                assert_eq!(taken, Some(second));
                seen_late.taken();
            }
            None => {
                assert!(first);
                assert_eq!(taken, Some(1));
                seen_in_time.taken();
            }
        }
        slot.assert_comes_back();
    });
    late.assert_taken("the old one came late");
    in_time.assert_taken("the old one came before it was old");
}

#[test]
fn a_cancel_and_a_beginning_handler_agree() {
    let (cancelled, answered) = (Ways::default(), Ways::default());
    let (seen_cancelled, seen_answered) = (cancelled.share(), answered.share());
    loom::model(move || {
        let slot = Slot::new();
        assert_eq!(slot.state.request(), Some(1));
        let begins = handler(&slot, 1);
        slot.state.cancel();
        assert_ne!(slot.state.phase(), SlotPhase::Requested);
        let let_in = let_in(begins);
        assert_eq!(slot.take_up(), let_in.then_some(1));
        if let_in {
            seen_answered.taken()
        } else {
            seen_cancelled.taken()
        }
        slot.assert_comes_back();
    });
    cancelled.assert_taken("the cancel came first");
    answered.assert_taken("the handler came first");
}

#[test]
fn a_slot_that_was_retired_is_the_retirers_alone() {
    let (retired, refused) = (Ways::default(), Ways::default());
    let (seen_retired, seen_refused) = (retired.share(), refused.share());
    loom::model(move || {
        let slot = Slot::new();
        assert_eq!(slot.state.request(), Some(1));
        let begins = handler(&slot, 1);
        if slot.state.retire() {
            slot.write(7);
            seen_retired.taken();
            let_in(begins);
        } else {
            seen_refused.taken();
            assert!(let_in(begins), "refused only since a handler was writing");
            assert_eq!(slot.take_up(), Some(1), "which publishes, for a later session to find");
        }
        slot.assert_comes_back();
    });
    retired.assert_taken("the slot was retired");
    refused.assert_taken("a handler was writing");
}

#[test]
fn an_owner_that_retires_and_a_sampler_that_reads_agree() {
    let (retired, refused, renewed) = (Ways::default(), Ways::default(), Ways::default());
    let (seen_retired, seen_refused, seen_renewed) = (retired.share(), refused.share(), renewed.share());
    loom::model(move || {
        let slot = Slot::new();
        assert_eq!(slot.state.request(), Some(1));
        assert!(slot.answer(1));
        let sampler = Arc::clone(&slot);
        let sampler = spawn(move || sampler.take_up());
        if slot.state.retire() {
            // The next owner's first capture; a sampler that still looks may take up that one, whole.
            slot.write(7);
            assert_eq!(slot.state.request(), Some(2));
            assert!(slot.answer(2));
            let taken = sampler.join().expect("the sampler ends");
            if taken == Some(2) {
                seen_renewed.taken();
            } else {
                assert_eq!(slot.take_up(), Some(2));
            }
            seen_retired.taken();
        } else {
            assert_eq!(
                sampler.join().expect("the sampler ends"),
                Some(1),
                "refused only since it was being read"
            );
            seen_refused.taken();
        }
        slot.assert_comes_back();
    });
    retired.assert_taken("the slot was retired");
    refused.assert_taken("the sampler was reading");
    renewed.assert_taken("the sampler saw the next owner's capture");
}

#[test]
fn a_late_handler_stays_out_while_the_sampler_fills_the_slot() {
    let (filled, answered) = (Ways::default(), Ways::default());
    for publishes in [true, false] {
        let (seen_filled, seen_answered) = (filled.share(), answered.share());
        loom::model(move || {
            let slot = Slot::new();
            assert_eq!(slot.state.request(), Some(1));
            let late = handler(&slot, 1);
            slot.state.cancel();
            let Some(own) = slot.state.begin_from_outside() else {
                assert!(let_in(late));
                assert_eq!(slot.take_up(), Some(1));
                seen_answered.taken();
                return slot.assert_comes_back();
            };
            assert_eq!(own, 2);
            slot.write(own);
            assert_eq!(slot.state.begin_from_outside(), None, "being filled");
            assert_eq!(slot.state.request(), None, "being filled");
            if publishes {
                slot.state.publish_in_handler(own);
                assert_eq!(slot.take_up(), Some(own));
            } else {
                slot.state.abandon(own);
                assert_eq!(slot.take_up(), None);
            }
            let third = slot.state.request().expect("idle again");
            let current = handler(&slot, third);
            assert!(!let_in(late) && let_in(current));
            assert_eq!(slot.take_up(), Some(third));
            seen_filled.taken();
            slot.assert_comes_back();
        });
    }
    filled.assert_taken("the sampler filled the slot");
    answered.assert_taken("the handler came first");
}

#[test]
fn of_handlers_with_one_ticket_one_is_let_in() {
    loom::model(|| {
        let slot = Slot::new();
        assert_eq!(slot.state.request(), Some(1));
        let handlers = [1, 1].map(|ticket| handler(&slot, ticket));
        let early = slot.take_up();
        let again = early.and_then(|_| slot.state.request());
        let let_in = handlers.map(let_in);
        assert_eq!(let_in.iter().filter(|let_in| **let_in).count(), 1, "{let_in:?}");
        assert_eq!(slot.take_up(), early.is_none().then_some(1));
        assert_eq!(
            slot.state.pending_request(),
            again,
            "a second signal with the old ticket answers nothing"
        );
        slot.assert_comes_back();
    });
}

#[test]
fn a_handler_inside_a_handler_stays_out() {
    loom::model(|| {
        let slot = Slot::new();
        assert_eq!(slot.state.request(), Some(1));
        let target = Arc::clone(&slot);
        let target = spawn(move || {
            assert!(target.state.begin_in_handler(1));
            assert!(!target.answer(1), "nested before the capture");
            target.write(1);
            assert!(!target.answer(1), "nested before it is published");
            target.state.publish_in_handler(1);
            assert!(!target.answer(1), "after it");
        });
        let early = slot.take_up();
        target.join().expect("the target ends");
        assert_eq!(early.or_else(|| slot.take_up()), Some(1));
        slot.assert_comes_back();
    });
}

#[test]
fn the_first_owners_late_handler_never_writes_into_the_seconds_slot() {
    let (handed_on, given_up) = (Ways::default(), Ways::default());
    let (seen_handed_on, seen_given_up) = (handed_on.share(), given_up.share());
    loom::model(move || {
        let slot = Slot::new();
        assert_eq!(slot.state.request(), Some(1));
        let late = handler(&slot, 1);
        if !slot.state.retire() {
            // The pool keeps it out of circulation.
            assert!(let_in(late));
            seen_given_up.taken();
            return slot.assert_comes_back();
        }
        let second = slot.state.request().expect("retired");
        let own = handler(&slot, second);
        let early = slot.take_up();
        assert!(let_in(own), "the second owner's handler is not kept out by the first's");
        let_in(late);
        assert_eq!(early.or_else(|| slot.take_up()), Some(second));
        seen_handed_on.taken();
        slot.assert_comes_back();
    });
    handed_on.assert_taken("the slot was handed on");
    given_up.assert_taken("the slot was given up");
}
