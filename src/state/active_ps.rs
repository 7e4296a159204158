//! What is known while the profiler runs.

use std::sync::Arc;

use crate::base::PsCell;
use crate::state::session::Session;

/// The sampler, as far as the state needs to know it.
pub(crate) trait RunningSampler: Send {
    /// Waits until the sampler thread touches nothing of the session's any more: it has ended, which it does within one
    /// step of its sleep once the session says stop, or it is in a callback. Not under the `PsLock`.
    fn join(self: Box<Self>);
}

/// A running session and its sampler.
#[doc(alias = "ActivePS")]
pub(crate) struct ActivePs {
    /// Which session of the process.
    pub(crate) generation: u64,
    pub(crate) session: Arc<Session>,
    pub(crate) sampler: Box<dyn RunningSampler>,
}

/// `None` while the profiler is not running.
pub(crate) static ACTIVE_PS: PsCell<Option<ActivePs>> = PsCell::new(None);

impl ActivePs {
    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    pub(crate) fn session(&self) -> Arc<Session> {
        Arc::clone(&self.session)
    }
}
