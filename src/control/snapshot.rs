//! Stop 10 of 12: somebody asks for a profile, and gets the session as it is at this moment.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::base::{
    FailureLatch, Generation, ProfilingState, PsLock, SaveError, is_any_lock_held_on_current_thread,
};
use crate::control::callbacks::tell;
use crate::control::dump::{save_at, save_profile};
use crate::control::environment::wants_names;
use crate::control::life_cycle::running_session;
use crate::platform::{current_process_id, monotonic_now};
use crate::state::{ACTIVE_PS, CORE_PS, Session, core_buffer};
use crate::stream::{ProfileSource, StreamOptions, stream_gecko_json};
use crate::threads::{OffThreadRef, lost_stacks};
use crate::unwind::{CodeMap, ModuleTable};

/// A session, frozen; writing it out touches nothing that runs.
#[derive(Clone, Debug)]
pub(crate) struct FrozenProfile {
    source: ProfileSource,
}

/// Freezes the running session, or this one if it runs; `None` when it does not. Under the `PsLock`, for the time of
/// cloning lists; chunks are shared, not copied.
pub(crate) fn freeze(only: Option<Generation>) -> Option<FrozenProfile> {
    if is_any_lock_held_on_current_thread() {
        return None;
    }
    let is_asked_for = |running| only.is_none_or(|only| only == running);
    running_session().filter(|(running, _)| is_asked_for(*running))?;
    tell(ProfilingState::GeneratingProfile);
    let (generation, session) = running_session().filter(|(running, _)| is_asked_for(*running))?;
    // Without the lock, since the sampler has to come by.
    session.wait_until_all_is_written();
    let mut source = {
        let lock = PsLock::acquire();
        // It is this one's data that were waited for.
        let active = ACTIVE_PS
            .get(&lock)
            .as_ref()
            .filter(|active| active.generation() == generation)?;
        let core = CORE_PS.get(&lock).as_ref()?;
        // Before the buffer is shared, so that nobody is dropped of whom it has anything.
        let buffer_start = core_buffer().range().start;
        let mut threads = active.threads.borrow_mut();
        threads.drop_expired(buffer_start, &lock);
        let (ended_pages, exit_profiles) =
            (active.ended_pages.borrow(), active.exit_profiles.borrow());
        ProfileSource {
            process: current_process_id(),
            product: core.product.clone(),
            process_name: core.process_name.clone(),
            etld1: core.etld1.clone(),
            pages: core
                .pages
                .iter()
                .chain(ended_pages.since(buffer_start))
                .cloned()
                .collect(),
            exit_profiles: exit_profiles.since(buffer_start).cloned().collect(),
            process_start: core.process_start,
            threads: threads.all(),
            buffer: core_buffer().snapshot(),
            counts: counts_of(&session),
            open_pauses: session.pauses.open(),
            taken_at: monotonic_now(),
            since: None,
            modules: ModuleTable::default(),
            generated_code: CodeMap::default(),
            session,
        }
    };
    // They may be long, and nobody else waits for these.
    source.threads.sort_by_key(OffThreadRef::serial);
    source.modules = source.session.modules();
    source.generated_code = source.session.generated_code();
    Some(FrozenProfile { source })
}

/// What the session's sampler did and could not do, and the stacks of markers that never came to it.
fn counts_of(session: &Session) -> Vec<(&'static str, u64)> {
    let mut counts = session.counts.all();
    counts.push(("lost_marker_stacks", lost_stacks()));
    counts
}

/// How a profile is written for which the program does not say it: whole, with names unless the environment says no.
pub(crate) fn default_options() -> StreamOptions {
    StreamOptions::whole(wants_names())
}

impl FrozenProfile {
    /// Writes Gecko's JSON, and keeps the profile.
    pub(crate) fn write(&self, options: &StreamOptions, out: &mut dyn Write) -> io::Result<()> {
        self.clone().write_once(options, out)
    }

    /// Writes it and lets go of what was read on the way.
    pub(crate) fn write_once(self, options: &StreamOptions, out: &mut dyn Write) -> io::Result<()> {
        stream_gecko_json(self.source, options, FailureLatch::fallible(), out)
    }

    /// The text, in memory.
    pub(crate) fn into_text(self, options: &StreamOptions) -> io::Result<Vec<u8>> {
        let mut text = Vec::new();
        stream_gecko_json(self.source, options, FailureLatch::infallible(), &mut text)
            .map(|()| text)
    }

    /// Writes it to a file, and gives that file's path.
    pub(crate) fn save(&self, path: &Path) -> Result<PathBuf, SaveError> {
        self.save_with(&default_options(), path)
    }

    pub(crate) fn save_with(
        &self,
        options: &StreamOptions,
        path: &Path,
    ) -> Result<PathBuf, SaveError> {
        save_profile(path, |out| self.write(options, out))
    }

    /// Writes it to a file, and lets go of what was read on the way.
    pub(crate) fn save_once(self, path: &Path) -> Result<PathBuf, SaveError> {
        save_profile(path, |out| self.write_once(&default_options(), out))
    }

    /// Writes it to a file at this very place: see [`save_at`].
    pub(super) fn save_at(self, path: PathBuf) -> Result<PathBuf, SaveError> {
        save_at(path, |out| self.write_once(&default_options(), out))
    }

    pub(crate) fn source(&self) -> &ProfileSource {
        &self.source
    }

    /// What the sampler did and cost, by name.
    pub(crate) fn counts(&self) -> Vec<(&'static str, u64)> {
        self.source.counts.clone()
    }
}
