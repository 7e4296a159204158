//! When the session paused: by whom it is set, and what the sampler has to know so that no sample lies within a pause.
//!
//! A change raises a number, then reads the clock. So what the sampler timed before it saw the old number is earlier than
//! the pause; and when it sees another number it asks under the lock.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::base::{LockRank, NamedMutex, PsLock, TimeStamp};
use crate::counters::sample_process_cpu_ns;
use crate::state::racy_features::{PauseKind, RacyFeatures};

/// The pauses of a session.
#[derive(Debug)]
pub(crate) struct Pauses {
    /// Whether the session counts the CPU time of the process.
    counts_cpu: bool,
    changes: AtomicU64,
    log: NamedMutex<Log>,
}

#[derive(Debug, Default)]
struct Log {
    paused_since: Option<TimeStamp>,
    sampling_paused_since: Option<TimeStamp>,
    /// When sampling stopped, by either way, while it does.
    open: Option<TimeStamp>,
    /// When it stopped first since the sampler looked.
    earliest: Option<TimeStamp>,
    /// When it went on last.
    resumed_at: TimeStamp,
    /// CPU time of the process, when the pause began and of the pauses before, in nanoseconds.
    cpu_at_begin_ns: i64,
    cpu_in_pauses_ns: i64,
}

/// What the sampler knows of the pauses since it looked last.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SeenPauses {
    changes: u64,
    /// Samples from here on are wanted.
    pub(crate) since: TimeStamp,
    /// Sampling stopped then, and may have gone on since.
    pub(crate) until: Option<TimeStamp>,
    /// Whether it has not gone on.
    pub(crate) is_paused: bool,
    /// CPU time of the process in pauses that have ended, in nanoseconds.
    pub(crate) cpu_in_pauses_ns: i64,
}

/// The open pauses at one moment: when each began.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct OpenPauses {
    pub(crate) paused_since: Option<TimeStamp>,
    pub(crate) sampling_paused_since: Option<TimeStamp>,
}

impl OpenPauses {
    fn since(&self, kind: PauseKind) -> Option<TimeStamp> {
        match kind {
            PauseKind::All => self.paused_since,
            PauseKind::Sampling => self.sampling_paused_since,
        }
    }
}

impl Pauses {
    pub(crate) const fn new(counts_cpu: bool) -> Self {
        let log = Log {
            paused_since: None,
            sampling_paused_since: None,
            open: None,
            earliest: None,
            resumed_at: TimeStamp(0),
            cpu_at_begin_ns: 0,
            cpu_in_pauses_ns: 0,
        };
        let log = NamedMutex::new("pauses", LockRank::ThreadData, log);
        Self {
            counts_cpu,
            changes: AtomicU64::new(0),
            log,
        }
    }

    /// Pauses so, or goes on, and calls `note` with the time of that; false when there was nothing to change. While the
    /// session runs.
    pub(crate) fn set(
        &self,
        kind: PauseKind,
        paused: bool,
        lock: &PsLock,
        note: impl FnOnce(TimeStamp),
    ) -> bool {
        let cpu_ns = || {
            if self.counts_cpu {
                sample_process_cpu_ns()
            } else {
                0
            }
        };
        self.set_with(kind, paused, cpu_ns, || {
            let now = RacyFeatures::set_paused(kind, paused, lock);
            // Under the lock, so that entries are in the order of their times.
            note(now);
            now
        })
    }

    /// The same; `change` makes it known, and tells when that was.
    fn set_with(
        &self,
        kind: PauseKind,
        paused: bool,
        cpu_ns: impl Fn() -> i64,
        change: impl FnOnce() -> TimeStamp,
    ) -> bool {
        // Nobody changes it meanwhile, since that takes the `PsLock`.
        if self.open().since(kind).is_some() == paused {
            return false;
        }
        // The CPU clock is a system call, so it is read under no lock that the sampler waits for; and within the pause, too,
        // so that the CPU time outside of pauses never goes back.
        let cpu_at_end_ns = if paused { 0 } else { cpu_ns() };
        let mut log = self.log.lock();
        self.changes.fetch_add(1, Ordering::SeqCst);
        let now = change();
        match log.set(kind, paused, now) {
            Effect::None => {}
            Effect::Stops => {
                drop(log);
                let cpu_at_begin_ns = cpu_ns();
                self.log.lock().cpu_at_begin_ns = cpu_at_begin_ns;
            }
            Effect::GoesOn => log.cpu_in_pauses_ns += cpu_at_end_ns - log.cpu_at_begin_ns,
        }
        true
    }

    pub(crate) fn open(&self) -> OpenPauses {
        let log = self.log.lock();
        OpenPauses {
            paused_since: log.paused_since,
            sampling_paused_since: log.sampling_paused_since,
        }
    }

    /// What happened since `seen`; `None` when nothing did. For the sampler.
    pub(crate) fn follow(&self, seen: &SeenPauses) -> Option<SeenPauses> {
        if self.changes.load(Ordering::SeqCst) == seen.changes {
            return None;
        }
        let mut log = self.log.lock();
        let changes = self.changes.load(Ordering::SeqCst);
        let open = log.open;
        let until = std::mem::replace(&mut log.earliest, open);
        let (since, is_paused) = (log.resumed_at, open.is_some());
        Some(SeenPauses {
            changes,
            since,
            until,
            is_paused,
            cpu_in_pauses_ns: log.cpu_in_pauses_ns,
        })
    }

    /// Until when samples are wanted, as of now.
    pub(crate) fn until(&self, seen: &SeenPauses) -> Option<TimeStamp> {
        match self.changes.load(Ordering::SeqCst) == seen.changes {
            true => seen.until,
            // What began after `seen` does not take back what ended before it.
            false => [seen.until, self.log.lock().earliest]
                .into_iter()
                .flatten()
                .min(),
        }
    }
}

/// What a change did to the sampling.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Effect {
    /// The other way to pause is on.
    None,
    Stops,
    GoesOn,
}

impl Log {
    fn set(&mut self, kind: PauseKind, paused: bool, now: TimeStamp) -> Effect {
        let since = paused.then_some(now);
        match kind {
            PauseKind::All => self.paused_since = since,
            PauseKind::Sampling => self.sampling_paused_since = since,
        }
        let is_paused = self.paused_since.is_some() || self.sampling_paused_since.is_some();
        match (self.open.is_some(), is_paused) {
            (false, true) => {
                self.open = Some(now);
                self.earliest.get_or_insert(now);
                Effect::Stops
            }
            (true, false) => {
                self.open = None;
                self.resumed_at = now;
                Effect::GoesOn
            }
            (false, false) | (true, true) => Effect::None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::PauseKind::{All, Sampling};
    use super::*;

    /// Changes it at a time at which the process has had so much CPU time.
    fn set(pauses: &Pauses, kind: PauseKind, paused: bool, now: u64, cpu_ns: i64) -> bool {
        pauses.set_with(kind, paused, || cpu_ns, || TimeStamp(now))
    }

    #[test]
    fn sampling_goes_on_when_both_pauses_have_ended() {
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
            "what came in the pause is not wanted"
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
    fn what_changes_after_a_look_takes_back_nothing_of_it() {
        let pauses = Pauses::new(true);
        assert!(set(&pauses, All, true, 10, 0) && set(&pauses, All, false, 20, 0));
        let seen = pauses.follow(&SeenPauses::default()).expect("a change");
        assert!(!seen.is_paused && pauses.until(&seen) == Some(TimeStamp(10)));
        assert!(!set(&pauses, All, false, 30, 0) && !set(&pauses, Sampling, false, 40, 0));
        assert!(
            pauses.follow(&seen).is_none(),
            "there was nothing to change"
        );
        assert_eq!(pauses.until(&seen), Some(TimeStamp(10)));
        assert!(set(&pauses, Sampling, true, 50, 0));
        assert_eq!(
            pauses.until(&seen),
            Some(TimeStamp(10)),
            "it is later than what is to be written"
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
    fn the_cpu_clock_is_read_under_no_lock_and_within_the_pause() {
        let pauses = Pauses::new(true);
        let (state, reads) = (
            std::cell::Cell::new("before"),
            std::cell::RefCell::new(Vec::new()),
        );
        let cpu_ns = || {
            // Taken twice, it is refused.
            drop(pauses.log.lock());
            reads.borrow_mut().push(state.get());
            0
        };
        for (paused, after) in [(true, "in the pause"), (false, "after it")] {
            let change = || {
                state.set(after);
                TimeStamp(1)
            };
            assert!(pauses.set_with(All, paused, cpu_ns, change));
            assert!(!pauses.set_with(All, paused, cpu_ns, || panic!("it is no change")));
        }
        assert_eq!(reads.into_inner(), ["in the pause"; 2]);
    }
}
