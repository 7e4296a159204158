//! The states of a slot, and the threads that may make each transition.
//!
//! Runs in the signal handler: the functions named `…_in_handler`.
//!
//! The state of a slot is one word with a sequence number and a phase:
//!
//! | from | to | by | when |
//! |---|---|---|---|
//! | idle(n) | requested(n+1) | sampler | it wants a sample; the signal carries n+1 |
//! | idle(n) | requested(m) | sampler | it repeats the canceled request m, whose signal may still arrive |
//! | requested(n) | writing(n) | the target thread's handler | a signal arrived that carries n, or that an event of the thread's CPU clock sent |
//! | idle(n) | writing(n+1) | sampler | the thread is blocked, and the sampler reads its stack itself |
//! | idle(n) | writing(n+1) | sampler or owner | it returns the memory of a deep stack to the kernel |
//! | idle(n) | writing(n+1) | any thread that holds the pool's lock | it returns the memory of a slot that stays free |
//! | requested(n) | idle(n) | sampler or owner | the request is canceled; a late signal finds the slot idle and has no effect |
//! | writing(n) | ready(n) | the thread that moved it to writing | the capture is complete |
//! | writing(n) | idle(n) | the thread that moved it to writing | the thread woke during the capture, or the memory is returned |
//! | ready(n) | reading(n) | sampler | it collects the capture |
//! | reading(n) | idle(n) | sampler | it has read the capture |
//! | ready(n) | idle(n) | sampler or owner | the capture is discarded |
//!
//! The *owner* is the thread that drops the slot's handle. In the slot of a request on demand, the
//! requesting thread takes the sampler's part. In the child of a fork, the slot moves to idle from
//! any phase.
//!
//! No thread waits for a transition: each is one compare-exchange or one store, and a thread that
//! comes too late gives up.
//!
//! *phase owns*: only the thread that moved the slot to `writing` writes the slot's data, until
//! `ready` or `idle`. Only the thread that moved it to `reading` reads them, until `idle`. No other
//! thread accesses them. *release, acquire*: each transition that ends such a right releases, and
//! each that begins one acquires. `slot_model.rs` checks all of this under loom.

#[cfg(all(test, loom))]
use loom::sync::atomic::{AtomicU64, Ordering};
#[cfg(not(all(test, loom)))]
use std::sync::atomic::{AtomicU64, Ordering};

/// The phase of a slot, as seen a moment ago.
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
pub(crate) struct SlotState(AtomicU64);

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
    pub(crate) fn new() -> Self {
        Self(AtomicU64::new(word(0, SlotPhase::Idle)))
    }

    fn load(&self) -> (u32, SlotPhase) {
        parts(self.0.load(Ordering::Acquire))
    }

    pub(crate) fn phase(&self) -> SlotPhase {
        self.load().1
    }

    /// Makes a transition that keeps the sequence number; returns false when the slot was in
    /// another state.
    fn transition(&self, sequence: u32, from: SlotPhase, to: SlotPhase) -> bool {
        self.exchange((sequence, from), (sequence, to))
    }

    /// Makes a transition; returns false when the slot was in another state.
    fn exchange(&self, from: (u32, SlotPhase), to: (u32, SlotPhase)) -> bool {
        let (from, to) = (word(from.0, from.1), word(to.0, to.1));
        self.0
            .compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
    }

    /// Moves from idle to `to` with the next sequence number, which it returns.
    fn leave_idle(&self, to: SlotPhase) -> Option<u32> {
        let idle @ (sequence, SlotPhase::Idle) = self.load() else {
            return None;
        };
        let next = sequence.wrapping_add(1);
        self.exchange(idle, (next, to)).then_some(next)
    }

    /// Moves from idle to requested, and returns the number that the signal must carry.
    pub(crate) fn request(&self) -> Option<u32> {
        self.leave_idle(SlotPhase::Requested)
    }

    /// Moves from idle to requested with the number of an earlier, canceled request. The signal of
    /// that request may still be pending, and the kernel would drop another one.
    pub(crate) fn repeat_request(&self, sequence: u32) -> bool {
        let idle @ (_, SlotPhase::Idle) = self.load() else {
            return false;
        };
        self.exchange(idle, (sequence, SlotPhase::Requested))
    }

    /// Moves from idle to writing, outside of a handler. Returns the number to publish or to
    /// abandon.
    pub(crate) fn begin_remote(&self) -> Option<u32> {
        self.leave_idle(SlotPhase::Writing)
    }

    /// Returns the sequence number of the pending request.
    pub(crate) fn pending_request(&self) -> Option<u32> {
        match self.load() {
            (sequence, SlotPhase::Requested) => Some(sequence),
            _ => None,
        }
    }

    /// Moves from requested to idle: the request is canceled.
    pub(crate) fn cancel(&self) {
        if let Some(sequence) = self.pending_request() {
            self.transition(sequence, SlotPhase::Requested, SlotPhase::Idle);
        }
    }

    /// Moves to idle from any phase except writing and reading, for which it returns false.
    pub(crate) fn retire(&self) -> bool {
        self.cancel();
        match self.load() {
            (_, SlotPhase::Idle) => true,
            (sequence, SlotPhase::Ready) => {
                self.transition(sequence, SlotPhase::Ready, SlotPhase::Idle)
            }
            _ => false,
        }
    }

    /// Moves from requested to writing if this request is pending. An event's signal carries no number;
    /// its handler passes that of the request which it has found pending.
    pub(crate) fn begin_in_handler(&self, sequence: u32) -> bool {
        self.transition(sequence, SlotPhase::Requested, SlotPhase::Writing)
    }

    /// Moves from writing to ready. Called only by the thread that moved the slot to writing.
    pub(crate) fn publish_in_handler(&self, sequence: u32) {
        self.0
            .store(word(sequence, SlotPhase::Ready), Ordering::Release);
    }

    /// Moves from writing to idle. Called only by the thread that moved the slot to writing with
    /// [`Self::begin_remote`].
    pub(crate) fn abandon(&self, sequence: u32) {
        self.0
            .store(word(sequence, SlotPhase::Idle), Ordering::Release);
    }

    /// Moves from ready to reading, and returns the number of the capture.
    pub(crate) fn begin_reading(&self) -> Option<u32> {
        let (sequence, SlotPhase::Ready) = self.load() else {
            return None;
        };
        self.transition(sequence, SlotPhase::Ready, SlotPhase::Reading)
            .then_some(sequence)
    }

    /// Moves from reading to idle. Called only by the thread that moved the slot to reading.
    pub(crate) fn finish_reading(&self, sequence: u32) {
        self.0
            .store(word(sequence, SlotPhase::Idle), Ordering::Release);
    }

    /// Moves to idle from any phase. Called only in the child of a fork, which has a single thread.
    pub(crate) fn reset_after_fork(&self) {
        let (sequence, _) = self.load();
        self.0
            .store(word(sequence, SlotPhase::Idle), Ordering::Release);
    }
}
