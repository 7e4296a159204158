//! An event loop that is asked how long it keeps an event waiting: a probe is queued like any event, and answers when it runs.
//!
//! One probe at a time is out. It is taken along by three threads, each of which writes a word of its own:
//!
//! ```text
//! posted P1, recorded P0, answered 0      out: the loop has not come to it            (watcher)
//! posted P1, recorded P0, answered A1     it has run, or was thrown away              (the loop)
//! posted P1, recorded P1                  it stands in the buffer; the next may go out (sampler)
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::base::{ThreadProfilingFeatures, TimeStamp};
use crate::platform::monotonic_now;
use crate::threads::registration::OffThreadRef;

/// A thread whose event loop is probed.
#[doc(alias = "EventTracer")]
#[derive(Debug)]
pub(crate) struct ProbedLoop {
    pub(crate) thread: OffThreadRef,
    /// Written by the watcher, with `answered` set to 0 before: when the last probe was posted, by which it is known. 0 before
    /// the first.
    posted_ns: AtomicU64,
    /// Written by whoever has the probe, once.
    answered_ns: AtomicU64,
    /// Written by the sampler.
    recorded_ns: AtomicU64,
    /// Raised when a probe was thrown away: the loop takes none any more.
    is_over: AtomicBool,
}

/// A probe that is not in the buffer as a whole.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct UnrecordedProbe {
    pub(crate) posted: TimeStamp,
    /// `None` while it is out.
    pub(crate) answered: Option<TimeStamp>,
}

impl ProbedLoop {
    pub(super) fn new(thread: OffThreadRef) -> Self {
        let [posted_ns, answered_ns, recorded_ns] = [const { AtomicU64::new(0) }; 3];
        Self {
            thread,
            posted_ns,
            answered_ns,
            recorded_ns,
            is_over: AtomicBool::new(false),
        }
    }

    /// Whether there is no use in another probe.
    pub(super) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
            || self
                .thread
                .unlocked_const_reader_and_atomic_rw()
                .unregistered_at()
                .is_some()
    }

    /// Whether a session records anything of the thread.
    pub(crate) fn is_profiled(&self) -> bool {
        let thread = self.thread.unlocked_const_reader_and_atomic_rw();
        thread
            .profiling_features()
            .intersects(ThreadProfilingFeatures::ANY)
    }

    /// Whether nothing of the last probe is open, and so long ago it was answered.
    pub(super) fn is_due(&self, now: TimeStamp, pause_ns: u64) -> bool {
        let posted_ns = self.posted_ns.load(Ordering::Relaxed);
        let answered = TimeStamp(self.answered_ns.load(Ordering::Acquire));
        posted_ns == 0
            || (self.recorded_ns.load(Ordering::Acquire) == posted_ns
                && now.since_ns(answered) >= pause_ns)
    }

    /// By the watcher alone, when one is due.
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

    /// What the buffer does not hold of it yet.
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

    /// By the sampler alone: the buffer holds the whole of it.
    pub(crate) fn set_recorded(&self, probe: UnrecordedProbe) {
        self.recorded_ns.store(probe.posted.0, Ordering::Release);
    }
}

/// A probe that is out. Dropping it is an answer too, and the last.
#[derive(Debug)]
pub(crate) struct ProbeToken {
    probed: Arc<ProbedLoop>,
    has_run: bool,
}

impl ProbeToken {
    /// The loop has come to it.
    pub(crate) fn answer(mut self) {
        self.has_run = true;
    }
}

impl Drop for ProbeToken {
    fn drop(&mut self) {
        if !self.has_run {
            self.probed.is_over.store(true, Ordering::Release);
        }
        self.probed
            .answered_ns
            .store(monotonic_now().0.max(1), Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::threads::registration::{
        OnThreadRef, RegistrationHooks, register_current_thread, unregister_current_thread,
    };

    #[test]
    fn a_probe_goes_out_when_the_one_before_is_recorded_and_long_ago() {
        register_current_thread("probed", RegistrationHooks::NONE);
        let thread = OnThreadRef::with(|thread| thread.to_off_thread()).expect("registered");
        let probed = Arc::new(ProbedLoop::new(thread));
        let now = monotonic_now();
        assert!(probed.unrecorded().is_none() && probed.is_due(now, 1000));
        let probe = probed.post(now);
        let out = UnrecordedProbe {
            posted: now,
            answered: None,
        };
        assert_eq!(probed.unrecorded(), Some(out));
        assert!(!probed.is_due(now.plus_ns(1 << 40), 1000), "it is out");
        probe.answer();
        let answered = probed.unrecorded().expect("not recorded");
        let answered_at = answered.answered.expect("answered");
        assert!(answered.posted == now && answered_at >= now && !probed.is_over());
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
        // Two within the clock's grain are two.
        let second = probed.post(now);
        assert!(probed.unrecorded().is_some_and(|probe| probe.posted > now));
        drop(second);
        assert!(
            probed.is_over()
                && probed
                    .unrecorded()
                    .is_some_and(|probe| probe.answered.is_some())
        );
        let other = ProbedLoop::new(probed.thread.clone());
        assert!(!other.is_over());
        unregister_current_thread();
        assert!(other.is_over(), "its thread is gone");
    }
}
