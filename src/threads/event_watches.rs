//! The event loops that are watched by probes, and how each of them is given one.
//!
//! The host's functions are called, and dropped, under no lock: they are taken out for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::base::{Guard, LockRank, NamedMutex, TimeStamp};
use crate::threads::probed_loop::{ProbeToken, ProbedLoop};
use crate::threads::registration::{OffThreadRef, OnThreadRef};

/// The host's way to put a probe into its loop's queue.
pub(crate) type PostProbe = Box<dyn FnMut(ProbeToken) + Send>;

struct Watch {
    id: u64,
    probed: Arc<ProbedLoop>,
    /// `None` while the watcher has it.
    post: Option<PostProbe>,
}

/// All of them.
pub(crate) struct EventWatches {
    list: Vec<Watch>,
    last_id: u64,
    /// Whether there is a thread that posts the probes.
    has_watcher: bool,
    /// How long a loop is left alone after it has answered.
    pause_ns: u64,
}

/// A watch whose probe is due, in the hands of the watcher.
pub(crate) struct DueWatch {
    id: u64,
    pub(crate) probed: Arc<ProbedLoop>,
    pub(crate) post: PostProbe,
}

/// What the watcher has to do.
pub(crate) struct WatchRound {
    pub(crate) due: Vec<DueWatch>,
    /// Nobody calls these any more; to be dropped.
    pub(crate) over: Vec<PostProbe>,
}

/// What is to be done of a round.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum WatchWork {
    Post,
    /// Nobody would see the answers.
    Rest,
    /// The watcher is not needed any more.
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
/// Raised with every change of the list.
static VERSION: AtomicU64 = AtomicU64::new(1);

impl EventWatches {
    /// Watches a thread's loop, and gives the watch's number, and what is to be dropped of watches that are over.
    pub(crate) fn add(thread: OffThreadRef, post: PostProbe) -> (u64, Vec<PostProbe>) {
        let probed = Arc::new(ProbedLoop::new(thread));
        let mut watches = WATCHES.lock();
        let over = watches.sweep();
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

    /// Takes those out that are over. The watcher sees to one that it has in its hands.
    fn sweep(&mut self) -> Vec<PostProbe> {
        let before = self.list.len();
        let over = self.list.extract_if(.., |watch| watch.probed.is_over());
        let over = over.filter_map(|watch| watch.post).collect();
        if self.list.len() != before {
            VERSION.fetch_add(1, Ordering::Release);
        }
        over
    }

    /// Ends a watch. What is given is to be dropped.
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

    /// True when the caller is to make the watcher, since there is none and there is something to watch.
    pub(crate) fn claim_watcher(pause_ns: u64) -> bool {
        let mut watches = WATCHES.lock();
        watches.pause_ns = pause_ns;
        let is_wanted = !watches.has_watcher && !watches.list.is_empty();
        watches.has_watcher |= is_wanted;
        is_wanted
    }

    /// It could not be made.
    pub(crate) fn give_watcher_up() {
        WATCHES.lock().has_watcher = false;
    }

    /// What the watcher has to do now; `None` when it is to end, as nobody needs it: what `work` says is asked under the lock, so
    /// that who claims one after has another.
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
            over: watches.sweep(),
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

    /// After the probe was posted. What is given is to be dropped: the watch has ended meanwhile.
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

    /// After the host's function has panicked: the watch ends. What is given is to be dropped.
    pub(crate) fn discard(due: DueWatch) -> Option<PostProbe> {
        Self::remove(due.id);
        Some(due.post)
    }

    /// Holds them still while the process forks.
    pub(crate) fn hold_for_fork() -> Guard<'static, EventWatches> {
        WATCHES.lock()
    }

    /// In the child of a fork: of all threads only the calling one is left, and so are its watches, if the watcher had none
    /// in its hands.
    pub(crate) fn keep_only_current_thread(mut guard: Guard<'static, EventWatches>) {
        let serial = OnThreadRef::with(|thread| thread.to_off_thread().serial());
        let watches = &mut *guard;
        let is_kept =
            |watch: &Watch| Some(watch.probed.thread.serial()) == serial && watch.post.is_some();
        let (kept, gone) = watches.list.drain(..).partition(is_kept);
        watches.list = kept;
        let gone: Vec<Watch> = gone;
        // What they hold may be half changed.
        std::mem::forget(gone);
        watches.has_watcher = false;
        VERSION.fetch_add(1, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::{Generation, PsLock, ThreadProfilingFeatures};
    use crate::platform::monotonic_now;
    use crate::threads::ProfiledThreadData;
    use crate::threads::registration::{
        RegistrationHooks, register_current_thread, unregister_current_thread,
    };

    fn due_on_post() -> Vec<DueWatch> {
        EventWatches::begin_round(monotonic_now(), || WatchWork::Post)
            .expect("there is a watch")
            .due
    }

    // The only test of the one list.
    #[test]
    fn a_watch_is_in_one_hand_at_a_time() {
        register_current_thread("watched", RegistrationHooks::NONE);
        let thread = OnThreadRef::with(|thread| thread.to_off_thread()).expect("registered");
        assert!(!EventWatches::claim_watcher(0), "there is nothing to watch");
        let (id, _) = EventWatches::add(thread.clone(), Box::new(ProbeToken::answer));
        assert!(
            EventWatches::claim_watcher(0) && !EventWatches::claim_watcher(0),
            "one is enough"
        );
        assert!(due_on_post().is_empty(), "nobody profiles the thread");
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
                .locked_rw_from_any_thread()
                .set_profiling_features(session, features, data, &lock);
        }
        let round = EventWatches::begin_round(monotonic_now(), || WatchWork::Rest)
            .expect("there is a watch");
        assert!(round.due.is_empty(), "nobody would see it");

        let mut due = due_on_post();
        let mut mine = due.pop().expect("the first is due at once");
        assert!(due_on_post().is_empty(), "it is in this hand");
        (mine.post)(mine.probed.post(monotonic_now()));
        assert!(EventWatches::put_back(mine).is_none());
        assert!(due_on_post().is_empty(), "its answer is not recorded");
        let probed = EventWatches::probed_loops().pop().expect("one");
        probed.set_recorded(probed.unrecorded().expect("answered"));
        let mine = due_on_post().pop().expect("due again");
        assert!(
            EventWatches::remove(id).is_none(),
            "whoever has it drops it"
        );
        assert!(EventWatches::put_back(mine).is_some());

        assert!(
            EventWatches::begin_round(monotonic_now(), || unreachable!("there is nothing"))
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
            "the thread is gone"
        );
        assert!(EventWatches::remove(id).is_some() && EventWatches::probed_loops().is_empty());
    }
}
