//! The states of a slot, and who may make which move.
//!
//! Runs in the signal handler: the functions named `…_in_handler`.
//!
//! A slot's state is one word, a sequence number and a phase:
//!
//! | from | to | who | when |
//! |---|---|---|---|
//! | idle(n) | requested(n+1) | sampler | it wants a sample; the signal carries n+1 |
//! | idle(n) | requested(m) | sampler | the request m, taken back before, is made again: its signal may still come |
//! | requested(n) | writing(n) | the target's handler | a signal came that carries n, or of the thread's own timer |
//! | idle(n) | writing(n+1) | sampler | the thread sleeps, and the sampler reads its stack itself |
//! | requested(n) | idle(n) | sampler or owner | nobody waits any more; a late signal finds idle and goes away |
//! | writing(n) | ready(n) | who moved it to writing | everything is written |
//! | writing(n) | idle(n) | sampler, where it moved it to writing | the thread woke while it was being read |
//! | ready(n) | reading(n) | sampler | it takes the capture up |
//! | reading(n) | idle(n) | sampler | it has read it |
//! | ready(n) | idle(n) | owner | nobody will read it |
//!
//! Nobody waits for a move: each is one compare-exchange or one store, and who comes too late goes away.
//!
//! *phase owns*: what lies behind a slot is written by whoever made the move to `writing`, until `ready` or `idle`; read
//! by whoever made the move to `reading`, until `idle`; and touched by nobody else. *release, acquire*: each move that
//! gives up the right releases, each that takes it acquires. `slot_model.rs` tries all this under loom.

#[cfg(all(test, loom))]
use loom::sync::atomic::{AtomicU64, Ordering};
#[cfg(not(all(test, loom)))]
use std::sync::atomic::{AtomicU64, Ordering};

/// What a slot is doing, as seen a moment ago.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum SlotPhase {
    Idle = 0,
    Requested = 1,
    Writing = 2,
    Ready = 3,
    Reading = 4,
}

/// A slot's sequence number and phase.
#[derive(Debug)]
pub(super) struct SlotState(AtomicU64);

const fn word(sequence: u32, phase: SlotPhase) -> u64 {
    (sequence as u64) << 8 | phase as u64
}

const fn parts(word: u64) -> (u32, SlotPhase) {
    let phase = match word as u8 {
        0 => SlotPhase::Idle,
        1 => SlotPhase::Requested,
        2 => SlotPhase::Writing,
        3 => SlotPhase::Ready,
        _ => SlotPhase::Reading,
    };
    ((word >> 8) as u32, phase)
}

impl SlotState {
    pub(super) fn new() -> Self {
        Self(AtomicU64::new(word(0, SlotPhase::Idle)))
    }

    fn load(&self) -> (u32, SlotPhase) {
        parts(self.0.load(Ordering::Acquire))
    }

    pub(super) fn phase(&self) -> SlotPhase {
        self.load().1
    }

    fn make_move(&self, sequence: u32, from: SlotPhase, to: SlotPhase) -> bool {
        let (from, to) = (word(sequence, from), word(sequence, to));
        self.0
            .compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
    }

    fn leave_idle_to(&self, to: SlotPhase) -> Option<u32> {
        let (sequence, SlotPhase::Idle) = self.load() else {
            return None;
        };
        let next = sequence.wrapping_add(1);
        let (from, to) = (word(sequence, SlotPhase::Idle), word(next, to));
        self.0
            .compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
            .then_some(next)
    }

    /// Idle to requested: the number that the signal is to carry.
    pub(super) fn request(&self) -> Option<u32> {
        self.leave_idle_to(SlotPhase::Requested)
    }

    /// Idle to requested, with the number of an earlier request that was taken back and whose signal may still be on its
    /// way: the kernel would drop another one meanwhile.
    pub(super) fn request_again(&self, sequence: u32) -> bool {
        let (now, SlotPhase::Idle) = self.load() else {
            return false;
        };
        let (from, to) = (
            word(now, SlotPhase::Idle),
            word(sequence, SlotPhase::Requested),
        );
        self.0
            .compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
    }

    /// Idle to writing, by the sampler: the number to publish or to abandon.
    pub(super) fn begin_from_outside(&self) -> Option<u32> {
        self.leave_idle_to(SlotPhase::Writing)
    }

    /// The sequence number of the request that is out.
    pub(super) fn pending_request(&self) -> Option<u32> {
        match self.load() {
            (sequence, SlotPhase::Requested) => Some(sequence),
            _ => None,
        }
    }

    /// Requested to idle: nobody waits any more.
    pub(super) fn cancel(&self) {
        if let Some(sequence) = self.pending_request() {
            self.make_move(sequence, SlotPhase::Requested, SlotPhase::Idle);
        }
    }

    /// To idle from wherever it is; false while somebody writes or reads.
    pub(super) fn retire(&self) -> bool {
        self.cancel();
        match self.load() {
            (_, SlotPhase::Idle) => true,
            (sequence, SlotPhase::Ready) => {
                self.make_move(sequence, SlotPhase::Ready, SlotPhase::Idle)
            }
            _ => false,
        }
    }

    /// Requested to writing, if this is the request that is waited for.
    pub(super) fn begin_in_handler(&self, sequence: u32) -> bool {
        self.make_move(sequence, SlotPhase::Requested, SlotPhase::Writing)
    }

    /// Requested to writing, whichever request it is: the thread's own timer carries no number.
    pub(super) fn begin_any_in_handler(&self) -> Option<u32> {
        let sequence = self.pending_request()?;
        self.make_move(sequence, SlotPhase::Requested, SlotPhase::Writing)
            .then_some(sequence)
    }

    /// Writing to ready, by whoever made the move to writing.
    pub(super) fn publish_in_handler(&self, sequence: u32) {
        self.0
            .store(word(sequence, SlotPhase::Ready), Ordering::Release);
    }

    /// Writing to idle, by the sampler, where it made the move to writing.
    pub(super) fn abandon(&self, sequence: u32) {
        self.0
            .store(word(sequence, SlotPhase::Idle), Ordering::Release);
    }

    /// Ready to reading.
    pub(super) fn take(&self) -> Option<u32> {
        let (sequence, SlotPhase::Ready) = self.load() else {
            return None;
        };
        self.make_move(sequence, SlotPhase::Ready, SlotPhase::Reading)
            .then_some(sequence)
    }

    /// Reading to idle, by whoever made the move to reading.
    pub(super) fn give_back(&self, sequence: u32) {
        self.0
            .store(word(sequence, SlotPhase::Idle), Ordering::Release);
    }

    /// In the child of a fork, on the only thread: to idle from wherever it is.
    pub(super) fn reset_after_fork(&self) {
        let (sequence, _) = self.load();
        self.0
            .store(word(sequence, SlotPhase::Idle), Ordering::Release);
    }
}
