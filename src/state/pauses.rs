//! The pauses of a session, and the protocol by which the sampler keeps samples out of them.
//!
//! Each change increments a number, then reads the clock. If the sampler still reads the old number
//! after it has timed a sample, the sample is earlier than the pause. If it reads another number,
//! it takes the lock for the details.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::counters::sample_process_cpu_ns;
use crate::state::racy_features::{PauseKind, RacyFeatures};
use crate::types::TimeStamp;
use crate::util::{LockRank, NamedMutex, PsLock};

/// The pauses of a session.
#[derive(Debug)]
pub(crate) struct Pauses {
    /// Whether the session records the CPU time of the process.
    records_cpu: bool,
    changes: AtomicU64,
    state: NamedMutex<PauseState>,
}

#[derive(Debug, Default)]
struct PauseState {
    kinds: OpenPauses,
    /// Start of the current pause of sampling, of either kind.
    open: Option<TimeStamp>,
    /// Start of the first pause since the sampler last read the state.
    earliest: Option<TimeStamp>,
    /// Time at which sampling last resumed.
    resumed_at: TimeStamp,
    /// CPU time of the process at the start of the pause, and in all earlier pauses, in ns.
    cpu_at_begin_ns: i64,
    cpu_in_pauses_ns: i64,
}

/// The state of the pauses when the sampler last read it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SeenPauses {
    changes: u64,
    /// Time at which sampling last resumed: samples from this time on are kept.
    pub(crate) since: TimeStamp,
    /// Time at which sampling paused; it may have resumed since.
    pub(crate) until: Option<TimeStamp>,
    /// Whether sampling is still paused.
    pub(crate) is_paused: bool,
    /// CPU time of the process in pauses that have ended, in ns.
    pub(crate) cpu_in_pauses_ns: i64,
}

/// The start of each pause in progress.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct OpenPauses {
    pub(crate) paused_since: Option<TimeStamp>,
    pub(crate) sampling_paused_since: Option<TimeStamp>,
}

impl OpenPauses {
    fn since(&mut self, kind: PauseKind) -> &mut Option<TimeStamp> {
        match kind {
            PauseKind::All => &mut self.paused_since,
            PauseKind::Sampling => &mut self.sampling_paused_since,
        }
    }
}

impl Pauses {
    pub(crate) fn new(records_cpu: bool) -> Self {
        let state = PauseState::default();
        let state = NamedMutex::new("pauses", LockRank::SessionData, state);
        Self {
            records_cpu,
            changes: AtomicU64::new(0),
            state,
        }
    }

    /// Pauses or resumes, and calls `note` with the time of the change. Returns false if nothing
    /// changed. Called only while the session runs.
    pub(crate) fn set(
        &self,
        kind: PauseKind,
        paused: bool,
        lock: &PsLock,
        note: impl FnOnce(TimeStamp),
    ) -> bool {
        let cpu_ns = || {
            if self.records_cpu {
                sample_process_cpu_ns()
            } else {
                0
            }
        };
        self.set_with(kind, paused, cpu_ns, || {
            let now = RacyFeatures::set_paused(kind, paused, lock);
            // Called under the lock, so that entries are ordered by time.
            note(now);
            now
        })
    }

    /// Pauses or resumes. `change` publishes the new state and returns the time of the change.
    fn set_with(
        &self,
        kind: PauseKind,
        paused: bool,
        cpu_ns: impl Fn() -> i64,
        change: impl FnOnce() -> TimeStamp,
    ) -> bool {
        // No other thread can change the state during the call: that requires the `PsLock`, which
        // the caller holds.
        if self.open().since(kind).is_some() == paused {
            return false;
        }
        // Reading the CPU clock is a system call, so it is not made under a lock that the sampler
        // waits for. Both reads lie within the pause, so that the CPU time outside pauses never
        // decreases.
        let cpu_at_end_ns = if paused { 0 } else { cpu_ns() };
        let mut state = self.state.lock();
        self.changes.fetch_add(1, Ordering::SeqCst);
        let now = change();
        match state.set(kind, paused, now) {
            Effect::None => {}
            Effect::Pauses => {
                drop(state);
                let cpu_at_begin_ns = cpu_ns();
                self.state.lock().cpu_at_begin_ns = cpu_at_begin_ns;
            }
            Effect::Resumes => state.cpu_in_pauses_ns += cpu_at_end_ns - state.cpu_at_begin_ns,
        }
        true
    }

    /// Returns the start of each pause in progress.
    pub(crate) fn open(&self) -> OpenPauses {
        self.state.lock().kinds
    }

    /// Returns the pauses as of now if they have changed since `seen`. Called by the sampler.
    pub(crate) fn follow(&self, seen: &SeenPauses) -> Option<SeenPauses> {
        if self.changes.load(Ordering::SeqCst) == seen.changes {
            return None;
        }
        let mut state = self.state.lock();
        let changes = self.changes.load(Ordering::SeqCst);
        let open = state.open;
        let until = std::mem::replace(&mut state.earliest, open);
        let (since, is_paused) = (state.resumed_at, open.is_some());
        Some(SeenPauses {
            changes,
            since,
            until,
            is_paused,
            cpu_in_pauses_ns: state.cpu_in_pauses_ns,
        })
    }

    /// Returns the time up to which samples are kept, as of now, or `None` if sampling has not
    /// paused.
    pub(crate) fn until(&self, seen: &SeenPauses) -> Option<TimeStamp> {
        match self.changes.load(Ordering::SeqCst) == seen.changes {
            true => seen.until,
            // A pause that began after `seen` does not move an end that an earlier pause set.
            false => [seen.until, self.state.lock().earliest]
                .into_iter()
                .flatten()
                .min(),
        }
    }
}

/// Effect of a change on sampling.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Effect {
    /// The other kind of pause is active, so sampling stays paused.
    None,
    /// Sampling pauses.
    Pauses,
    /// Sampling resumes.
    Resumes,
}

impl PauseState {
    fn set(&mut self, kind: PauseKind, paused: bool, now: TimeStamp) -> Effect {
        *self.kinds.since(kind) = paused.then_some(now);
        let kinds = self.kinds;
        let is_paused = kinds.paused_since.or(kinds.sampling_paused_since).is_some();
        match (self.open.is_some(), is_paused) {
            (false, true) => {
                self.open = Some(now);
                self.earliest.get_or_insert(now);
                Effect::Pauses
            }
            (true, false) => {
                self.open = None;
                self.resumed_at = now;
                Effect::Resumes
            }
            (false, false) | (true, true) => Effect::None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::PauseKind::{All, Sampling};
    use super::*;

    /// Changes the pause at `now`, when the CPU time of the process is `cpu_ns`.
    fn set(pauses: &Pauses, kind: PauseKind, paused: bool, now: u64, cpu_ns: i64) -> bool {
        pauses.set_with(kind, paused, || cpu_ns, || TimeStamp(now))
    }

    #[test]
    fn sampling_resumes_when_both_pauses_have_ended() {
        let pauses = Pauses::new(true);
        let set = |kind, paused, now, cpu_ns| assert!(set(&pauses, kind, paused, now, cpu_ns));
        let mut seen = SeenPauses::default();
        assert!(pauses.follow(&seen).is_none());
        set(All, true, 10, 100);
        set(Sampling, true, 20, 120);
        set(All, false, 30, 130);
        assert_eq!(pauses.until(&seen), Some(TimeStamp(10)));
        seen = pauses.follow(&seen).expect("a change");
        assert_eq!((seen.until, seen.is_paused), (Some(TimeStamp(10)), true));
        set(Sampling, false, 40, 150);
        set(All, true, 50, 200);
        set(All, false, 60, 230);
        assert_eq!(
            pauses.until(&seen),
            Some(TimeStamp(10)),
            "a sample in the pause is not wanted"
        );
        seen = pauses.follow(&seen).expect("a change");
        assert_eq!(
            (seen.until, seen.is_paused, seen.since),
            (Some(TimeStamp(10)), false, TimeStamp(60))
        );
        assert_eq!(seen.cpu_in_pauses_ns, 50 + 30);
        set(All, true, 70, 300);
        seen = pauses.follow(&seen).expect("a change");
        assert_eq!((seen.until, seen.is_paused), (Some(TimeStamp(70)), true));
        assert!(pauses.follow(&seen).is_none());
    }

    #[test]
    fn until_is_not_moved_by_changes_after_seen() {
        let pauses = Pauses::new(true);
        assert!(set(&pauses, All, true, 10, 0) && set(&pauses, All, false, 20, 0));
        let seen = pauses.follow(&SeenPauses::default()).expect("a change");
        assert!(!seen.is_paused && pauses.until(&seen) == Some(TimeStamp(10)));
        assert!(!set(&pauses, All, false, 30, 0) && !set(&pauses, Sampling, false, 40, 0));
        assert!(pauses.follow(&seen).is_none(), "nothing changed");
        assert_eq!(pauses.until(&seen), Some(TimeStamp(10)));
        assert!(set(&pauses, Sampling, true, 50, 0));
        assert_eq!(
            pauses.until(&seen),
            Some(TimeStamp(10)),
            "the new pause is later than the known end"
        );
        assert!(!set(&pauses, Sampling, true, 60, 0) && set(&pauses, Sampling, false, 70, 0));
        assert_eq!(pauses.until(&seen), Some(TimeStamp(10)));
        let seen = pauses.follow(&seen).expect("a change");
        assert_eq!(
            (seen.until, seen.since),
            (Some(TimeStamp(50)), TimeStamp(70))
        );
    }

    #[test]
    fn cpu_clock_is_read_without_the_lock_and_within_the_pause() {
        let pauses = Pauses::new(true);
        let (state, reads) = (
            std::cell::Cell::new("before"),
            std::cell::RefCell::new(Vec::new()),
        );
        let cpu_ns = || {
            // Locking twice panics, so the lock is free here.
            drop(pauses.state.lock());
            reads.borrow_mut().push(state.get());
            0
        };
        for (paused, after) in [(true, "in the pause"), (false, "after the pause")] {
            let change = || {
                state.set(after);
                TimeStamp(1)
            };
            assert!(pauses.set_with(All, paused, cpu_ns, change));
            assert!(!pauses.set_with(All, paused, cpu_ns, || panic!("nothing changed")));
        }
        assert_eq!(reads.into_inner(), ["in the pause"; 2]);
    }
}
