//! Step 10 of 12: takes a snapshot of the session for a profile.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::allocations::dropped_allocations;
use crate::backtrace::lost_stacks;
use crate::buffer::BufferSnapshot;
use crate::counters::{KnownCounter, for_each_application_counter};
use crate::export::{
    ExportOptions, Format, Look, ThreadSummary, add_child, summarize, write_profile,
};
use crate::model::ProfileModel;
use crate::platform::{ProcessStart, current_process_id, is_memory_available, monotonic_now};
use crate::session::callbacks::notify;
use crate::session::env::env_notices;
use crate::session::family_slot::freeze_children;
use crate::session::notices::{self, notify_unnamed};
use crate::session::read_profile::ReadProfile;
use crate::session::running::running_session;
use crate::session::save::{save_at, save_profile};
use crate::session::shutdown_file::note_saved;
use crate::session::write_options::{WriteOptions, default_options, default_options_for};
use crate::state::{ACTIVE_PS, CORE_PS, ChildProfile, Session, core_buffer};
use crate::stream::{
    FoundProblems, OutOfMemory, ProfileSource, StreamOptions, build_model, check_memory,
    stream_gecko_json,
};
use crate::threads::{OffThreadRef, ThreadRegistry};
use crate::types::{Generation, ProfilingState, SaveError, ThreadId, TimeStamp};
use crate::unwind::{ModuleTable, NamedCode, lost_code_names};
use crate::util::{
    FailureLatch, ProgressLocation, ProgressLogger, PsCell, PsLock, SharedSort,
    is_any_lock_held_on_current_thread,
};

/// A snapshot of a session. Writing it does not access the running session.
#[derive(Clone, Debug)]
pub(crate) struct FrozenProfile {
    source: ProfileSource,
}

/// Takes a snapshot of the running session. Returns `None` if no session is running, or if `only`
/// names another session.
///
/// Holds the `PsLock` while it clones lists. Chunks are shared, not copied.
pub(crate) fn freeze(only: Option<Generation>) -> Option<FrozenProfile> {
    if is_any_lock_held_on_current_thread() {
        return None;
    }
    running_session().filter(|(running, _)| is_asked_for(only, *running))?;
    notify(ProfilingState::GeneratingProfile);
    freeze_unnoticed(only)
}

fn is_asked_for(only: Option<Generation>, running: Generation) -> bool {
    only.is_none_or(|only| only == running)
}

/// Does the same as [`freeze`], but calls no state-change callback: a callback of the application may
/// wait for the thread on which the process ends.
pub(crate) fn freeze_unnoticed(only: Option<Generation>) -> Option<FrozenProfile> {
    let mut frozen = freeze_own(only)?;
    let source = &mut frozen.source;
    source.children = freeze_children(source.session.generation, source.taken_at);
    Some(frozen)
}

/// Takes a snapshot without the profiles of running children.
fn freeze_own(only: Option<Generation>) -> Option<FrozenProfile> {
    if is_any_lock_held_on_current_thread() {
        return None;
    }
    let (generation, session) =
        running_session().filter(|(running, _)| is_asked_for(only, *running))?;
    // Waits without the lock, because the sampler needs the lock to proceed.
    session.wait_for_flush();
    let taken_at = monotonic_now();
    // Declared before the lock, so that it is dropped after the lock is released.
    let _expired;
    let mut source = {
        let lock = PsLock::acquire();
        // Checked again, because the sampler has flushed the data of this session only.
        let active = ACTIVE_PS
            .get(&lock)
            .as_ref()
            .filter(|active| active.generation() == generation)?;
        let core = CORE_PS.get(&lock).as_ref()?;
        // Read before the snapshot of the buffer, so that no thread with data in that snapshot is
        // dropped.
        let buffer_start = core_buffer().range().start;
        _expired = active.take_expired(taken_at, &lock);
        let threads = active.threads.borrow();
        let (ended_pages, exit_profiles) =
            (active.ended_pages.borrow(), active.exit_profiles.borrow());
        ProfileSource {
            process: current_process_id(),
            product: core.product.clone(),
            version: core.version.clone(),
            process_name: core.process_name.clone(),
            process_type: core.process_type.clone(),
            etld1: core.etld1.clone(),
            pages: core
                .pages
                .iter()
                .chain(ended_pages.since(buffer_start, taken_at))
                .cloned()
                .collect(),
            exit_profiles: exit_profiles
                .since(buffer_start, taken_at)
                .cloned()
                .collect(),
            children: None,
            children_times: None,
            process_start: core.process_start,
            threads: threads.all(),
            threads_complete_since: threads.complete_since(),
            unmatched_filters: threads.unmatched_filters(),
            unselected_threads: unselected_threads(
                &session,
                |name, tid| threads.selects(name, tid),
                &lock,
            ),
            buffer: core_buffer().snapshot(),
            counts: session_counts(&session),
            overheads: session.overheads.read(),
            open_pauses: session.pauses.open(),
            taken_at: monotonic_now(),
            is_shutting_down: false,
            is_replaced: false,
            since: None,
            modules: ModuleTable::default(),
            generated_code: NamedCode::default(),
            counters: Vec::new(),
            past: None,
            session,
        }
    };
    // After the lock is released: these lists may be long.
    source.threads.shared_sort_by_key(OffThreadRef::serial);
    source.counters = known_counters(&source.session);
    source.modules = source.session.modules();
    source.generated_code = source.session.generated_code();
    Some(FrozenProfile { source })
}

/// Takes a snapshot of the running session for [`FrozenProfile::with_buffer`]. Returns the session,
/// and the serial number of the thread that the markers of allocations belong to: the main thread,
/// or any other if the session does not profile that.
pub(crate) fn freeze_for_heap(main: ThreadId) -> Option<(Arc<Session>, u64, FrozenProfile)> {
    /// Number of flushes to wait for the first list of threads.
    const MAX_ATTEMPTS: u32 = 20;
    let mut attempts = 0;
    let mut frozen = loop {
        let frozen = freeze_own(None)?;
        attempts += 1;
        if !frozen.source.threads.is_empty() || attempts >= MAX_ATTEMPTS {
            break frozen;
        }
    };
    let threads = &mut frozen.source.threads;
    let is_main =
        |thread: &OffThreadRef| thread.unlocked_const_reader_and_atomic_rw().tid() == main;
    let place = threads.iter().position(is_main).unwrap_or(0);
    threads.truncate(place + 1);
    threads.drain(..place.min(threads.len()));
    let serial = threads.first()?.serial();
    Some((Arc::clone(&frozen.source.session), serial, frozen))
}

/// Returns the counters whose values the buffer may hold.
fn known_counters(session: &Session) -> Vec<KnownCounter> {
    let own = session.counters.iter().copied().map(KnownCounter::Own);
    let found = session.found_counters().into_iter();
    let mut known: Vec<_> = own.chain(found.map(KnownCounter::Found)).collect();
    for_each_application_counter(|counter| {
        known.push(KnownCounter::Application(Arc::clone(counter)));
    });
    known
}

/// Returns the registered threads that the session's filters do not select.
fn unselected_threads(
    session: &Session,
    selects: impl Fn(&str, ThreadId) -> bool,
    lock: &PsLock,
) -> Vec<(ThreadId, String)> {
    let mut unselected = Vec::new();
    if !session.settings.filters.is_empty() {
        ThreadRegistry::for_each(lock, |thread| {
            let reader = thread.unlocked_const_reader_and_atomic_rw();
            let (tid, name) = (reader.tid(), reader.name());
            if !selects(&name, tid) {
                unselected.push((tid, name));
            }
        });
    }
    unselected
}

/// The profile of the last `ProfilerSession` that ended, for `profiler_shutdown` to save.
static KEPT: PsCell<Option<FrozenProfile>> = PsCell::new(None);

/// Keeps a profile for [`take_kept`]. It replaces an older one.
pub(crate) fn keep_for_shutdown(profile: Option<FrozenProfile>) {
    if profile.is_some() && !is_any_lock_held_on_current_thread() {
        // Dropped after the lock is released.
        let _older = std::mem::replace(KEPT.get_mut(&mut PsLock::acquire()), profile);
    }
}

/// Removes and returns the profile that was kept for the shutdown.
pub(crate) fn take_kept() -> Option<FrozenProfile> {
    KEPT.get_mut(&mut PsLock::acquire()).take()
}

/// Leaks the parent's profile in the child of a fork: the parent saves it.
pub(crate) fn forget_kept_in_child(lock: &mut PsLock) {
    std::mem::forget(KEPT.get_mut(lock).take());
}

/// Returns the sampler's counts, the number of marker stacks that were lost before the sampler
/// received them, and the number of names that generated code has lost.
fn session_counts(session: &Session) -> Vec<(&'static str, u64)> {
    let mut counts = session.counts.all();
    counts.push(("lost_marker_stacks", lost_stacks()));
    counts.push(("lost_code_names", lost_code_names()));
    counts.push(("dropped_allocations", dropped_allocations()));
    counts
}

/// Progress of a job for which the model is complete.
const MODEL_END: f32 = 0.7;
/// Memory that the profile of a child process may need in the model, as a multiple of its text.
const CHILD_FACTOR: usize = 4;

/// A profile in memory. A write fails if there is no memory for it.
struct TextInMemory(Vec<u8>);

impl Write for TextInMemory {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0
            .try_reserve(bytes.len())
            .map_err(|_| io::ErrorKind::OutOfMemory)?;
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Tells the user what the writer of a profile has found. `is_last` is whether the process is
/// shutting down.
fn notify_of(found: &FoundProblems, is_last: bool) {
    notify_unnamed(&found.unread_files);
    if is_last {
        env_notices::notify_warnings(&found.warnings);
    }
}

/// Adds the profile of a child process, and of its own child processes. If it cannot be read to its
/// end, adds the part before the error, and says so.
fn add_to_model(model: &mut ProfileModel, child: &ChildProfile) -> io::Result<()> {
    check_memory(CHILD_FACTOR * child.text().len())?;
    let added = match std::str::from_utf8(child.text()) {
        Ok(text) => add_child(model, text).map_err(|error| error.to_string()),
        Err(error) => Err(error.to_string()),
    };
    if let Err(error) = added {
        notices::notify(&format!(
            "the profile of a child process is incomplete: {error}"
        ));
    }
    Ok(())
}

/// Notes a file that was saved: it may be the one for the last profile.
fn noted(saved: Result<PathBuf, SaveError>) -> Result<PathBuf, SaveError> {
    if let Ok(path) = &saved {
        note_saved(path);
    }
    saved
}

impl FrozenProfile {
    /// Makes a profile of this source.
    pub(super) fn of_source(mut source: ProfileSource) -> Self {
        source.threads.shared_sort_by_key(OffThreadRef::serial);
        Self { source }
    }

    /// Replaces the session's data by these entries.
    pub(crate) fn with_buffer(mut self, buffer: BufferSnapshot) -> Self {
        self.source.buffer = buffer;
        self.source.counters.clear();
        self.source.pages.clear();
        self.source.exit_profiles.clear();
        self.source.children = None;
        self
    }

    /// Returns when the session started, and when the snapshot was taken.
    pub(crate) fn times(&self) -> (TimeStamp, TimeStamp) {
        (self.source.session.started_at, self.source.taken_at)
    }

    /// Marks the profile as the last one of the process.
    pub(crate) fn at_shutdown(mut self) -> Self {
        self.source.is_shutting_down = true;
        self
    }

    /// Marks the profile as that of a program image which another one replaces.
    pub(crate) fn before_exec(mut self) -> Self {
        self.source.is_replaced = true;
        self
    }

    /// Leaves out the older half of the chunks and of the profiles of children that have exited, and the
    /// running children. Returns false if there is nothing left to leave out.
    pub(crate) fn leave_out_older_half(&mut self) -> bool {
        self.source.children = None;
        let exited = &mut self.source.exit_profiles;
        let older = exited.len().div_ceil(2);
        exited.drain(..older);
        self.source.buffer.leave_out_older_half() || older > 0
    }

    /// Checks that this process may read the profile's entries. With a crash file, the child of a fork
    /// shares them with its parent, which overwrites them once it does not need them.
    fn check_process(&self) -> io::Result<()> {
        let (own, process) = (current_process_id(), self.source.process);
        let is_shared = self.source.session.crash_facts.is_some();
        match is_shared && own != process {
            false => Ok(()),
            true => Err(io::Error::other(format!(
                "cannot read the profile: got process {}, expected process {}, whose crash file has it",
                own.to_number(),
                process.to_number()
            ))),
        }
    }

    /// Writes the profile. It remains usable.
    pub(crate) fn write(&self, options: &WriteOptions, out: &mut dyn Write) -> io::Result<()> {
        self.clone().write_once(options, out)
    }

    /// Writes the profile. In Gecko's format, frees data as soon as it is written.
    pub(crate) fn write_once(self, options: &WriteOptions, out: &mut dyn Write) -> io::Result<()> {
        self.check_process()?;
        let stream = &options.stream;
        if options.format == Format::Gecko {
            let is_last = self.source.is_shutting_down;
            let found = stream_gecko_json(self.source, stream, FailureLatch::fallible(), out)?;
            notify_of(&found, is_last);
            return Ok(());
        }
        let building = stream
            .progress
            .sub_logger(0.0, MODEL_END, ProgressLocation::Entries);
        let profile = self.to_model(stream, &building)?;
        drop((self, building));
        let writing = stream
            .progress
            .sub_logger(MODEL_END, 1.0, ProgressLocation::Tables);
        // A writer needs less memory than the model.
        check_memory(profile.bytes())?;
        let export = options.export_of(&profile);
        write_profile(&profile, options.format, &export, out, &writing)
    }

    /// Returns the profile as the model that every other format is written from, with the profiles
    /// of child processes. Of a child's profile that cannot be read to its end, the model has the
    /// part before the error, and a notice says so.
    fn to_model(
        &self,
        options: &StreamOptions,
        progress: &ProgressLogger,
    ) -> io::Result<ProfileModel> {
        self.check_process()?;
        let request = options.gather_request(self.source.process_start);
        let running = self.source.children.as_ref();
        let mut gathering = running.map(|children| children.gather(&request));
        let mut own = self.clone();
        own.source.children_times = gathering.as_mut().and_then(|gathering| gathering.times());
        let mut model = own.to_own_model(options, progress)?;
        drop(own);
        for child in &self.source.exit_profiles {
            add_to_model(&mut model, child)?;
        }
        if let Some(gathering) = &mut gathering {
            while let Some(child) = gathering.next_profile() {
                add_to_model(&mut model, &child)?;
            }
            for (_, event) in gathering.take_log().events {
                notices::notify(&event);
            }
        }
        Ok(model)
    }

    /// Gives the times of the process their place on the timeline of another process, whose clock this
    /// is. The kernel's record of a start has a resolution of 10 ms, and the wall clock may have been
    /// set in between.
    pub(crate) fn on_clock_of(mut self, parent: ProcessStart) -> Self {
        let own = &mut self.source.process_start;
        let later_ns = own.monotonic.0 as f64 - parent.monotonic.0 as f64;
        own.epoch_ms = parent.epoch_ms + later_ns / 1e6;
        self
    }

    /// Returns the model without the profiles of child processes.
    fn to_own_model(
        &self,
        options: &StreamOptions,
        progress: &ProgressLogger,
    ) -> io::Result<ProfileModel> {
        self.check_process()?;
        let (model, found) = build_model(self.source.clone(), options, progress)?;
        notify_of(&found, self.source.is_shutting_down);
        Ok(model)
    }

    /// Returns the profile as if it had been read from a file.
    pub(crate) fn to_read(&self) -> io::Result<ReadProfile> {
        let options = default_options().stream;
        let profile = self.to_model(&options, &options.progress)?;
        Ok(ReadProfile::of_model(profile))
    }

    /// Returns the profile as bytes.
    pub(crate) fn into_text(self, options: &WriteOptions) -> io::Result<Vec<u8>> {
        let mut text = TextInMemory(Vec::new());
        self.write_once(options, &mut text).map(|()| text.0)
    }

    /// Returns whether there is memory for the whole profile, whatever its content.
    fn has_ample_memory(&self) -> bool {
        /// Memory that a profile may need: a multiple of its entries, and the debug information.
        const FACTOR: u64 = 6;
        const NAMES_BYTES: u64 = 256 << 20;
        let needed_bytes = self.source.buffer.bytes() * FACTOR + NAMES_BYTES;
        usize::try_from(needed_bytes).is_ok_and(is_memory_available)
    }

    /// Writes the profile to a file, and returns the file's path.
    pub(crate) fn save(&self, path: &Path) -> Result<PathBuf, SaveError> {
        self.save_with(default_options_for(path)?, path)
    }

    /// Writes the profile to a file in the format of the file's name.
    pub(crate) fn save_with(
        &self,
        options: WriteOptions,
        path: &Path,
    ) -> Result<PathBuf, SaveError> {
        let options = options.for_file(path)?;
        let saved = self
            .clone()
            .save_newest(|profile| save_profile(path, |out| profile.write(&options, out)));
        noted(saved)
    }

    /// Writes the profile to a file, and frees data as soon as it is written.
    pub(crate) fn save_once(self, path: &Path) -> Result<PathBuf, SaveError> {
        self.save_once_with(default_options_for(path)?, path)
    }

    /// Works like [`Self::save_once`]. If the file's name stands for no format of this build, says
    /// so on standard error, and saves the profile in Gecko's format: it is the last chance.
    pub(crate) fn save_at_shutdown(self, path: &Path) -> Result<PathBuf, SaveError> {
        let options = default_options_for(path).unwrap_or_else(|error| {
            notices::notify(&format!("{error}; the profile is saved in Gecko's format"));
            default_options()
        });
        self.save_once_with(options, path)
    }

    fn save_once_with(self, options: WriteOptions, path: &Path) -> Result<PathBuf, SaveError> {
        // The model's memory does not depend on the buffer's alone.
        if options.format == Format::Gecko && self.has_ample_memory() {
            return noted(save_profile(path, |out| self.write_once(&options, out)));
        }
        noted(self.save_newest(|profile| save_profile(path, |out| profile.write(&options, out))))
    }

    /// Writes the profile to a file at exactly this path: see [`save_at`].
    pub(crate) fn save_at(self, path: PathBuf) -> Result<PathBuf, SaveError> {
        let options = default_options();
        if self.has_ample_memory() {
            return save_at(path, |out| self.write_once(&options, out));
        }
        self.save_newest(|profile| save_at(path.clone(), |out| profile.write(&options, out)))
    }

    /// Calls `save`. While there is no memory for it, calls it again without the older half of the
    /// chunks.
    fn save_newest(
        mut self,
        mut save: impl FnMut(&Self) -> Result<PathBuf, SaveError>,
    ) -> Result<PathBuf, SaveError> {
        loop {
            match save(&self) {
                Err(SaveError::Io { error, .. })
                    if OutOfMemory::is_cause_of(&error)
                        && self.source.buffer.leave_out_older_half() => {}
                saved => return saved,
            }
        }
    }

    /// Returns the functions on which each thread of this process spent its time. If there is no
    /// memory for the whole profile, summarizes the newest part, or nothing.
    pub(crate) fn summarize(&self) -> Vec<ThreadSummary> {
        let options = default_options().stream;
        let profile = self.to_own_model(&options, &options.progress);
        profile.map_or_else(|_| Vec::new(), |profile| summarize(&profile))
    }

    /// Returns the text summary that `Profile::summary` shows. While there is no memory for the
    /// whole profile, leaves out its older half.
    pub(crate) fn report(mut self, look: Look) -> io::Result<String> {
        let options = WriteOptions {
            format: Format::Text,
            export: ExportOptions {
                look,
                ..ExportOptions::usual_for(Format::Text)
            },
            ..default_options()
        };
        loop {
            let mut text = Vec::new();
            match self.write(&options, &mut text) {
                Ok(()) => return Ok(String::from_utf8_lossy(&text).into_owned()),
                Err(error)
                    if OutOfMemory::is_cause_of(&error)
                        && self.source.buffer.leave_out_older_half() => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Returns the sampler's counts of work and cost, by name.
    pub(crate) fn counts(&self) -> Vec<(&'static str, u64)> {
        self.source.counts.clone()
    }
}
