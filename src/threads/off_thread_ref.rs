//! References to threads that have registered or that the sampler has found, for use on any thread.

use std::sync::Arc;

use crate::threads::registration_data::{
    ThreadRegistrationData, ThreadRegistrationInfo, UnlockedConstReader,
    UnlockedConstReaderAndAtomicRw, UnlockedRwForLockedProfiler,
};
use crate::threads::thread_name::ThreadName;
use crate::types::{ThreadId, TimeStamp};

/// A reference to a registered thread, for use on any thread. The thread may have exited; its data
/// stay valid as long as the reference exists. (Gecko's reference is valid only under the registry
/// lock.)
#[derive(Clone, Debug)]
pub(crate) struct OffThreadRef(Arc<ThreadRegistrationData>);

impl OffThreadRef {
    /// Creates the first reference to a registration.
    pub(in crate::threads) fn new(data: ThreadRegistrationData) -> Self {
        Self(Arc::new(data))
    }

    /// Creates a reference to a thread that has not registered. `name` is the system's.
    pub(crate) fn of_found_thread(
        info: ThreadRegistrationInfo,
        name: &str,
        (tid, had_tid_at): (ThreadId, TimeStamp),
    ) -> Self {
        let data = ThreadRegistrationData::new(info, ThreadName::of_system(name), tid);
        Self::new(data.with_tid_at(had_tid_at))
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
        ended_at
            .into_iter()
            .for_each(|at| data.set_unregistered(at));
        Self::new(data)
    }

    /// Returns all data of the thread.
    pub(in crate::threads) fn data(&self) -> &ThreadRegistrationData {
        &self.0
    }

    #[doc(alias = "UnlockedConstReaderCRef")]
    pub(crate) fn unlocked_const_reader(&self) -> UnlockedConstReader<'_> {
        self.0.unlocked_const_reader()
    }

    #[doc(alias = "UnlockedConstReaderAndAtomicRWRef")]
    pub(crate) fn unlocked_const_reader_and_atomic_rw(&self) -> UnlockedConstReaderAndAtomicRw<'_> {
        self.0.unlocked_const_reader_and_atomic_rw()
    }

    #[doc(alias = "UnlockedRWForLockedProfilerRef")]
    pub(crate) fn unlocked_rw_for_locked_profiler(&self) -> UnlockedRwForLockedProfiler<'_> {
        self.0.unlocked_rw_for_locked_profiler()
    }

    /// Returns the number of the registration in this process.
    pub(crate) fn serial(&self) -> u64 {
        self.unlocked_const_reader().info().serial
    }

    /// Records when a thread was found to have ended that has not registered. Called once.
    pub(crate) fn set_found_ended(&self, at: TimeStamp) {
        self.0.set_unregistered(at);
    }

    /// Returns whether both refer to the same registration.
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}
