//! Event loops that the profiler watches by probes.
//!
//! # Purpose
//! If a loop cannot report its events, the profiler posts a probe to it at an interval. The probe is
//! queued like any event, and its answer shows how long the loop keeps events waiting.
//!
//! At most one probe of a loop is pending. Three threads advance it, each by writing a word of its
//! own:
//!
//! ```text
//! posted P1, recorded P0, answered 0      pending: the loop has not reached it           (watcher)
//! posted P1, recorded P0, answered A1     answered: it has run, or was dropped           (the loop)
//! posted P1, recorded P1                  recorded: the next probe may be posted         (sampler)
//! ```
//!
//! # Threads and locks
//! A probe runs on the loop's thread. The watcher thread posts the probes. The application's
//! callbacks may block, so they are taken out of the list, and are called and dropped without a
//! lock. The lock of the list of watches is the last in the lock order.
//!
//! # Imports
//! `platform`, `threads`, `types`, `util`
//!
//! # Invariants
//! - At most one probe of a loop is pending.
//! - A callback that panics ends its watch.
//!
//! # Read next
//! `session/life_cycle/event_loops.rs`

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::platform::monotonic_now;
use crate::threads::{OffThreadRef, OnThreadRef};
use crate::types::{ThreadProfilingFeatures, TimeStamp};
use crate::util::{Guard, LockRank, NamedMutex};

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
        self.has_ended.load(Ordering::Acquire) || self.thread.unregistered_at().is_some()
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

/// The application's callback that puts a probe into the queue of its event loop.
pub(crate) type PostProbe = Box<dyn FnMut(ProbeToken) + Send>;

struct Watch {
    id: u64,
    probed: Arc<ProbedLoop>,
    /// `None` while the watcher thread holds the callback.
    post: Option<PostProbe>,
}

/// The list of all event watches.
pub(crate) struct EventWatches {
    list: Vec<Watch>,
    last_id: u64,
    /// Whether a watcher thread exists, which posts the probes.
    has_watcher: bool,
    /// Minimum time from an answer to the next probe, in ns.
    pause_ns: u64,
}

/// A watch whose probe is due. The watcher thread holds its callback.
pub(crate) struct DueWatch {
    id: u64,
    pub(crate) probed: Arc<ProbedLoop>,
    pub(crate) post: PostProbe,
}

/// Work for the watcher thread.
pub(crate) struct WatchRound {
    pub(crate) due: Vec<DueWatch>,
    /// Callbacks of ended watches, which the watcher thread must drop.
    pub(crate) over: Vec<PostProbe>,
}

/// What the watcher thread does in a round.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum WatchWork {
    /// Posts the probes that are due.
    Post,
    /// Posts nothing, because the answers would not be recorded.
    Idle,
    /// Ends the watcher thread, because it is no longer needed.
    End,
}

static WATCHES: NamedMutex<EventWatches> = NamedMutex::new(
    "event watches",
    LockRank::EventWatches,
    EventWatches {
        list: Vec::new(),
        last_id: 0,
        has_watcher: false,
        pause_ns: 0,
    },
);
/// Incremented with every change of the list.
static VERSION: AtomicU64 = AtomicU64::new(1);

impl EventWatches {
    /// Watches the event loop of a thread. Returns the watch's number, and the callbacks of ended
    /// watches, which the caller must drop.
    pub(crate) fn add(thread: OffThreadRef, post: PostProbe) -> (u64, Vec<PostProbe>) {
        let probed = Arc::new(ProbedLoop::new(thread));
        let mut watches = WATCHES.lock();
        let over = watches.remove_ended();
        watches.last_id += 1;
        let id = watches.last_id;
        watches.list.push(Watch {
            id,
            probed,
            post: Some(post),
        });
        VERSION.fetch_add(1, Ordering::Release);
        (id, over)
    }

    /// Removes ended watches and returns their callbacks. A callback that the watcher thread holds
    /// is not among them; [`Self::put_back`] returns it later.
    fn remove_ended(&mut self) -> Vec<PostProbe> {
        let before = self.list.len();
        let over = self.list.extract_if(.., |watch| watch.probed.has_ended());
        let over = over.filter_map(|watch| watch.post).collect();
        if self.list.len() != before {
            VERSION.fetch_add(1, Ordering::Release);
        }
        over
    }

    /// Ends a watch. The caller must drop the returned callback. `None` if the watcher thread holds
    /// the callback, or if the watch has already ended.
    pub(crate) fn remove(id: u64) -> Option<PostProbe> {
        let mut watches = WATCHES.lock();
        let index = watches.list.iter().position(|watch| watch.id == id)?;
        VERSION.fetch_add(1, Ordering::Release);
        watches.list.swap_remove(index).post
    }

    pub(crate) fn version() -> u64 {
        VERSION.load(Ordering::Acquire)
    }

    pub(crate) fn probed_loops() -> Vec<Arc<ProbedLoop>> {
        WATCHES
            .lock()
            .list
            .iter()
            .map(|watch| Arc::clone(&watch.probed))
            .collect()
    }

    /// Returns whether the caller must start the watcher thread: a loop is watched, and no watcher
    /// thread exists.
    pub(crate) fn claim_watcher(pause_ns: u64) -> bool {
        let mut watches = WATCHES.lock();
        watches.pause_ns = pause_ns;
        let is_wanted = !watches.has_watcher && !watches.list.is_empty();
        watches.has_watcher |= is_wanted;
        is_wanted
    }

    /// Withdraws the claim of a caller that could not start the watcher thread.
    pub(crate) fn release_watcher_claim() {
        WATCHES.lock().has_watcher = false;
    }

    /// Returns the work of the next round; `None` when the watcher thread must end. Calls `work`
    /// under the lock, so that after `None` the next claim starts another watcher thread.
    pub(crate) fn begin_round(
        now: TimeStamp,
        work: impl FnOnce() -> WatchWork,
    ) -> Option<WatchRound> {
        let mut watches = WATCHES.lock();
        let work = if watches.list.is_empty() {
            WatchWork::End
        } else {
            work()
        };
        if work == WatchWork::End {
            watches.has_watcher = false;
            return None;
        }
        let mut round = WatchRound {
            due: Vec::new(),
            over: watches.remove_ended(),
        };
        if work == WatchWork::Post {
            let pause_ns = watches.pause_ns;
            for Watch { id, probed, post } in &mut watches.list {
                if !(probed.is_profiled() && probed.is_due(now, pause_ns)) {
                    continue;
                }
                if let Some(post) = post.take() {
                    round.due.push(DueWatch {
                        id: *id,
                        probed: Arc::clone(probed),
                        post,
                    });
                }
            }
        }
        Some(round)
    }

    /// Puts the callback back after it has posted its probe. If the watch has ended in the
    /// meantime, returns the callback, which the caller must drop.
    pub(crate) fn put_back(due: DueWatch) -> Option<PostProbe> {
        let mut watches = WATCHES.lock();
        match watches.list.iter_mut().find(|watch| watch.id == due.id) {
            Some(watch) => {
                watch.post = Some(due.post);
                None
            }
            None => Some(due.post),
        }
    }

    /// Ends a watch whose callback has panicked. The caller must drop the returned callback.
    pub(crate) fn discard(due: DueWatch) -> Option<PostProbe> {
        Self::remove(due.id);
        Some(due.post)
    }

    /// Locks the list while the process forks.
    pub(crate) fn hold_for_fork() -> Guard<'static, EventWatches> {
        WATCHES.lock()
    }

    /// Keeps only the watches of the calling thread, in the child of a fork, where no other thread
    /// exists. A watch whose callback the watcher thread held is removed too.
    pub(crate) fn keep_only_current_thread(mut guard: Guard<'static, EventWatches>) {
        let serial = OnThreadRef::with(|thread| thread.to_off_thread().serial());
        let watches = &mut *guard;
        let is_kept =
            |watch: &Watch| Some(watch.probed.thread.serial()) == serial && watch.post.is_some();
        let (kept, gone) = watches.list.drain(..).partition(is_kept);
        watches.list = kept;
        let gone: Vec<Watch> = gone;
        // Leaked, because their callbacks may be in an inconsistent state.
        std::mem::forget(gone);
        watches.has_watcher = false;
        VERSION.fetch_add(1, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::threads::{
        ProfiledThreadData, RegistrationHooks, register_current_thread, unregister_current_thread,
    };
    use crate::types::Generation;
    use crate::util::PsLock;

    fn due_on_post() -> Vec<DueWatch> {
        EventWatches::begin_round(monotonic_now(), || WatchWork::Post)
            .expect("there is a watch")
            .due
    }

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

    // The only test that uses the global list.
    #[test]
    fn watch_is_held_by_one_watcher_at_a_time() {
        register_current_thread("watched", RegistrationHooks::NONE);
        let thread = OnThreadRef::with(|thread| thread.to_off_thread()).expect("registered");
        assert!(!EventWatches::claim_watcher(0), "no loop is watched");
        let (id, _) = EventWatches::add(thread.clone(), Box::new(ProbeToken::answer));
        assert!(
            EventWatches::claim_watcher(0) && !EventWatches::claim_watcher(0),
            "only one caller starts the watcher"
        );
        assert!(due_on_post().is_empty(), "the thread is not profiled");
        {
            let lock = PsLock::acquire();
            let data = ProfiledThreadData {
                live_index: 0,
                end_position: None,
            };
            let (session, features) = (
                Generation::from_number(1),
                ThreadProfilingFeatures::SAMPLING,
            );
            thread
                .unlocked_rw_for_locked_profiler()
                .set_profiling_features(session, features, data, &lock);
        }
        let round = EventWatches::begin_round(monotonic_now(), || WatchWork::Idle)
            .expect("there is a watch");
        assert!(round.due.is_empty(), "the answer would not be recorded");

        let mut due = due_on_post();
        let mut held = due.pop().expect("the first is due at once");
        assert!(due_on_post().is_empty(), "this test holds it");
        (held.post)(held.probed.post(monotonic_now()));
        assert!(EventWatches::put_back(held).is_none());
        assert!(due_on_post().is_empty(), "its answer is not recorded");
        let probed = EventWatches::probed_loops().pop().expect("one");
        probed.set_recorded(probed.unrecorded().expect("answered"));
        let held = due_on_post().pop().expect("due again");
        assert!(EventWatches::remove(id).is_none(), "its holder drops it");
        assert!(EventWatches::put_back(held).is_some());

        assert!(
            EventWatches::begin_round(monotonic_now(), || unreachable!("the list is empty"))
                .is_none()
        );
        let (_, over) = EventWatches::add(thread.clone(), Box::new(drop));
        assert!(
            over.is_empty() && EventWatches::claim_watcher(0),
            "the last watcher has ended"
        );
        assert!(EventWatches::begin_round(monotonic_now(), || WatchWork::End).is_none());
        unregister_current_thread();
        let (id, over) = EventWatches::add(thread, Box::new(drop));
        assert_eq!(
            (over.len(), EventWatches::probed_loops().len()),
            (1, 1),
            "the thread has unregistered"
        );
        assert!(EventWatches::remove(id).is_some() && EventWatches::probed_loops().is_empty());
    }
}
