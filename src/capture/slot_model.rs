//! A loom model of the transitions in `slot_state.rs`, in the orders of `explore_model` and with
//! every value that a read may see.
//!
//! A handler is modeled as a separate thread that has only its ticket: only the slot orders it
//! after the sampler. The data behind the slot are modeled as the sequence number of the
//! request that they answer. The number is in a cell in which loom reports any two unordered
//! accesses if one of them is a write. So two writers, or a reader concurrent with a writer, fail a
//! model; a capture for another request fails an assertion here.
//!
//! All actors run on threads that the model's main thread spawns; the main thread only prepares and
//! checks. The reason: loom does not reorder what one thread did before another thread's first
//! step.
//!
//! Run with `RUSTFLAGS="--cfg loom" cargo test --release --lib slot_model`.
//!
//! **Contract** (cited below):
//! - *watched*: loom fails the model when an access to the cell is not ordered after all earlier
//!   ones.

use loom::cell::UnsafeCell;
use loom::sync::Arc as Shared;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread::{JoinHandle, spawn};

use crate::capture::slot_state::{SlotPhase, SlotState};
use crate::util::explore_model;

const OLD_THREAD: u64 = 1;
const NEW_THREAD: u64 = 2;

/// A slot whose capture is the sequence number of its request.
#[derive(Debug)]
struct Slot {
    state: SlotState,
    /// The thread to which the slot is bound.
    bound: AtomicU64,
    capture: UnsafeCell<u32>,
}

impl Slot {
    fn new() -> Shared<Self> {
        Shared::new(Self {
            state: SlotState::new(),
            bound: AtomicU64::new(OLD_THREAD),
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

    /// Runs the handler, and returns whether it was admitted.
    fn answer(&self, ticket: u32) -> bool {
        let begun = self.state.begin_in_handler(ticket);
        if begun {
            self.write(ticket);
            self.state.publish_in_handler(ticket);
        }
        begun
    }

    /// Runs the handler for an event of this thread, in the order of `begin_for_in_handler`. Returns the
    /// number of the request that it was admitted for.
    fn answer_event(&self, thread: u64) -> Option<u32> {
        let sequence = self.state.pending_request()?;
        let is_own = self.bound.load(Ordering::Acquire) == thread;
        (is_own && self.answer(sequence)).then_some(sequence)
    }

    /// Runs the sampler, and returns the number of the capture that it collected.
    fn collect(&self) -> Option<u32> {
        let sequence = self.state.begin_reading()?;
        assert_eq!(
            self.read(),
            sequence,
            "the capture belongs to another request"
        );
        self.state.finish_reading(sequence);
        Some(sequence)
    }

    /// Asserts that the slot can be reused, after all actors have finished.
    fn assert_reusable(&self) {
        assert!(self.state.retire(), "slot is lost: {:?}", self.state);
        assert_eq!(self.state.phase(), SlotPhase::Idle);
        self.write(0);
    }
}

/// Spawns an actor, which acts on the slot concurrently with all others.
fn actor<T: 'static>(
    slot: &Shared<Slot>,
    acts: impl FnOnce(&Slot) -> T + 'static,
) -> JoinHandle<T> {
    let slot = Shared::clone(slot);
    spawn(move || acts(&slot))
}

/// Spawns a handler, which arrives at any time and returns whether it was admitted.
fn handler(slot: &Shared<Slot>, ticket: u32) -> JoinHandle<bool> {
    actor(slot, move |slot| slot.answer(ticket))
}

fn end<T>(actor: JoinHandle<T>) -> T {
    actor.join().expect("actor panicked")
}

/// Returns a slot whose first request is pending.
fn requested() -> Shared<Slot> {
    let slot = Slot::new();
    assert_eq!(slot.state.request(), Some(1));
    slot
}

#[test]
fn answers_are_collected_once() {
    explore_model(
        ["both answered", "the first answered", "none answered"],
        || {
            let slot = Slot::new();
            let target = actor(&slot, |slot| [1, 2].map(|ticket| slot.answer(ticket)));
            let sampler = actor(&slot, |slot| {
                assert_eq!(slot.state.request(), Some(1));
                let first = slot.collect();
                let second = slot.state.request();
                assert_eq!(
                    second.is_some(),
                    first.is_some(),
                    "requested again once it was answered"
                );
                [first, slot.collect()]
            });
            let (answered, taken) = (end(target), end(sampler));
            let taken: Vec<u32> = taken
                .into_iter()
                .chain([slot.collect()])
                .flatten()
                .collect();
            slot.assert_reusable();
            match answered {
                [true, true] => assert_eq!(taken, [1, 2]),
                [true, false] => assert_eq!(taken, [1]),
                [false, false] => assert!(taken.is_empty()),
                [false, true] => {
                    panic!("the second was requested although the first was not answered")
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
fn old_ticket_does_not_answer_new_request() {
    explore_model(
        ["old ticket in time", "old ticket late", "neither in time"],
        || {
            let slot = requested();
            let old = handler(&slot, 1);
            let current = handler(&slot, 2);
            let sampler = actor(&slot, |slot| {
                slot.state.cancel();
                (slot.state.request(), slot.collect())
            });
            let (old, current, (second, early)) = (end(old), end(current), end(sampler));
            let taken = early.or_else(|| slot.collect());
            slot.assert_reusable();
            assert_eq!(old, second.is_none(), "either canceled or answered");
            assert_eq!(taken, if old { Some(1) } else { current.then_some(2) });
            match (old, current) {
                (true, false) => "old ticket in time",
                (false, true) => "old ticket late",
                (false, false) => "neither in time",
                (true, true) => {
                    panic!("the new one was requested although the old one was answered")
                }
            }
        },
    );
}

#[test]
fn event_of_the_old_thread_does_not_answer_for_the_new_one() {
    explore_model(["before", "the new thread", "none"], || {
        let slot = requested();
        let old = actor(&slot, |slot| slot.answer_event(OLD_THREAD));
        let new = actor(&slot, |slot| slot.answer_event(NEW_THREAD));
        let sampler = actor(&slot, |slot| {
            if slot.state.retire() {
                slot.bound.store(NEW_THREAD, Ordering::Release);
                slot.state.request();
            }
        });
        let (old, new) = (end(old), end(new));
        end(sampler);
        assert_ne!(old, Some(2), "the request is the new thread's");
        assert_ne!(new, Some(1), "the request is the old thread's");
        slot.assert_reusable();
        match (old, new) {
            (_, Some(_)) => "the new thread",
            (Some(_), None) => "before",
            (None, None) => "none",
        }
    });
}

#[test]
fn cancel_and_handler_agree() {
    explore_model(["canceled", "answered"], || {
        let slot = requested();
        let handler = handler(&slot, 1);
        let sampler = actor(&slot, |slot| {
            slot.state.cancel();
            assert_ne!(slot.state.phase(), SlotPhase::Requested);
        });
        let (admitted, ()) = (end(handler), end(sampler));
        assert_eq!(slot.collect(), admitted.then_some(1));
        slot.assert_reusable();
        if admitted { "answered" } else { "canceled" }
    });
}

#[test]
fn retired_slot_is_exclusive_to_retirer() {
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
                (false, admitted) => {
                    assert!(admitted, "refused only while a handler writes");
                    assert_eq!(slot.collect(), Some(1), "the handler published its capture");
                    "refused"
                }
            };
            slot.assert_reusable();
            way
        },
    );
}

#[test]
fn retiring_owner_and_reading_sampler_agree() {
    explore_model(
        ["retired unread", "retired after it was read", "refused"],
        || {
            let slot = requested();
            assert!(slot.answer(1));
            let sampler = actor(&slot, Slot::collect);
            let owner = actor(&slot, |slot| {
                let retired = slot.state.retire();
                if retired {
                    // The next owner's first capture, which a late sampler may collect as a whole.
                    slot.write(7);
                    assert_eq!(slot.state.request(), Some(2));
                    assert!(slot.answer(2));
                }
                retired
            });
            let (taken, retired) = (end(sampler), end(owner));
            assert_eq!(slot.collect(), (retired && taken != Some(2)).then_some(2));
            slot.assert_reusable();
            match (retired, taken) {
                (true, Some(1)) => "retired after it was read",
                (true, _) => "retired unread",
                (false, taken) => {
                    assert_eq!(taken, Some(1), "refused only while it is read");
                    "refused"
                }
            }
        },
    );
}

#[test]
fn late_handler_is_refused_during_remote_capture() {
    for publishes in [true, false] {
        explore_model(
            [
                "the handler answered",
                "the sampler filled it",
                "the next request was answered",
            ],
            move || {
                let slot = requested();
                let late = handler(&slot, 1);
                let next = handler(&slot, 3);
                let sampler = actor(&slot, move |slot| {
                    slot.state.cancel();
                    let own = slot.state.begin_remote()?;
                    assert_eq!(own, 2);
                    slot.write(own);
                    assert_eq!(slot.state.begin_remote(), None, "being filled");
                    assert_eq!(slot.state.request(), None, "being filled");
                    if publishes {
                        slot.state.publish_in_handler(own);
                        assert_eq!(slot.collect(), Some(own));
                    } else {
                        slot.state.abandon(own);
                        assert_eq!(slot.collect(), None);
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
                    slot.collect(),
                    if late { Some(1) } else { next.then_some(3) }
                );
                slot.assert_reusable();
                match (late, next) {
                    (true, next) => {
                        assert!(!next, "not requested");
                        "the handler answered"
                    }
                    (false, true) => "the next request was answered",
                    (false, false) => "the sampler filled it",
                }
            },
        );
    }
}

#[test]
fn repeated_request_is_answered_once() {
    explore_model(
        [
            "before it was canceled",
            "after it was repeated",
            "in between, without effect",
        ],
        || {
            let slot = requested();
            let only = handler(&slot, 1);
            let sampler = actor(&slot, |slot| {
                slot.state.cancel();
                let own = slot.state.begin_remote()?;
                slot.write(own);
                slot.state.publish_in_handler(own);
                assert_eq!(slot.collect(), Some(own));
                assert!(
                    slot.state.repeat_request(1),
                    "no other actor moves an idle slot"
                );
                assert!(!slot.state.repeat_request(1), "already pending");
                Some(own)
            });
            let (answered, filled) = (end(only), end(sampler));
            assert_eq!(slot.collect(), answered.then_some(1));
            slot.assert_reusable();
            match (answered, filled) {
                (true, None) => "before it was canceled",
                (true, Some(_)) => "after it was repeated",
                (false, _) => "in between, without effect",
            }
        },
    );
}

#[test]
fn abandoned_slot_can_be_requested() {
    explore_model(["one", "one after the other"], || {
        let slot = Slot::new();
        let fills = actor(&slot, |slot| {
            let own = slot.state.begin_remote()?;
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
        assert!(filled != asked, "the numbers differ");
        assert_eq!(slot.collect(), asked);
        slot.assert_reusable();
        if filled.and(asked).is_some() {
            "one after the other"
        } else {
            "one"
        }
    });
}

#[test]
fn handlers_with_same_ticket_admit_one() {
    explore_model(
        [
            "collected between them",
            "requested again and pending",
            "collected at the end",
        ],
        || {
            let slot = requested();
            let handlers = [1, 1].map(|ticket| handler(&slot, ticket));
            let sampler = actor(&slot, |slot| {
                let early = slot.collect();
                (early, early.and_then(|_| slot.state.request()))
            });
            let [first, second] = handlers.map(end);
            let (early, again) = end(sampler);
            assert_ne!(first, second, "exactly one is admitted");
            assert_eq!(slot.collect(), early.is_none().then_some(1));
            assert_eq!(
                slot.state.pending_request(),
                again,
                "the old ticket does not answer a new request"
            );
            slot.assert_reusable();
            match (early, first) {
                (None, _) => "collected at the end",
                (Some(_), true) => "collected between them",
                (Some(_), false) => "requested again and pending",
            }
        },
    );
}

#[test]
fn nested_handler_is_refused() {
    explore_model(["collected at once", "collected later"], || {
        let slot = requested();
        let target = actor(&slot, |slot| {
            assert!(slot.state.begin_in_handler(1));
            assert!(!slot.answer(1), "nested before the capture");
            slot.write(1);
            assert!(!slot.answer(1), "nested before it is published");
            slot.state.publish_in_handler(1);
            assert!(!slot.answer(1), "after it");
        });
        let sampler = actor(&slot, Slot::collect);
        end(target);
        let early = end(sampler);
        assert_eq!(early.or_else(|| slot.collect()), Some(1));
        slot.assert_reusable();
        if early.is_some() {
            "collected at once"
        } else {
            "collected later"
        }
    });
}

#[test]
fn late_handler_does_not_write_reassigned_slot() {
    explore_model(
        [
            "reassigned",
            "reassigned and answered",
            "reassigned after an answer",
            "refused",
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
                (retired, slot.collect())
            });
            let (late, own, (retired, early)) = (end(late), end(own), end(pool));
            let taken = early.or_else(|| slot.collect());
            slot.assert_reusable();
            if !retired {
                // The pool keeps the slot among the busy ones.
                assert!(late && !own && taken == Some(1));
                return "refused";
            }
            assert_eq!(
                taken,
                own.then_some(2),
                "the slot holds the second owner's capture"
            );
            match (late, own) {
                (false, false) => "reassigned",
                (false, true) => "reassigned and answered",
                (true, _) => "reassigned after an answer",
            }
        },
    );
}
