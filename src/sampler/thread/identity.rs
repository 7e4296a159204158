//! Whether the thread with a registration's id is still the one that registered.

use crate::platform::{AGE_RESOLUTION_NS, ThreadProbe, monotonic_now};
use crate::state::Session;
use crate::threads::OffThreadRef;

/// Whether the thread with the id is the one that registered. Within a session, a CPU clock that goes
/// back shows another thread. But a thread that registered before the session may have ended
/// unnoticed, and the system may have given its id to another one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Identity {
    Unknown,
    Same,
    Another,
}

impl Identity {
    /// Returns the identity at the time when a session begins to sample the thread.
    pub(super) fn at_start(registration: &OffThreadRef, session: &Session) -> Self {
        let thread = registration.unlocked_const_reader_and_atomic_rw();
        match thread.had_tid_at() < session.started_at {
            true => Self::Unknown,
            false => Self::Same,
        }
    }

    /// Returns whether it is the same thread. The first call asks the kernel when the thread started:
    /// one that started after the registration is another one.
    pub(super) fn is_the_same(&mut self, registration: &OffThreadRef, probe: &ThreadProbe) -> bool {
        if *self == Self::Unknown {
            let thread = registration.unlocked_const_reader_and_atomic_rw();
            let had_id_for_ns = monotonic_now().since_ns(thread.had_tid_at());
            let age_ns = probe.age_ns();
            let is_younger = age_ns
                .is_some_and(|age_ns| age_ns.saturating_add(AGE_RESOLUTION_NS) < had_id_for_ns);
            *self = if is_younger {
                Self::Another
            } else {
                Self::Same
            };
        }
        *self == Self::Same
    }
}
