//! The running session, and the lock under which sessions begin and end.

use std::sync::Arc;

use crate::state::{ACTIVE_PS, Session};
use crate::types::{Generation, StartError};
use crate::util::{LockRank, NamedMutex, PsLock};

/// Serializes start, stop and fork. Held while the sampler is joined.
pub(crate) static LIFE_CYCLE: NamedMutex<()> =
    NamedMutex::new("life cycle", LockRank::Lifecycle, ());

/// Returns the generation of the running session.
pub(crate) fn running_generation() -> Option<Generation> {
    running_session().map(|(running, _)| running)
}

/// Returns the running session.
pub(crate) fn running_session() -> Option<(Generation, Arc<Session>)> {
    let lock = PsLock::acquire();
    let active = ACTIVE_PS.get(&lock).as_ref()?;
    Some((active.generation(), active.session()))
}

/// Returns the error for a call that would deadlock, because its thread already holds one of the
/// profiler's locks.
///
/// Such a call comes from code that runs inside the profiler's own work, such as the application's
/// allocator, or from a fork handler of the application that runs between the profiler's own ones.
pub(crate) fn reentrancy_error() -> StartError {
    StartError::System {
        action: "take the profiler's locks",
        answer: "this thread already holds one, because the call comes from within the profiler's \
                 own work or a fork; see profiler_is_locked_on_current_thread"
            .to_owned(),
    }
}
