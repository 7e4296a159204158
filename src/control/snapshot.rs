//! Stop 10 of 12: somebody asks for a profile, and gets the session as it is at this moment.

use std::io::Write;
use std::path::{Path, PathBuf};

use crate::base::{Generation, ProfilingState, PsLock, SaveError};
use crate::control::callbacks::tell;
use crate::control::dump::{save_at, save_profile};
use crate::control::life_cycle::running_session;
use crate::platform::{current_process_id, monotonic_now};
use crate::state::{ACTIVE_PS, CORE_PS, core_buffer};
use crate::stream::{ProfileSource, stream_gecko_json};
use crate::threads::OffThreadRef;

/// A session, frozen; writing it out touches nothing that runs.
#[derive(Clone, Debug)]
pub(crate) struct FrozenProfile {
    source: ProfileSource,
}

/// Freezes the running session, or this one if it runs; `None` when it does not. Under the `PsLock`, for the time of
/// cloning lists; chunks are shared, not copied.
pub(crate) fn freeze(only: Option<Generation>) -> Option<FrozenProfile> {
    let is_asked_for = |running| only.is_none_or(|only| only == running);
    running_session().filter(|(running, _)| is_asked_for(*running))?;
    tell(ProfilingState::GeneratingProfile);
    let (_, session) = running_session().filter(|(running, _)| is_asked_for(*running))?;
    // Without the lock, since the sampler has to come by.
    session.wait_until_all_is_written();
    let lock = PsLock::acquire();
    let active = ACTIVE_PS.get(&lock).as_ref()?;
    if only.is_some_and(|generation| generation != active.generation()) {
        return None;
    }
    let core = CORE_PS.get(&lock).as_ref()?;
    let session = active.session.clone();
    let buffer = core_buffer().snapshot();
    let buffer_start = core_buffer().range().start;
    active.ended_pages.borrow_mut().drop_expired(buffer_start);
    active.exit_profiles.borrow_mut().drop_expired(buffer_start);
    let mut threads = {
        let mut of_session = active.threads.borrow_mut();
        of_session.drop_expired(buffer_start, &lock);
        of_session.all()
    };
    threads.sort_by_key(OffThreadRef::serial);
    let source = ProfileSource {
        process: current_process_id(),
        product: core.product.clone(),
        process_name: core.process_name.clone(),
        etld1: core.etld1.clone(),
        pages: core.pages.iter().chain(active.ended_pages.borrow().iter()).cloned().collect(),
        exit_profiles: active.exit_profiles.borrow().iter().cloned().collect(),
        process_start: core.process_start,
        counts: session.counts.all(),
        taken_at: monotonic_now(),
        threads,
        buffer,
        open_pauses: session.pauses.open(),
        modules: session.modules(),
        generated_code: session.generated_code(),
        session,
    };
    Some(FrozenProfile { source })
}

impl FrozenProfile {
    /// Writes Gecko's JSON.
    pub(crate) fn write(&self, symbolicate: bool, out: &mut dyn Write) -> std::io::Result<()> {
        stream_gecko_json(&self.source, symbolicate, out)
    }

    /// Writes it to a file, and gives that file's path.
    pub(crate) fn save(&self, path: &Path, symbolicate: bool) -> Result<PathBuf, SaveError> {
        save_profile(path, |out| self.write(symbolicate, out))
    }

    /// Writes it to a file at this very place: see [`save_at`].
    pub(super) fn save_at(&self, path: PathBuf, symbolicate: bool) -> Result<PathBuf, SaveError> {
        save_at(path, |out| self.write(symbolicate, out))
    }

    pub(crate) fn source(&self) -> &ProfileSource {
        &self.source
    }

    /// What the sampler did and cost, by name.
    pub(crate) fn counts(&self) -> Vec<(&'static str, u64)> {
        self.source.counts.clone()
    }
}
