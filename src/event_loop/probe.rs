//! An event loop that is probed: a probe is queued like any event, and its answer shows how long
//! the loop keeps events waiting.
//!
//! At most one probe is pending at a time. Three threads advance it, each by writing a word of its
//! own:
//!
//! ```text
//! posted P1, recorded P0, answered 0      pending: the loop has not reached it           (watcher)
//! posted P1, recorded P0, answered A1     answered: it has run, or was dropped           (the loop)
//! posted P1, recorded P1                  recorded: the next probe may be posted         (sampler)
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::platform::monotonic_now;
use crate::threads::OffThreadRef;
use crate::types::{ThreadProfilingFeatures, TimeStamp};

/// A thread whose event loop is probed.
#[doc(alias = "EventTracer")]
#[derive(Debug)]
pub(crate) struct ProbedLoop {
    pub(crate) thread: OffThreadRef,
    /// When the last probe was posted, which also identifies this probe; 0 before the first probe.
    /// Written by the watcher, which first sets `answered_ns` to 0.
    posted_ns: AtomicU64,
    /// When the last probe was answered; 0 before that. Written once per probe by the probe's
    /// holder, and reset by the watcher.
    answered_ns: AtomicU64,
    /// `posted_ns` of the last probe that was recorded. Written by the sampler.
    recorded_ns: AtomicU64,
    /// `posted_ns` of the last probe whose long wait was noticed while it was pending. Written by the
    /// thread that looks for janks.
    noticed_ns: AtomicU64,
    /// The longest wait, in ns, of a probe that was answered since a thread looked for janks, and
    /// was not noticed before.
    longest_wait_ns: AtomicU64,
    /// Set when a probe was dropped without an answer: the loop takes no more probes.
    has_ended: AtomicBool,
}

/// A probe that the buffer does not hold completely yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct UnrecordedProbe {
    pub(crate) posted: TimeStamp,
    /// `None` while the probe is pending.
    pub(crate) answered: Option<TimeStamp>,
}

impl ProbedLoop {
    pub(crate) fn new(thread: OffThreadRef) -> Self {
        Self {
            thread,
            posted_ns: AtomicU64::new(0),
            answered_ns: AtomicU64::new(0),
            recorded_ns: AtomicU64::new(0),
            noticed_ns: AtomicU64::new(0),
            longest_wait_ns: AtomicU64::new(0),
            has_ended: AtomicBool::new(false),
        }
    }

    /// Returns whether further probes are useless: the loop takes none, or the thread has
    /// unregistered.
    pub(crate) fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::Acquire)
            || self
                .thread
                .unlocked_const_reader_and_atomic_rw()
                .unregistered_at()
                .is_some()
    }

    /// Returns whether a session records anything of the thread.
    pub(crate) fn is_profiled(&self) -> bool {
        let thread = self.thread.unlocked_const_reader_and_atomic_rw();
        thread
            .profiling_features()
            .intersects(ThreadProfilingFeatures::ANY)
    }

    /// Returns whether the last probe is recorded, and was answered at least `pause_ns` ago.
    pub(crate) fn is_due(&self, now: TimeStamp, pause_ns: u64) -> bool {
        let posted_ns = self.posted_ns.load(Ordering::Relaxed);
        let answered = TimeStamp(self.answered_ns.load(Ordering::Acquire));
        posted_ns == 0
            || (self.recorded_ns.load(Ordering::Acquire) == posted_ns
                && now.since_ns(answered) >= pause_ns)
    }

    /// Creates the next probe. Called only by the watcher, when a probe is due.
    pub(crate) fn post(self: &Arc<Self>, now: TimeStamp) -> ProbeToken {
        let before_ns = self.posted_ns.load(Ordering::Relaxed);
        self.answered_ns.store(0, Ordering::Relaxed);
        self.posted_ns
            .store(now.0.max(before_ns + 1), Ordering::Release);
        ProbeToken {
            probed: Arc::clone(self),
            has_run: false,
        }
    }

    /// Returns the last probe if the buffer does not hold it completely yet.
    pub(crate) fn unrecorded(&self) -> Option<UnrecordedProbe> {
        let posted_ns = self.posted_ns.load(Ordering::Acquire);
        if posted_ns == self.recorded_ns.load(Ordering::Relaxed) {
            return None;
        }
        let answered = Some(self.answered_ns.load(Ordering::Acquire))
            .filter(|&ns| ns != 0)
            .map(TimeStamp);
        Some(UnrecordedProbe {
            posted: TimeStamp(posted_ns),
            answered,
        })
    }

    /// Returns how long a probe has waited, in ns, if that is longer than the limit and was not
    /// returned before: the pending one, or else one that was answered since the last call.
    pub(crate) fn take_long_wait(&self, limit_ns: u64) -> Option<u64> {
        let answered_ns = self.longest_wait_ns.swap(0, Ordering::AcqRel);
        let posted_ns = self.posted_ns.load(Ordering::Acquire);
        // The watcher forgets the answer of a recorded probe before it posts the next one.
        let is_recorded = self.recorded_ns.load(Ordering::Acquire) == posted_ns;
        let is_pending =
            !is_recorded && self.answered_ns.load(Ordering::Acquire) == 0 && !self.has_ended();
        let pending_ns = monotonic_now().since_ns(TimeStamp(posted_ns));
        if is_pending
            && pending_ns > limit_ns
            && self.noticed_ns.swap(posted_ns, Ordering::AcqRel) != posted_ns
        {
            return Some(pending_ns);
        }
        Some(answered_ns).filter(|ns| *ns > limit_ns)
    }

    /// Notes the answer of the pending probe.
    fn answer(&self, now: TimeStamp) {
        let posted_ns = self.posted_ns.load(Ordering::Relaxed);
        self.answered_ns.store(now.0.max(1), Ordering::Release);
        if self.noticed_ns.load(Ordering::Acquire) != posted_ns {
            let wait_ns = now.since_ns(TimeStamp(posted_ns));
            self.longest_wait_ns.fetch_max(wait_ns, Ordering::AcqRel);
        }
    }

    /// Marks a probe as completely recorded. Called only by the sampler.
    pub(crate) fn set_recorded(&self, probe: UnrecordedProbe) {
        self.recorded_ns.store(probe.posted.0, Ordering::Release);
    }
}

/// A pending probe. Dropping it without calling [`Self::answer`] also answers it, and ends the
/// probing of the loop.
#[derive(Debug)]
pub(crate) struct ProbeToken {
    probed: Arc<ProbedLoop>,
    has_run: bool,
}

impl ProbeToken {
    /// Answers the probe, because the loop has reached it.
    pub(crate) fn answer(mut self) {
        self.has_run = true;
    }
}

impl Drop for ProbeToken {
    fn drop(&mut self) {
        if !self.has_run {
            self.probed.has_ended.store(true, Ordering::Release);
        }
        self.probed.answer(monotonic_now());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::threads::{
        OnThreadRef, RegistrationHooks, register_current_thread, unregister_current_thread,
    };

    #[test]
    fn probe_is_due_after_previous_is_recorded_and_pause() {
        register_current_thread("probed", RegistrationHooks::NONE);
        let thread = OnThreadRef::with(|thread| thread.to_off_thread()).expect("registered");
        let probed = Arc::new(ProbedLoop::new(thread));
        let now = monotonic_now();
        assert!(probed.unrecorded().is_none() && probed.is_due(now, 1000));
        let probe = probed.post(now);
        let pending = UnrecordedProbe {
            posted: now,
            answered: None,
        };
        assert_eq!(probed.unrecorded(), Some(pending));
        assert!(!probed.is_due(now.plus_ns(1 << 40), 1000), "it is pending");
        probe.answer();
        let answered = probed.unrecorded().expect("not recorded");
        let answered_at = answered.answered.expect("answered");
        assert!(answered.posted == now && answered_at >= now && !probed.has_ended());
        assert!(
            !probed.is_due(now.plus_ns(1 << 40), 1000),
            "it is not recorded"
        );
        probed.set_recorded(answered);
        assert_eq!(probed.unrecorded(), None);
        assert!(
            !probed.is_due(answered_at.plus_ns(999), 1000)
                && probed.is_due(answered_at.plus_ns(1000), 1000)
        );
        // Probes that are posted at the same time get different identifiers.
        let second = probed.post(now);
        assert!(probed.unrecorded().is_some_and(|probe| probe.posted > now));
        drop(second);
        assert!(
            probed.has_ended()
                && probed
                    .unrecorded()
                    .is_some_and(|probe| probe.answered.is_some())
        );
        // Each wait is taken once, pending or answered.
        let waiting = Arc::new(ProbedLoop::new(probed.thread.clone()));
        let long_ago = TimeStamp(monotonic_now().0.saturating_sub(5_000));
        let pending = waiting.post(long_ago);
        let wait_ns = waiting.take_long_wait(4_000).expect("it waits");
        assert!(wait_ns >= 5_000 && waiting.take_long_wait(4_000).is_none());
        pending.answer();
        assert_eq!(waiting.take_long_wait(4_000), None, "it was noticed");
        waiting.post(long_ago).answer();
        assert!(waiting.take_long_wait(4_000).is_some_and(|ns| ns >= 5_000));
        waiting.post(long_ago).answer();
        assert_eq!(waiting.take_long_wait(u64::MAX), None);
        assert_eq!(waiting.take_long_wait(0), None, "it was taken");
        let other = ProbedLoop::new(probed.thread.clone());
        assert!(!other.has_ended());
        unregister_current_thread();
        assert!(other.has_ended(), "its thread has unregistered");
    }
}
