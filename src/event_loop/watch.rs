//! The event loops that are watched by probes, and the rounds in which the watcher thread posts the
//! probes.
//!
//! The application's callbacks are called and dropped while no lock is held: they are taken out of
//! the list first.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::event_loop::probe::{ProbeToken, ProbedLoop};
use crate::threads::{OffThreadRef, OnThreadRef};
use crate::types::TimeStamp;
use crate::util::{Guard, LockRank, NamedMutex};

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
    use crate::platform::monotonic_now;
    use crate::threads::ProfiledThreadData;
    use crate::threads::{RegistrationHooks, register_current_thread, unregister_current_thread};
    use crate::types::{Generation, ThreadProfilingFeatures};
    use crate::util::PsLock;

    fn due_on_post() -> Vec<DueWatch> {
        EventWatches::begin_round(monotonic_now(), || WatchWork::Post)
            .expect("there is a watch")
            .due
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
