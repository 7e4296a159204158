//! The moves of `slot_state.rs`, tried in the orders of `explore_model` and with every value that a read may see.
//!
//! A handler is a thread of its own that has nothing but its ticket: no edge from the sampler to it is taken for granted
//! but the slot's. What lies behind the slot is the sequence number of the request that it answers, in a cell in which
//! loom reports any two accesses that are not in order, one of them a write; so two writers, or a reader beside a writer,
//! fail a model, and a capture that is another request's fails it here.
//!
//! Whoever acts in a model is a thread that the model's own spawns; its own only prepares and judges. For what a thread
//! did before another's first step loom does not try in another order.
//!
//! Run by `RUSTFLAGS="--cfg loom" cargo test --release --lib slot_model`.
//!
//! **Contract** (cited below):
//! - *watched*: loom fails the model when an access to the cell is not in order with all that went before.

use loom::cell::UnsafeCell;
use loom::sync::Arc as Shared;
use loom::thread::{JoinHandle, spawn};

use crate::base::explore_model;
use crate::threads::slot_state::{SlotPhase, SlotState};

/// A slot whose capture is the sequence number that it was made for.
#[derive(Debug)]
struct Slot {
    state: SlotState,
    capture: UnsafeCell<u32>,
}

impl Slot {
    fn new() -> Shared<Self> {
        Shared::new(Self {
            state: SlotState::new(),
            capture: UnsafeCell::new(0),
        })
    }

    fn write(&self, sequence: u32) {
        // SAFETY: *watched*.
        self.capture
            .with_mut(|capture| unsafe { *capture = sequence });
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
        assert_eq!(
            self.read(),
            sequence,
            "a capture is what its request asked for"
        );
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

/// Somebody who acts on the slot, at the same time as all others.
fn actor<T: 'static>(
    slot: &Shared<Slot>,
    acts: impl FnOnce(&Slot) -> T + 'static,
) -> JoinHandle<T> {
    let slot = Shared::clone(slot);
    spawn(move || acts(&slot))
}

/// A handler that comes at some time: whether it was let in.
fn handler(slot: &Shared<Slot>, ticket: u32) -> JoinHandle<bool> {
    actor(slot, move |slot| slot.answer(ticket))
}

fn end<T>(actor: JoinHandle<T>) -> T {
    actor.join().expect("an actor ends")
}

/// A slot whose first request is out.
fn requested() -> Shared<Slot> {
    let slot = Slot::new();
    assert_eq!(slot.state.request(), Some(1));
    slot
}

#[test]
fn every_answer_is_taken_up_once_and_the_slot_goes_round() {
    explore_model(
        ["both answered", "the first answered", "none answered"],
        || {
            let slot = Slot::new();
            let target = actor(&slot, |slot| [1, 2].map(|ticket| slot.answer(ticket)));
            let sampler = actor(&slot, |slot| {
                assert_eq!(slot.state.request(), Some(1));
                let first = slot.take_up();
                let second = slot.state.request();
                assert_eq!(
                    second.is_some(),
                    first.is_some(),
                    "asked again as soon as it was answered"
                );
                [first, slot.take_up()]
            });
            let (answered, taken) = (end(target), end(sampler));
            let taken: Vec<u32> = taken
                .into_iter()
                .chain([slot.take_up()])
                .flatten()
                .collect();
            slot.assert_comes_back();
            match answered {
                [true, true] => assert_eq!(taken, [1, 2]),
                [true, false] => assert_eq!(taken, [1]),
                [false, false] => assert!(taken.is_empty()),
                [false, true] => {
                    panic!("the second was asked for although the first was not answered")
                }
            }
            match taken.len() {
                2 => "both answered",
                1 => "the first answered",
                _ => "none answered",
            }
        },
    );
}

#[test]
fn an_old_ticket_does_not_answer_a_new_request() {
    explore_model(
        [
            "the old one in time",
            "the old one late",
            "both too late or too early",
        ],
        || {
            let slot = requested();
            let old = handler(&slot, 1);
            let current = handler(&slot, 2);
            let sampler = actor(&slot, |slot| {
                slot.state.cancel();
                (slot.state.request(), slot.take_up())
            });
            let (old, current, (second, early)) = (end(old), end(current), end(sampler));
            let taken = early.or_else(|| slot.take_up());
            slot.assert_comes_back();
            assert_eq!(old, second.is_none(), "cancelled or answered, not both");
            assert_eq!(taken, if old { Some(1) } else { current.then_some(2) });
            match (old, current) {
                (true, false) => "the old one in time",
                (false, true) => "the old one late",
                (false, false) => "both too late or too early",
                (true, true) => panic!("the new one was asked for although the old one answered"),
            }
        },
    );
}

#[test]
fn a_cancel_and_a_beginning_handler_agree() {
    explore_model(["cancelled", "answered"], || {
        let slot = requested();
        let handler = handler(&slot, 1);
        let sampler = actor(&slot, |slot| {
            slot.state.cancel();
            assert_ne!(slot.state.phase(), SlotPhase::Requested);
        });
        let (let_in, ()) = (end(handler), end(sampler));
        assert_eq!(slot.take_up(), let_in.then_some(1));
        slot.assert_comes_back();
        if let_in { "answered" } else { "cancelled" }
    });
}

#[test]
fn a_slot_that_was_retired_is_the_retirers_alone() {
    explore_model(
        ["before the handler", "after the handler", "refused"],
        || {
            let slot = requested();
            let handler = handler(&slot, 1);
            let retirer = actor(&slot, |slot| {
                let retired = slot.state.retire();
                if retired {
                    slot.write(7);
                }
                retired
            });
            let way = match (end(retirer), end(handler)) {
                (true, false) => "before the handler",
                (true, true) => "after the handler",
                (false, let_in) => {
                    assert!(let_in, "refused only since a handler was writing");
                    assert_eq!(
                        slot.take_up(),
                        Some(1),
                        "which published, for a later session to find"
                    );
                    "refused"
                }
            };
            slot.assert_comes_back();
            way
        },
    );
}

#[test]
fn an_owner_that_retires_and_a_sampler_that_reads_agree() {
    explore_model(
        ["retired unread", "retired after it was read", "refused"],
        || {
            let slot = requested();
            assert!(slot.answer(1));
            let sampler = actor(&slot, Slot::take_up);
            let owner = actor(&slot, |slot| {
                let retired = slot.state.retire();
                if retired {
                    // The next owner's first capture; a sampler that still looks may take up that one, whole.
                    slot.write(7);
                    assert_eq!(slot.state.request(), Some(2));
                    assert!(slot.answer(2));
                }
                retired
            });
            let (taken, retired) = (end(sampler), end(owner));
            assert_eq!(slot.take_up(), (retired && taken != Some(2)).then_some(2));
            slot.assert_comes_back();
            match (retired, taken) {
                (true, Some(1)) => "retired after it was read",
                (true, _) => "retired unread",
                (false, taken) => {
                    assert_eq!(taken, Some(1), "refused only since it was being read");
                    "refused"
                }
            }
        },
    );
}

#[test]
fn a_late_handler_stays_out_while_the_sampler_fills_the_slot() {
    for publishes in [true, false] {
        explore_model(
            [
                "the handler answered",
                "the sampler filled it",
                "and the next was answered",
            ],
            move || {
                let slot = requested();
                let late = handler(&slot, 1);
                let next = handler(&slot, 3);
                let sampler = actor(&slot, move |slot| {
                    slot.state.cancel();
                    let own = slot.state.begin_from_outside()?;
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
                    slot.state.request()
                });
                let (late, next, third) = (end(late), end(next), end(sampler));
                assert_eq!(
                    third,
                    (!late).then_some(3),
                    "either the handler answered or the sampler filled the slot"
                );
                assert_eq!(
                    slot.take_up(),
                    if late { Some(1) } else { next.then_some(3) }
                );
                slot.assert_comes_back();
                match (late, next) {
                    (true, next) => {
                        assert!(!next, "nobody asked");
                        "the handler answered"
                    }
                    (false, true) => "and the next was answered",
                    (false, false) => "the sampler filled it",
                }
            },
        );
    }
}

#[test]
fn a_request_that_was_taken_back_is_made_again_and_its_one_signal_answers_it_once() {
    explore_model(
        [
            "before it was taken back",
            "when it was made again",
            "in between, for nobody",
        ],
        || {
            let slot = requested();
            let only = handler(&slot, 1);
            let sampler = actor(&slot, |slot| {
                slot.state.cancel();
                let own = slot.state.begin_from_outside()?;
                slot.write(own);
                slot.state.publish_in_handler(own);
                assert_eq!(slot.take_up(), Some(own));
                assert!(
                    slot.state.request_again(1),
                    "nobody else moves an idle slot"
                );
                assert!(!slot.state.request_again(1), "it is out");
                Some(own)
            });
            let (answered, filled) = (end(only), end(sampler));
            assert_eq!(slot.take_up(), answered.then_some(1));
            slot.assert_comes_back();
            match (answered, filled) {
                (true, None) => "before it was taken back",
                (true, Some(_)) => "when it was made again",
                (false, _) => "in between, for nobody",
            }
        },
    );
}

#[test]
fn what_one_sampler_gives_up_the_next_may_have() {
    explore_model(["one", "one after the other"], || {
        let slot = Slot::new();
        let fills = actor(&slot, |slot| {
            let own = slot.state.begin_from_outside()?;
            slot.write(own);
            slot.state.abandon(own);
            Some(own)
        });
        let asks = actor(&slot, |slot| {
            let sequence = slot.state.request()?;
            assert!(slot.answer(sequence));
            Some(sequence)
        });
        let (filled, asked) = (end(fills), end(asks));
        assert!(filled != asked, "each has a number of its own");
        assert_eq!(slot.take_up(), asked);
        slot.assert_comes_back();
        if filled.and(asked).is_some() {
            "one after the other"
        } else {
            "one"
        }
    });
}

#[test]
fn of_handlers_with_one_ticket_one_is_let_in() {
    explore_model(
        [
            "taken up between them",
            "asked again and still out",
            "taken up at last",
        ],
        || {
            let slot = requested();
            let handlers = [1, 1].map(|ticket| handler(&slot, ticket));
            let sampler = actor(&slot, |slot| {
                let early = slot.take_up();
                (early, early.and_then(|_| slot.state.request()))
            });
            let [first, second] = handlers.map(end);
            let (early, again) = end(sampler);
            assert_ne!(first, second, "exactly one is let in");
            assert_eq!(slot.take_up(), early.is_none().then_some(1));
            assert_eq!(
                slot.state.pending_request(),
                again,
                "the old ticket answers nothing new"
            );
            slot.assert_comes_back();
            match (early, first) {
                (None, _) => "taken up at last",
                (Some(_), true) => "taken up between them",
                (Some(_), false) => "asked again and still out",
            }
        },
    );
}

#[test]
fn a_handler_inside_a_handler_stays_out() {
    explore_model(["taken up at once", "taken up later"], || {
        let slot = requested();
        let target = actor(&slot, |slot| {
            assert!(slot.state.begin_in_handler(1));
            assert!(!slot.answer(1), "nested before the capture");
            slot.write(1);
            assert!(!slot.answer(1), "nested before it is published");
            slot.state.publish_in_handler(1);
            assert!(!slot.answer(1), "after it");
        });
        let sampler = actor(&slot, Slot::take_up);
        end(target);
        let early = end(sampler);
        assert_eq!(early.or_else(|| slot.take_up()), Some(1));
        slot.assert_comes_back();
        if early.is_some() {
            "taken up at once"
        } else {
            "taken up later"
        }
    });
}

#[test]
fn the_first_owners_late_handler_never_writes_into_the_seconds_slot() {
    explore_model(
        [
            "handed on",
            "handed on and answered",
            "handed on after an answer",
            "given up",
        ],
        || {
            let slot = requested();
            let late = handler(&slot, 1);
            let own = handler(&slot, 2);
            let pool = actor(&slot, |slot| {
                let retired = slot.state.retire();
                if retired {
                    slot.write(7);
                    assert_eq!(slot.state.request(), Some(2));
                }
                (retired, slot.take_up())
            });
            let (late, own, (retired, early)) = (end(late), end(own), end(pool));
            let taken = early.or_else(|| slot.take_up());
            slot.assert_comes_back();
            if !retired {
                // The pool keeps it out of circulation.
                assert!(late && !own && taken == Some(1));
                return "given up";
            }
            assert_eq!(
                taken,
                own.then_some(2),
                "what the second owner's slot holds is its own"
            );
            match (late, own) {
                (false, false) => "handed on",
                (false, true) => "handed on and answered",
                (true, _) => "handed on after an answer",
            }
        },
    );
}
