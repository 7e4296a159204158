//! What is known of a registered thread, and the ladder of those who may touch it.
//!
//! The data are private to this file. Each rung of the ladder gives what its holder may touch, and, by `Deref`, what the
//! rung below gives; a holder comes to a rung by [`OnThreadRef`] or [`OffThreadRef`] alone, since only `registration.rs`,
//! where these two are, comes from them to the data. So whoever breaks a rule of the table does not compile, outside of this
//! file and that one; `tests/rules` shows each. They alone are to be read for it: `registration.rs` must make the rungs of
//! the own thread for [`OnThreadRef`] alone. What is the registry's, `OffThreadRef` gives all of `threads`; there debug
//! builds assert that the registry's lock is held.
//!
//! | rung | proof | gives |
//! |---|---|---|
//! | [`UnlockedConstReader`] | none | what never changes |
//! | [`UnlockedConstReaderAndAtomicRw`] | none | the atomics, read |
//! | [`UnlockedRwForLockedProfiler`] | a [`PsLock`], with each call | what the session keeps of the thread |
//! | [`UnlockedReaderAndAtomicRwOnThread`] | is made on the thread alone | the atomics that the thread writes of itself |
//! | [`LockedRwFromAnyThread`] | the thread's data lock | what a session records of it, changed |
//! | [`LockedRwOnThread`] | the data lock, on the thread | what the thread changes of itself while others may hold to it |
//!
//! Today the data lock is taken only under the `PsLock`, so nobody ever waits for it; what it guards would be as safe by the
//! `PsLock` alone. It is there for those who will come without that.
//!
//! [`OnThreadRef`]: crate::threads::OnThreadRef
//! [`OffThreadRef`]: crate::threads::OffThreadRef

use std::cell::Cell;
use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use crate::base::{
    Generation, Guard, LockRank, NamedMutex, PsCell, PsLock, ThreadId, ThreadProfilingFeatures,
    TimeStamp,
};
use crate::platform::current_thread_id;
use crate::threads::profiled_thread_data::ProfiledThreadData;
use crate::threads::profiling_word::ProfilingWord;
use crate::threads::registry::ThreadRegistry;
use crate::threads::slot_pool::SlotHandle;

/// What never changes of a registration.
#[derive(Debug)]
pub(crate) struct ThreadRegistrationInfo {
    /// Which registration of the process; entries name their thread by it, since the kernel uses its ids again.
    pub(crate) serial: u64,
    pub(crate) name: String,
    pub(crate) is_main: bool,
    pub(crate) registered_at: TimeStamp,
}

/// All that is known of a registered thread.
#[derive(Debug)]
pub(super) struct ThreadRegistrationData {
    /// Written when it is made. Read by anyone.
    info: ThreadRegistrationInfo,
    /// Written when it is made. Read by anyone. The thread owns its slot, and the sampler while it samples it; a dead thread's
    /// serves another.
    slot: Weak<SlotHandle>,
    /// Written by the own thread under the data lock, in the child of a fork. Read by anyone.
    tid: AtomicI32,
    /// Written by the own thread: raised when it says that it goes to sleep, and when it says that it is awake; odd while
    /// it sleeps. Read by anyone.
    announced: AtomicU32,
    /// Written under the registry's lock, once. Read by anyone; 0 while the thread is registered.
    unregistered_at: AtomicU64,
    /// Written under the `PsLock` and the data lock. Read by anyone: what the running session records of the thread.
    profiling: ProfilingWord,
    /// Written and read under the registry's lock: where in its list the thread stands.
    registry_index: AtomicUsize,
    /// Written and read under the `PsLock`; there are some exactly while `profiling` names a session.
    profiled: PsCell<Cell<Option<ProfiledThreadData>>>,
    /// The thread's data lock.
    data_lock: NamedMutex<()>,
}

impl ThreadRegistrationData {
    /// Of the calling thread.
    pub(super) fn new(info: ThreadRegistrationInfo, slot: Option<&Arc<SlotHandle>>) -> Self {
        Self {
            info,
            slot: slot.map_or_else(Weak::new, Arc::downgrade),
            tid: AtomicI32::new(current_thread_id().to_number()),
            announced: AtomicU32::new(0),
            unregistered_at: AtomicU64::new(0),
            profiling: ProfilingWord::new(),
            registry_index: AtomicUsize::new(usize::MAX),
            profiled: PsCell::new(Cell::new(None)),
            data_lock: NamedMutex::new("thread data", LockRank::ThreadData, ()),
        }
    }

    /// Where in the registry's list the thread stands. For the registry alone, under its lock.
    pub(super) fn registry_index(&self) -> usize {
        debug_assert!(ThreadRegistry::is_locked_exclusive_on_current_thread());
        self.registry_index.load(Ordering::Relaxed)
    }

    /// For the registry alone, under its lock.
    pub(super) fn set_registry_index(&self, index: usize) {
        debug_assert!(ThreadRegistry::is_locked_exclusive_on_current_thread());
        self.registry_index.store(index, Ordering::Relaxed);
    }

    /// For the registry alone, under its lock.
    pub(super) fn set_unregistered(&self, at: TimeStamp) {
        debug_assert!(ThreadRegistry::is_locked_exclusive_on_current_thread());
        self.unregistered_at.store(at.0.max(1), Ordering::Release);
    }

    pub(super) fn unlocked_const_reader(&self) -> UnlockedConstReader<'_> {
        UnlockedConstReader(self)
    }

    pub(super) fn unlocked_const_reader_and_atomic_rw(&self) -> UnlockedConstReaderAndAtomicRw<'_> {
        UnlockedConstReaderAndAtomicRw(self.unlocked_const_reader())
    }

    pub(super) fn unlocked_rw_for_locked_profiler(&self) -> UnlockedRwForLockedProfiler<'_> {
        UnlockedRwForLockedProfiler(self.unlocked_const_reader_and_atomic_rw())
    }

    /// For `OnThreadRef` alone.
    pub(super) fn unlocked_reader_and_atomic_rw_on_thread(
        &self,
    ) -> UnlockedReaderAndAtomicRwOnThread<'_> {
        UnlockedReaderAndAtomicRwOnThread {
            below: self.unlocked_rw_for_locked_profiler(),
            own_thread: PhantomData,
        }
    }

    pub(super) fn locked_rw_from_any_thread(&self) -> LockedRwFromAnyThread<'_> {
        LockedRwFromAnyThread {
            below: self.unlocked_rw_for_locked_profiler(),
            _data_lock: self.data_lock.lock(),
        }
    }

    /// For `OnThreadRef` alone.
    pub(super) fn locked_rw_on_thread(&self) -> LockedRwOnThread<'_> {
        LockedRwOnThread {
            below: self.locked_rw_from_any_thread(),
            own_thread: PhantomData,
        }
    }
}

/// What anyone may read at any time: it never changes.
#[doc(alias = "ThreadRegistrationUnlockedConstReader")]
#[derive(Clone, Copy, Debug)]
pub(crate) struct UnlockedConstReader<'r>(&'r ThreadRegistrationData);

impl<'r> UnlockedConstReader<'r> {
    /// Written when the thread registered. Read by anyone. Under nothing.
    pub(crate) fn info(&self) -> &'r ThreadRegistrationInfo {
        &self.0.info
    }

    /// Where the thread's stacks are captured to; `None` when it is gone, or when the system had no memory for one or
    /// could not tell the stack's bounds: such a thread has markers and no stacks.
    ///
    /// Written when the thread registered. Read by anyone. Under nothing; the slot itself says who may write it.
    #[doc(alias = "PlatformDataCRef")]
    pub(crate) fn slot(&self) -> Option<Arc<SlotHandle>> {
        self.0.slot.upgrade()
    }
}

/// What anyone may read at any time, and what may be out of date at once.
#[doc(alias = "ThreadRegistrationUnlockedConstReaderAndAtomicRW")]
#[derive(Clone, Copy, Debug)]
pub(crate) struct UnlockedConstReaderAndAtomicRw<'r>(UnlockedConstReader<'r>);

impl UnlockedConstReaderAndAtomicRw<'_> {
    /// Written by the own thread under the data lock, in the child of a fork. Read by anyone. Under nothing.
    pub(crate) fn tid(&self) -> ThreadId {
        ThreadId::from_number(self.0.0.tid.load(Ordering::Relaxed))
    }

    /// Which of its announced sleeps the thread is in.
    ///
    /// Written by the own thread. Read by anyone. Under nothing.
    #[doc(alias = "IsSleeping")]
    pub(crate) fn announced_sleep(&self) -> Option<u32> {
        Some(self.0.0.announced.load(Ordering::Relaxed)).filter(|announced| announced % 2 == 1)
    }

    /// When the thread was unregistered, or found dead.
    ///
    /// Written once, under the registry's lock. Read by anyone. Under nothing.
    pub(crate) fn unregistered_at(&self) -> Option<TimeStamp> {
        Some(self.0.0.unregistered_at.load(Ordering::Acquire))
            .filter(|&ns| ns != 0)
            .map(TimeStamp)
    }

    /// What the running session records of the thread.
    ///
    /// Written under the `PsLock` and the data lock. Read by anyone. Under nothing.
    pub(crate) fn profiling_features(&self) -> ThreadProfilingFeatures {
        self.0.0.profiling.features()
    }

    /// The session that records any of this of the thread.
    ///
    /// Written under the `PsLock` and the data lock. Read by anyone. Under nothing.
    pub(crate) fn session_that_records(
        &self,
        any_of: ThreadProfilingFeatures,
    ) -> Option<Generation> {
        self.0.0.profiling.session_that_records(any_of)
    }
}

impl<'r> Deref for UnlockedConstReaderAndAtomicRw<'r> {
    type Target = UnlockedConstReader<'r>;
    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

/// What the holder of the `PsLock` may read, and change.
#[doc(alias = "ThreadRegistrationUnlockedRWForLockedProfiler")]
#[derive(Clone, Copy, Debug)]
pub(crate) struct UnlockedRwForLockedProfiler<'r>(UnlockedConstReaderAndAtomicRw<'r>);

impl<'r> UnlockedRwForLockedProfiler<'r> {
    /// What the session keeps of the thread, if there is one that records any of it.
    ///
    /// Written and read by anyone. Under the `PsLock`.
    #[doc(alias = "GetProfiledThreadData")]
    pub(crate) fn profiled_thread_data(&self, lock: &PsLock) -> Option<ProfiledThreadData> {
        self.data().profiled.get(lock).get()
    }

    /// Changes what the session keeps of the thread, if there is one that records any of it.
    ///
    /// Written and read by anyone. Under the `PsLock`.
    pub(crate) fn update_profiled_thread_data(
        &self,
        lock: &PsLock,
        update: impl FnOnce(&mut ProfiledThreadData),
    ) {
        let place = self.data().profiled.get(lock);
        if let Some(mut data) = place.get() {
            update(&mut data);
            place.set(Some(data));
        }
    }

    fn data(&self) -> &'r ThreadRegistrationData {
        self.0.0.0
    }
}

impl<'r> Deref for UnlockedRwForLockedProfiler<'r> {
    type Target = UnlockedConstReaderAndAtomicRw<'r>;
    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

/// What the thread writes of itself. It stays on the thread.
#[doc(alias = "ThreadRegistrationUnlockedReaderAndAtomicRWOnThread")]
#[derive(Clone, Copy, Debug)]
pub(crate) struct UnlockedReaderAndAtomicRwOnThread<'r> {
    below: UnlockedRwForLockedProfiler<'r>,
    own_thread: PhantomData<*const ()>,
}

impl UnlockedReaderAndAtomicRwOnThread<'_> {
    /// Says that the thread goes to sleep, or is awake; to say the same again changes nothing.
    ///
    /// Written by the own thread. Read by anyone. Under nothing.
    #[doc(alias = "SetSleeping")]
    #[doc(alias = "SetAwake")]
    pub(crate) fn announce(&self, sleeps: bool) {
        let announced = &self.below.data().announced;
        let before = announced.load(Ordering::Relaxed);
        if (before % 2 == 1) != sleeps {
            announced.store(before.wrapping_add(1), Ordering::Relaxed);
        }
    }
}

impl<'r> Deref for UnlockedReaderAndAtomicRwOnThread<'r> {
    type Target = UnlockedRwForLockedProfiler<'r>;
    fn deref(&self) -> &Self::Target {
        &self.below
    }
}

/// What whoever holds the thread's data lock may change. In Gecko this rung stands above the one on the thread; here it
/// does not, so that nobody else comes to what the thread writes of itself.
#[doc(alias = "ThreadRegistrationLockedRWFromAnyThread")]
#[derive(Debug)]
pub(crate) struct LockedRwFromAnyThread<'r> {
    below: UnlockedRwForLockedProfiler<'r>,
    _data_lock: Guard<'r, ()>,
}

impl<'r> LockedRwFromAnyThread<'r> {
    /// A session records this of the thread from now on. Nothing is [`Self::clear_profiling_features`].
    ///
    /// Written by anyone. Under the `PsLock` and the data lock.
    #[doc(alias = "SetProfilingFeaturesAndData")]
    pub(crate) fn set_profiling_features(
        &mut self,
        session: Generation,
        features: ThreadProfilingFeatures,
        data: ProfiledThreadData,
        lock: &PsLock,
    ) {
        let data_of_thread = self.below.data();
        data_of_thread.profiled.get(lock).set(Some(data));
        data_of_thread.profiling.set(session, features);
    }

    /// No session records anything of the thread any more.
    ///
    /// Written by anyone. Under the `PsLock` and the data lock.
    #[doc(alias = "ClearProfilingFeaturesAndData")]
    pub(crate) fn clear_profiling_features(&mut self, lock: &PsLock) {
        let data_of_thread = self.below.data();
        data_of_thread.profiling.clear();
        data_of_thread.profiled.get(lock).set(None);
    }
}

impl<'r> Deref for LockedRwFromAnyThread<'r> {
    type Target = UnlockedRwForLockedProfiler<'r>;
    fn deref(&self) -> &Self::Target {
        &self.below
    }
}

/// What the thread itself may change while it holds its data lock.
#[doc(alias = "ThreadRegistrationLockedRWOnThread")]
#[derive(Debug)]
pub(crate) struct LockedRwOnThread<'r> {
    below: LockedRwFromAnyThread<'r>,
    own_thread: PhantomData<*const ()>,
}

impl LockedRwOnThread<'_> {
    /// In the child of a fork: the thread has a new id, and nobody waits for its slot.
    ///
    /// Written by the own thread. Read by anyone. Under the data lock.
    pub(crate) fn adopt_after_fork(&mut self) {
        self.below
            .below
            .data()
            .tid
            .store(current_thread_id().to_number(), Ordering::Relaxed);
        if let Some(slot) = self.slot() {
            slot.reset_after_fork();
        }
    }
}

impl<'r> Deref for LockedRwOnThread<'r> {
    type Target = LockedRwFromAnyThread<'r>;
    fn deref(&self) -> &Self::Target {
        &self.below
    }
}
