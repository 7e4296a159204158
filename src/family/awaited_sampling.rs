//! An order of the parent to answer once the sampler has run.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::family::reports::Report;
use crate::session::running_session;
use crate::state::Session;

/// An order that was not answered.
#[derive(Debug)]
pub(super) struct AwaitedSampling {
    order: u64,
    session: Arc<Session>,
    /// Number of the sampler's ticks after which the order is answered.
    ticks: u64,
}

impl AwaitedSampling {
    /// Begins to wait. Returns `None` if no session runs.
    pub(super) fn new(order: u64) -> Option<Self> {
        let (_, session) = running_session()?;
        // The tick in progress may have begun before the order.
        let ticks = session.counts.ticks.load(Ordering::Relaxed) + 2;
        Some(Self {
            order,
            session,
            ticks,
        })
    }

    /// Returns the answer, if it is time.
    pub(super) fn look(&self) -> Option<Report<'static>> {
        if self.session.counts.ticks.load(Ordering::Relaxed) >= self.ticks {
            return Some(Self::answer(self.order, true));
        }
        let is_running =
            running_session().is_some_and(|(generation, _)| generation == self.session.generation);
        (!is_running).then(|| Self::answer(self.order, false))
    }

    pub(super) fn answer(order: u64, has_sampled: bool) -> Report<'static> {
        let failure = (!has_sampled).then(|| "its sampler has not run".to_owned());
        Report::Done { id: order, failure }
    }
}
