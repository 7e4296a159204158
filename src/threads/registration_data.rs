//! The data of a thread that has registered or that the sampler has found, and the accessors that
//! control which code may use them.
//!
//! The data are private to this file. Each accessor offers some of the data and, by `Deref`,
//! everything that the accessor below it offers. An accessor is obtained only from an
//! [`OnThreadRef`] or an [`OffThreadRef`], because only this folder can reach the data. So outside
//! `threads`, code that breaks a rule of the table does not compile; `tests/rules` shows each case.
//! Only this folder needs a review: `registration.rs` must create the accessors of the thread
//! itself only for [`OnThreadRef`], and only `registry.rs` may use the index in the registry's
//! list. Debug builds assert there that the registry lock is held.
//!
//! | accessor | proof | offers |
//! |---|---|---|
//! | [`UnlockedConstReader`] | none | data that never change |
//! | [`UnlockedConstReaderAndAtomicRw`] | none | reads of the atomics, and the system's name |
//! | [`UnlockedRwForLockedProfiler`] | a [`PsLock`] in each call | what a session records of the thread, and its data about the thread |
//! | [`UnlockedReaderAndAtomicRwOnThread`] | created only on the thread | writes to the thread's own atomics |
//!
//! Gecko has two further accessors, for the holder of the thread's data lock. Here the `PsLock`
//! protects these data instead.
//!
//! [`OnThreadRef`]: crate::threads::registration::OnThreadRef

use std::cell::Cell;
use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use once_cell::race::OnceBox;

use crate::capture::SlotHandle;
use crate::platform::{
    AGE_RESOLUTION_NS, ThreadProbe, current_thread_cpu_ns_in_handler, current_thread_id,
    monotonic_now,
};
use crate::threads::atomic_profiling_state::AtomicProfilingState;
use crate::threads::thread_name::ThreadName;
use crate::types::{Generation, ThreadId, ThreadProfilingFeatures, TimeStamp};
use crate::util::{PsCell, PsLock};

/// Data of a registration that never change.
#[derive(Debug)]
pub(crate) struct ThreadRegistrationInfo {
    /// Number of the registration in this process. Entries identify their thread by it, because the
    /// kernel reuses thread ids.
    pub(crate) serial: u64,
    pub(crate) is_main: bool,
    /// When the thread registered, or was found by the sampler before that.
    pub(crate) registered_at: TimeStamp,
}

/// Session data of a thread. Exists from the moment when the session starts to record the thread
/// until the session drops it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ProfiledThreadData {
    /// Index of the thread in the session's list of live threads.
    pub(crate) live_index: usize,
    /// Buffer position behind the last entry of the thread; `None` while the thread is registered,
    /// and after that until the sampler sets it.
    #[doc(alias = "BufferPositionWhenUnregistered")]
    pub(crate) end_position: Option<u64>,
}

/// All data of a thread that has registered, or that the sampler has found.
#[derive(Debug)]
pub(crate) struct ThreadRegistrationData {
    /// Written on creation. Read by any thread.
    info: ThreadRegistrationInfo,
    /// The given name is written once, by the thread itself; the system's name by the sampler. Read
    /// by any thread.
    name: ThreadName,
    /// Whether the thread has registered, or the sampler has found it. Written once, by the thread
    /// itself. Read by any thread.
    is_registered: AtomicBool,
    /// Written once, by the thread itself. Read by any thread. The thread owns its slot; the sampler
    /// shares the slot while it samples the thread. After the thread has exited, the slot serves
    /// another thread.
    slot: OnceBox<Weak<SlotHandle>>,
    /// Written on creation, and by the thread itself in the child of a fork. Read by any thread.
    tid: AtomicI32,
    /// Time at which the thread had that id, in ns. Written and read like the id.
    had_tid_at: AtomicU64,
    /// Written by the thread itself: incremented when the thread announces that it goes to sleep,
    /// and when it announces that it is awake. Odd while it sleeps. Read by any thread.
    announced: AtomicU32,
    /// Time of unregistration, in ns; 0 while the thread is registered. Written once, under the
    /// registry lock. Read by any thread.
    unregistered_at: AtomicU64,
    /// The thread's CPU clock when it registered, and when it unregistered, in ns; 0 if it has not.
    /// Written once, by the thread itself. Read by any thread.
    cpu_at_begin_ns: AtomicU64,
    cpu_at_end_ns: AtomicU64,
    /// What the running session records of the thread. Written under the `PsLock`. Read by any
    /// thread.
    profiling: AtomicProfilingState,
    /// Number of the last session that may have an entry of the thread; 0 if none has. Written and
    /// read by any thread.
    has_entries_in: AtomicU64,
    /// Index of the thread in the registry's list. Written and read under the registry lock.
    registry_index: AtomicUsize,
    /// Written and read under the `PsLock`. `Some` exactly while `profiling` names a session.
    profiled: PsCell<Cell<Option<ProfiledThreadData>>>,
}

impl ThreadRegistrationData {
    /// Creates the data of the thread with this id. It counts as found by the sampler, until
    /// [`Self::set_registered`].
    pub(crate) fn new(info: ThreadRegistrationInfo, name: ThreadName, tid: ThreadId) -> Self {
        Self {
            had_tid_at: AtomicU64::new(info.registered_at.0),
            info,
            name,
            is_registered: AtomicBool::new(false),
            slot: OnceBox::new(),
            tid: AtomicI32::new(tid.to_number()),
            announced: AtomicU32::new(0),
            unregistered_at: AtomicU64::new(0),
            cpu_at_begin_ns: AtomicU64::new(0),
            cpu_at_end_ns: AtomicU64::new(0),
            profiling: AtomicProfilingState::new(),
            has_entries_in: AtomicU64::new(0),
            registry_index: AtomicUsize::new(usize::MAX),
            profiled: PsCell::new(Cell::new(None)),
        }
    }

    /// Records that the calling thread has registered, and its slot.
    pub(crate) fn set_registered(&self, slot: Option<&Arc<SlotHandle>>) {
        if let Some(slot) = slot {
            // A thread that was registered once is not registered again by the same data.
            let _ = self.slot.set(Box::new(Arc::downgrade(slot)));
        }
        let cpu_ns = current_thread_cpu_ns_in_handler();
        self.cpu_at_begin_ns.store(cpu_ns, Ordering::Relaxed);
        self.is_registered.store(true, Ordering::Release);
    }

    /// Records the CPU clock of the calling thread, which is about to unregister.
    pub(crate) fn note_cpu_at_end(&self) {
        let cpu_ns = current_thread_cpu_ns_in_handler();
        self.cpu_at_end_ns.store(cpu_ns, Ordering::Release);
    }

    /// Sets the name with which the thread registers, unless it has one.
    pub(crate) fn set_given_name(&self, name: String) {
        self.name.set_given(name);
    }

    /// Returns the index in the registry's list. Called only by the registry, under its lock.
    pub(crate) fn registry_index(&self) -> usize {
        self.registry_index.load(Ordering::Relaxed)
    }

    /// Sets the index in the registry's list. Called only by the registry, under its lock.
    pub(crate) fn set_registry_index(&self, index: usize) {
        self.registry_index.store(index, Ordering::Relaxed);
    }

    /// Records when the thread was unregistered. Called only by the registry, under its lock.
    pub(crate) fn set_unregistered(&self, at: TimeStamp) {
        self.unregistered_at.store(at.0.max(1), Ordering::Release);
    }
}

/// A reference to a registered thread, for use on any thread. The thread may have exited; its data
/// stay valid as long as the reference exists. (Gecko's reference is valid only under the registry
/// lock.)
#[derive(Clone, Debug)]
pub(crate) struct OffThreadRef(Arc<ThreadRegistrationData>);

impl OffThreadRef {
    /// Creates a reference to a thread that has not registered. `name` is the system's.
    pub(crate) fn of_found_thread(
        info: ThreadRegistrationInfo,
        name: &str,
        (tid, had_tid_at): (ThreadId, TimeStamp),
    ) -> Self {
        let data = ThreadRegistrationData::new(info, ThreadName::of_system(name), tid);
        data.had_tid_at.store(had_tid_at.0, Ordering::Relaxed);
        Self(Arc::new(data))
    }

    /// Creates a reference to a thread of a process that has ended.
    pub(crate) fn of_past_process(
        info: ThreadRegistrationInfo,
        name: String,
        tid: ThreadId,
        ended_at: Option<TimeStamp>,
    ) -> Self {
        let data = ThreadRegistrationData::new(info, ThreadName::given(name), tid);
        data.set_registered(None);
        if let Some(ended_at) = ended_at {
            data.set_unregistered(ended_at);
        }
        Self(Arc::new(data))
    }

    /// Returns all data of the thread.
    pub(in crate::threads) fn data(&self) -> &ThreadRegistrationData {
        &self.0
    }

    #[doc(alias = "UnlockedConstReaderCRef")]
    pub(crate) fn unlocked_const_reader(&self) -> UnlockedConstReader<'_> {
        UnlockedConstReader(&self.0)
    }

    #[doc(alias = "UnlockedConstReaderAndAtomicRWRef")]
    pub(crate) fn unlocked_const_reader_and_atomic_rw(&self) -> UnlockedConstReaderAndAtomicRw<'_> {
        UnlockedConstReaderAndAtomicRw(self.unlocked_const_reader())
    }

    #[doc(alias = "UnlockedRWForLockedProfilerRef")]
    pub(crate) fn unlocked_rw_for_locked_profiler(&self) -> UnlockedRwForLockedProfiler<'_> {
        UnlockedRwForLockedProfiler(self.unlocked_const_reader_and_atomic_rw())
    }

    /// Returns the accessor of the thread itself. Called only by `OnThreadRef`.
    pub(in crate::threads) fn unlocked_reader_and_atomic_rw_on_thread(
        &self,
    ) -> UnlockedReaderAndAtomicRwOnThread<'_> {
        UnlockedReaderAndAtomicRwOnThread {
            below: self.unlocked_rw_for_locked_profiler(),
            not_send: PhantomData,
        }
    }

    /// Returns the number of the registration in this process.
    pub(crate) fn serial(&self) -> u64 {
        self.unlocked_const_reader().info().serial
    }

    /// Returns the thread's id, as [`UnlockedConstReaderAndAtomicRw::tid`].
    pub(crate) fn tid(&self) -> ThreadId {
        self.unlocked_const_reader_and_atomic_rw().tid()
    }

    /// Returns when the thread ended, as [`UnlockedConstReaderAndAtomicRw::unregistered_at`].
    pub(crate) fn unregistered_at(&self) -> Option<TimeStamp> {
        self.unlocked_const_reader_and_atomic_rw().unregistered_at()
    }

    /// Records when a thread was found to have ended that has not registered. Called once.
    pub(crate) fn set_found_ended(&self, at: TimeStamp) {
        self.0.set_unregistered(at);
    }

    /// Returns whether `probe`, which asks about the thread with this id, asks about this thread. A
    /// thread that started later is another one: this one has ended unnoticed, and the system has given
    /// its id away.
    pub(crate) fn is_thread_of(&self, probe: &ThreadProbe) -> bool {
        let had_tid_at = self.unlocked_const_reader_and_atomic_rw().had_tid_at();
        // Read before the age: in between, the calling thread may wait long for a processor.
        let had_tid_for_ns = monotonic_now().since_ns(had_tid_at);
        let is_old = |age_ns: u64| age_ns.saturating_add(AGE_RESOLUTION_NS) >= had_tid_for_ns;
        probe.age_ns().is_none_or(is_old)
    }

    /// Returns whether both refer to the same registration.
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// Accessor to data that any thread may read at any time, because they never change.
#[doc(alias = "ThreadRegistrationUnlockedConstReader")]
#[derive(Clone, Copy, Debug)]
pub(crate) struct UnlockedConstReader<'r>(&'r ThreadRegistrationData);

impl<'r> UnlockedConstReader<'r> {
    /// Returns the data that never change.
    ///
    /// Written on registration. Read by any thread. Lock: none.
    pub(crate) fn info(&self) -> &'r ThreadRegistrationInfo {
        &self.0.info
    }

    /// Returns the size of the registration's data in memory, in bytes. It includes the allocator's
    /// overhead, and the slot's handle, whose memory the registration keeps.
    ///
    /// Written on registration. Read by any thread. Lock: none.
    pub(crate) fn data_bytes(&self) -> u64 {
        const ALLOCATIONS: usize = 4;
        const BYTES: usize = size_of::<ThreadRegistrationData>()
            + size_of::<SlotHandle>()
            + ALLOCATIONS * (2 * size_of::<usize>() + 16);
        (BYTES + self.0.name.bytes()) as u64
    }

    /// Returns the slot into which the thread's stacks are captured; `None` when the thread has
    /// exited or has not registered. Also `None` when the system had no memory for a slot or could
    /// not report the stack's bounds.
    ///
    /// Written on registration. Read by any thread. Lock: none; the slot itself controls which
    /// thread may write it.
    #[doc(alias = "PlatformDataCRef")]
    pub(crate) fn slot(&self) -> Option<Arc<SlotHandle>> {
        self.0.slot.get()?.upgrade()
    }
}

/// Accessor to data that any thread may read at any time, and that may be out of date immediately.
#[doc(alias = "ThreadRegistrationUnlockedConstReaderAndAtomicRW")]
#[derive(Clone, Copy, Debug)]
pub(crate) struct UnlockedConstReaderAndAtomicRw<'r>(UnlockedConstReader<'r>);

impl UnlockedConstReaderAndAtomicRw<'_> {
    /// Returns the thread's name.
    ///
    /// The given name is written by the thread itself, the system's also by the sampler. Read by any
    /// thread. Lock: none.
    pub(crate) fn name(&self) -> String {
        self.0.0.name.get()
    }

    /// Returns the name that the system reported last.
    ///
    /// Written by the sampler and by the thread itself. Read by any thread. Lock: none.
    pub(crate) fn system_name(&self) -> String {
        self.0.0.name.system()
    }

    /// Returns whether the thread has registered. Otherwise the sampler has found it.
    ///
    /// Written by the thread itself. Read by any thread. Lock: none.
    pub(crate) fn is_registered(&self) -> bool {
        self.0.0.is_registered.load(Ordering::Acquire)
    }

    /// Returns the thread's id.
    ///
    /// Written by the thread itself, in the child of a fork. Read by any thread. Lock: none.
    pub(crate) fn tid(&self) -> ThreadId {
        ThreadId::from_number(self.0.0.tid.load(Ordering::Relaxed))
    }

    /// Returns a time at which the thread had this id: that of its registration, or of the fork whose
    /// child it is in. A thread that started later is another one, to which the system has given the
    /// id.
    ///
    /// Written by the thread itself, in the child of a fork. Read by any thread. Lock: none.
    pub(crate) fn had_tid_at(&self) -> TimeStamp {
        TimeStamp(self.0.0.had_tid_at.load(Ordering::Relaxed))
    }

    /// Returns the number of the announced sleep that the thread is in; `None` while it is awake.
    ///
    /// Written by the thread itself. Read by any thread. Lock: none.
    #[doc(alias = "IsSleeping")]
    pub(crate) fn announced_sleep(&self) -> Option<u32> {
        Some(self.0.0.announced.load(Ordering::Relaxed)).filter(|announced| announced % 2 == 1)
    }

    /// Returns when the thread was unregistered, or found to have exited; `None` while it is
    /// registered.
    ///
    /// Written once, under the registry lock. Read by any thread. Lock: none.
    pub(crate) fn unregistered_at(&self) -> Option<TimeStamp> {
        Some(self.0.0.unregistered_at.load(Ordering::Acquire))
            .filter(|&ns| ns != 0)
            .map(TimeStamp)
    }

    /// Returns the thread's CPU clock when it registered, in ns; `None` if it has not.
    ///
    /// Written by the thread itself. Read by any thread. Lock: none.
    pub(crate) fn cpu_at_begin_ns(&self) -> Option<u64> {
        Some(self.0.0.cpu_at_begin_ns.load(Ordering::Relaxed)).filter(|&ns| ns != 0)
    }

    /// Returns the thread's CPU clock when it unregistered, in ns; `None` if it has not.
    ///
    /// Written by the thread itself. Read by any thread. Lock: none.
    pub(crate) fn cpu_at_end_ns(&self) -> Option<u64> {
        Some(self.0.0.cpu_at_end_ns.load(Ordering::Acquire)).filter(|&ns| ns != 0)
    }

    /// Returns what the running session records of the thread.
    ///
    /// Written under the `PsLock`. Read by any thread. Lock: none.
    pub(crate) fn profiling_features(&self) -> ThreadProfilingFeatures {
        self.0.0.profiling.features()
    }

    /// Returns the session that records any of these features of the thread.
    ///
    /// Written under the `PsLock`. Read by any thread. Lock: none.
    pub(crate) fn session_that_records(
        &self,
        any_of: ThreadProfilingFeatures,
    ) -> Option<Generation> {
        self.0.0.profiling.session_that_records(any_of)
    }

    /// Returns the session that records any of these features of the thread, for an entry that the
    /// caller then writes, and notes that entry.
    ///
    /// Written and read by any thread. Lock: none.
    #[inline(always)]
    pub(crate) fn begin_entry(&self, any_of: ThreadProfilingFeatures) -> Option<Generation> {
        let session = self.session_that_records(any_of)?;
        self.note_entry(session);
        Some(session)
    }

    /// Notes that a session may have an entry of the thread.
    ///
    /// Written by any thread. Lock: none.
    #[inline(always)]
    pub(crate) fn note_entry(&self, session: Generation) {
        let has_entries_in = &self.0.0.has_entries_in;
        // Markers of one session write to the cache line once.
        if has_entries_in.load(Ordering::Relaxed) != session.to_number() {
            has_entries_in.store(session.to_number(), Ordering::Relaxed);
        }
    }

    /// Returns whether a session may have an entry of the thread.
    ///
    /// Written and read by any thread. Lock: none.
    pub(crate) fn has_entries_in(&self, session: Generation) -> bool {
        self.0.0.has_entries_in.load(Ordering::Relaxed) == session.to_number()
    }
}

impl<'r> Deref for UnlockedConstReaderAndAtomicRw<'r> {
    type Target = UnlockedConstReader<'r>;
    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

/// Accessor to data that the holder of the `PsLock` may read and change.
#[doc(alias = "ThreadRegistrationUnlockedRWForLockedProfiler")]
#[derive(Clone, Copy, Debug)]
pub(crate) struct UnlockedRwForLockedProfiler<'r>(UnlockedConstReaderAndAtomicRw<'r>);

impl<'r> UnlockedRwForLockedProfiler<'r> {
    /// Returns the session's data about the thread; `None` when no session records it.
    ///
    /// Written and read by any thread. Lock: the `PsLock`.
    #[doc(alias = "GetProfiledThreadData")]
    pub(crate) fn profiled_thread_data(&self, lock: &PsLock) -> Option<ProfiledThreadData> {
        self.data().profiled.get(lock).get()
    }

    /// Changes the session's data about the thread. Does nothing when no session records it.
    ///
    /// Written and read by any thread. Lock: the `PsLock`.
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

    /// Sets the name that the system reports. Returns false if that is the one it had.
    ///
    /// Written by the sampler and by the thread itself. Lock: the `PsLock`.
    pub(crate) fn set_system_name(&self, name: &str, lock: &PsLock) -> bool {
        self.data().name.set_system(name, lock)
    }

    /// Sets what a session records of the thread. To record nothing, call
    /// [`Self::clear_profiling_features`].
    ///
    /// Written by any thread. Lock: the `PsLock`.
    #[doc(alias = "SetProfilingFeaturesAndData")]
    pub(crate) fn set_profiling_features(
        &self,
        session: Generation,
        features: ThreadProfilingFeatures,
        data: ProfiledThreadData,
        lock: &PsLock,
    ) {
        let data_of_thread = self.data();
        data_of_thread.profiled.get(lock).set(Some(data));
        data_of_thread.profiling.set(session, features);
    }

    /// Ends the recording of the thread.
    ///
    /// Written by any thread. Lock: the `PsLock`.
    #[doc(alias = "ClearProfilingFeaturesAndData")]
    pub(crate) fn clear_profiling_features(&self, lock: &PsLock) {
        let data_of_thread = self.data();
        data_of_thread.profiling.clear();
        data_of_thread.profiled.get(lock).set(None);
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

/// Accessor to the atomics that the thread itself writes. It cannot leave the thread.
#[doc(alias = "ThreadRegistrationUnlockedReaderAndAtomicRWOnThread")]
#[derive(Clone, Copy, Debug)]
pub(crate) struct UnlockedReaderAndAtomicRwOnThread<'r> {
    below: UnlockedRwForLockedProfiler<'r>,
    not_send: PhantomData<*const ()>,
}

impl UnlockedReaderAndAtomicRwOnThread<'_> {
    /// Announces that the thread goes to sleep, or that it is awake. Repeating the same
    /// announcement has no effect.
    ///
    /// Written by the thread itself. Read by any thread. Lock: none.
    #[doc(alias = "SetSleeping")]
    #[doc(alias = "SetAwake")]
    pub(crate) fn announce(&self, is_asleep: bool) {
        let announced = &self.below.data().announced;
        let before = announced.load(Ordering::Relaxed);
        if (before % 2 == 1) != is_asleep {
            announced.store(before.wrapping_add(1), Ordering::Relaxed);
        }
    }

    /// Updates the thread in the child of a fork: sets its new id, and resets its slot, for which
    /// no request is pending.
    ///
    /// Written by the thread itself. Read by any thread. Lock: none.
    pub(crate) fn adopt_after_fork(&self) {
        let tid = &self.below.data().tid;
        tid.store(current_thread_id().to_number(), Ordering::Relaxed);
        let had_tid_at = &self.below.data().had_tid_at;
        had_tid_at.store(monotonic_now().0, Ordering::Relaxed);
        if let Some(slot) = self.slot() {
            slot.state.reset_after_fork();
            slot.unlink_batch();
        }
    }
}

impl<'r> Deref for UnlockedReaderAndAtomicRwOnThread<'r> {
    type Target = UnlockedRwForLockedProfiler<'r>;
    fn deref(&self) -> &Self::Target {
        &self.below
    }
}
