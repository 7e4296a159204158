//! When the session paused: by whom it is set, and what the sampler has to know so that no sample lies within a pause.
//!
//! A change raises a number, then reads the clock. So what the sampler timed before it saw the old number is earlier than
//! the pause; and when it sees another number it asks under the lock.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::base::{LockRank, NamedMutex, TimeStamp};
use crate::counters::sample_process_cpu_ns;
use crate::platform::monotonic_now;
use crate::state::racy_features::{PauseKind, RacyFeatures};

/// The pauses of a session.
#[derive(Debug)]
pub(crate) struct Pauses {
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

impl Pauses {
    pub(crate) const fn new() -> Self {
        let log = Log {
            paused_since: None,
            sampling_paused_since: None,
            open: None,
            earliest: None,
            resumed_at: TimeStamp(0),
            cpu_at_begin_ns: 0,
            cpu_in_pauses_ns: 0,
        };
        Self { changes: AtomicU64::new(0), log: NamedMutex::new("pauses", LockRank::ThreadData, log) }
    }

    /// Pauses so, or goes on, and calls `note` with the time of that; false when there was nothing to change. Under the
    /// `PsLock`, while the session runs.
    pub(crate) fn set(&self, kind: PauseKind, paused: bool, note: impl FnOnce(TimeStamp)) -> bool {
        let mut log = self.log.lock();
        self.changes.fetch_add(1, Ordering::SeqCst);
        if !RacyFeatures::set_paused(kind, paused) {
            return false;
        }
        let now = monotonic_now();
        log.set(kind, paused.then_some(now), now, sample_process_cpu_ns);
        // Under the lock, so that entries are in the order of their times.
        note(now);
        true
    }

    pub(crate) fn open(&self) -> OpenPauses {
        let log = self.log.lock();
        OpenPauses { paused_since: log.paused_since, sampling_paused_since: log.sampling_paused_since }
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
        Some(SeenPauses { changes, since, until, is_paused, cpu_in_pauses_ns: log.cpu_in_pauses_ns })
    }

    /// Until when samples are wanted, as of now.
    pub(crate) fn until(&self, seen: &SeenPauses) -> Option<TimeStamp> {
        match self.changes.load(Ordering::SeqCst) == seen.changes {
            true => seen.until,
            false => self.log.lock().earliest,
        }
    }
}

impl Log {
    fn set(&mut self, kind: PauseKind, since: Option<TimeStamp>, now: TimeStamp, cpu_ns: impl Fn() -> i64) {
        match kind {
            PauseKind::All => self.paused_since = since,
            PauseKind::Sampling => self.sampling_paused_since = since,
        }
        let is_paused = self.paused_since.is_some() || self.sampling_paused_since.is_some();
        match (self.open.is_some(), is_paused) {
            (false, true) => {
                self.open = Some(now);
                self.earliest.get_or_insert(now);
                self.cpu_at_begin_ns = cpu_ns();
            }
            (true, false) => {
                self.open = None;
                self.resumed_at = now;
                self.cpu_in_pauses_ns += cpu_ns() - self.cpu_at_begin_ns;
            }
            (false, false) | (true, true) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sampling_goes_on_when_both_pauses_have_ended() {
        use PauseKind::{All, Sampling};
        let pauses = Pauses::new();
        let set = |kind, since: Option<u64>, now, cpu| {
            pauses.changes.fetch_add(1, Ordering::SeqCst);
            pauses.log.lock().set(kind, since.map(TimeStamp), TimeStamp(now), || cpu);
        };
        let mut seen = SeenPauses::default();
        assert!(pauses.follow(&seen).is_none());
        set(All, Some(10), 10, 100);
        set(Sampling, Some(20), 20, 120);
        set(All, None, 30, 130);
        assert_eq!(pauses.until(&seen), Some(TimeStamp(10)));
        seen = pauses.follow(&seen).expect("a change");
        assert_eq!((seen.until, seen.is_paused), (Some(TimeStamp(10)), true));
        set(Sampling, None, 40, 150);
        set(All, Some(50), 50, 200);
        set(All, None, 60, 230);
        assert_eq!(pauses.until(&seen), Some(TimeStamp(10)), "what came in the pause is not wanted");
        seen = pauses.follow(&seen).expect("a change");
        assert_eq!((seen.until, seen.is_paused, seen.since), (Some(TimeStamp(10)), false, TimeStamp(60)));
        assert_eq!(seen.cpu_in_pauses_ns, 50 + 30);
        set(All, Some(70), 70, 300);
        seen = pauses.follow(&seen).expect("a change");
        assert_eq!((seen.until, seen.is_paused), (Some(TimeStamp(70)), true));
        assert!(pauses.follow(&seen).is_none());
    }
}
