//! Writes the snapshot of a session: as text, as a model, and to files.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::buffer::BufferSnapshot;
use crate::export::{add_child, summarize, write_profile};
use crate::model::ProfileModel;
use crate::platform::{ProcessStart, SpoolFile, current_process_id, is_memory_available};
use crate::session::env::env_notices;
use crate::session::env::notices::{self, notify_unnamed};
use crate::session::saving::read_profile::ReadProfile;
use crate::session::saving::save::{
    WriteOptions, default_options, default_options_for, save_at, save_profile,
};
use crate::session::saving::shutdown_file::note_saved;
use crate::session::saving::snapshot::FrozenProfile;
use crate::state::ChildProfile;
use crate::stream::{
    FoundProblems, GatherRequest, MODEL_END, ProfileSource, StreamOptions, build_model,
    check_memory, is_out_of_memory, stream_gecko_json,
};
use crate::threads::OffThreadRef;
use crate::types::{
    Explanation, Format, Look, ProfilerTime, SaveError, ThreadSummary, TimeStamp, Wanted,
};
use crate::util::{FailureLatch, ProgressLogger, SharedProgress, SharedSort};

/// Memory that the profile of a child process may need in the model, as a multiple of its text.
const CHILD_FACTOR: usize = 4;

/// Time before an interval whose samples are read to explain it, in ns: a sample shows what the
/// thread did since the one before.
const BEFORE_INTERVAL_NS: u64 = 1_000_000_000;

/// A profile in memory. A write fails if its memory cannot be allocated.
pub(crate) struct TextInMemory(pub(crate) Vec<u8>);

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

/// Adds the profile of a child process, and of its own child processes. If the profile cannot be
/// read to its end, adds the part before the error, and says so.
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
    pub(crate) fn of_source(mut source: ProfileSource) -> Self {
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

    /// Leaves out the older half of the chunks and of the profiles of children that have exited,
    /// and the running children. Returns false if there is nothing left to leave out.
    pub(crate) fn leave_out_older_half(&mut self) -> bool {
        self.source.children = None;
        let exited = &mut self.source.exit_profiles;
        let older = exited.len().div_ceil(2);
        exited.drain(..older);
        self.source.buffer.leave_out_older_half() || older > 0
    }

    /// Checks that this process may read the profile's entries. With a crash file, the child of a
    /// fork shares them with its parent, which overwrites them once it does not need them.
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
        let profile = self.to_model(stream)?;
        drop(self);
        // A writer needs less memory than the model.
        check_memory(profile.bytes())?;
        let export = options.export_of(&profile, MODEL_END);
        write_profile(&profile, options.format, &export, out)
    }

    /// Returns the profile as the model that every other format is written from, with the profiles
    /// of child processes. Of a child's profile that cannot be read to its end, the model has the
    /// part before the error, and a notice says so.
    fn to_model(&self, options: &StreamOptions) -> io::Result<ProfileModel> {
        self.check_process()?;
        let request = GatherRequest {
            merges_alike: false,
            ..options.gather_request(self.source.process_start)
        };
        let running = self.source.children.as_ref();
        let mut gathering = running.map(|children| children.gather(&request));
        let mut own = self.clone();
        own.source.children_times = gathering.as_mut().and_then(|gathering| gathering.times());
        let (mut model, _) = own.to_own_model(options)?;
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

    /// Gives the times of the process their place on the timeline of another process, whose clock
    /// this is. The kernel's record of a start has a resolution of 10 ms, and the wall clock may
    /// have been set in between.
    pub(crate) fn on_clock_of(mut self, parent: ProcessStart) -> Self {
        let own = &mut self.source.process_start;
        let later_ns = own.monotonic.0 as f64 - parent.monotonic.0 as f64;
        own.epoch_ms = parent.epoch_ms + later_ns / 1e6;
        self
    }

    /// Returns the model without the profiles of child processes, and whether there was memory for all
    /// of the buffer.
    pub(crate) fn to_own_model(&self, options: &StreamOptions) -> io::Result<(ProfileModel, bool)> {
        self.check_process()?;
        let (model, found) = build_model(self.source.clone(), options)?;
        notify_of(&found, self.source.is_shutting_down);
        Ok((model, found.left_out_bytes == 0))
    }

    /// Returns the profile as if it had been read from a file.
    pub(crate) fn to_read(&self) -> io::Result<ReadProfile> {
        let profile = self.to_model(&default_options().stream)?;
        Ok(ReadProfile::of_model(profile))
    }

    /// Explains where the time of a request went.
    pub(crate) fn explain(&self, wanted: &Wanted) -> io::Result<Explanation> {
        let ns = |time: &ProfilerTime| {
            i64::try_from(self.source.ns_since_start(time.timestamp())).unwrap_or(i64::MAX)
        };
        let profile = self.to_read()?;
        match wanted {
            Wanted::Between(thread, start, end) => {
                profile.explain(&Wanted::Range(thread.clone(), ns(start), ns(end)))
            }
            other => profile.explain(other),
        }
    }

    /// Explains where the time of an interval of the session went.
    pub(crate) fn explain_interval(&self, interval: &LongInterval) -> io::Result<Explanation> {
        let ns = |time| i64::try_from(self.source.ns_since_start(time)).unwrap_or(i64::MAX);
        let mut threads = self.source.threads.iter();
        let thread = threads.find(|thread| thread.serial() == interval.thread);
        let tid = thread.map(|thread| thread.unlocked_const_reader_and_atomic_rw().tid());
        // Only the interval and this process are needed.
        let mut own = self.clone();
        own.source.children = None;
        own.source.exit_profiles.clear();
        let mut options = default_options().stream;
        let start_ns = interval.start.0.saturating_sub(BEFORE_INTERVAL_NS);
        options.since = Some(TimeStamp(start_ns));
        let mut model = own.to_model(&options)?;
        // The file of the dump begins when its first process did.
        let (started_at, ended_at) = self.source.profiling_times();
        model.meta.session_ns = Some((ns(started_at), ns(ended_at)));
        ReadProfile::of_model(model).explain(&Wanted::Interval {
            name: interval.name.clone(),
            tid: tid.map_or_else(String::new, |tid| tid.to_number().to_string()),
            start_ns: ns(interval.start),
            end_ns: ns(interval.end),
        })
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

    /// Works like [`Self::save_once`]. If this build has no format for the file's name, says so on
    /// standard error, and saves the profile in Gecko's format: this is the last chance to save it.
    pub(crate) fn save_at_shutdown(self, path: &Path) -> Result<PathBuf, SaveError> {
        let options = default_options_for(path).unwrap_or_else(|error| {
            notices::notify(&format!("{error}; the profile is saved in Gecko's format"));
            default_options()
        });
        self.save_once_with(options, path)
    }

    fn save_once_with(self, options: WriteOptions, path: &Path) -> Result<PathBuf, SaveError> {
        // The model's memory depends on more than the buffer's memory.
        if options.format == Format::Gecko && self.has_ample_memory() {
            return noted(save_profile(path, |out| self.write_once(&options, out)));
        }
        noted(self.save_newest(|profile| save_profile(path, |out| profile.write(&options, out))))
    }

    /// Writes the profile to a file at exactly this path: see [`save_at`].
    pub(crate) fn save_at(
        self,
        options: &WriteOptions,
        path: PathBuf,
    ) -> Result<PathBuf, SaveError> {
        if options.format == Format::Gecko && self.has_ample_memory() {
            return save_at(path, |out| self.write_once(options, out));
        }
        self.save_newest(|profile| save_at(path.clone(), |out| profile.write(options, out)))
    }

    /// Calls `save`. Whenever memory runs out, leaves out the older half of the chunks, and calls
    /// `save` again.
    fn save_newest(
        mut self,
        mut save: impl FnMut(&Self) -> Result<PathBuf, SaveError>,
    ) -> Result<PathBuf, SaveError> {
        loop {
            match save(&self) {
                Err(SaveError::Io { error, .. })
                    if is_out_of_memory(&error) && self.source.buffer.leave_out_older_half() => {}
                saved => return saved,
            }
        }
    }

    /// Returns the functions on which each thread of this process spent its time. If there is no
    /// memory for the whole profile, summarizes the newest part, or nothing.
    pub(crate) fn summarize(&self) -> Vec<ThreadSummary> {
        let profile = self.to_own_model(&default_options().stream);
        profile.map_or_else(|_| Vec::new(), |(profile, _)| summarize(&profile))
    }

    /// Returns the text summary that `Profile::summary` shows. Whenever memory runs out, leaves out
    /// the older half of the profile, and tries again.
    pub(crate) fn report(mut self, look: Look) -> io::Result<String> {
        let options = WriteOptions::of_summary(look);
        loop {
            let mut text = Vec::new();
            match self.write(&options, &mut text) {
                Ok(()) => return Ok(String::from_utf8_lossy(&text).into_owned()),
                Err(error)
                    if is_out_of_memory(&error) && self.source.buffer.leave_out_older_half() => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Returns the sampler's counts of work and cost, by name.
    pub(crate) fn counts(&self) -> Vec<(&'static str, u64)> {
        self.source.counts.clone()
    }
}

/// An interval that was too long.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct LongInterval {
    pub(crate) name: String,
    /// Serial number of the thread that has the marker.
    pub(crate) thread: u64,
    pub(crate) start: TimeStamp,
    pub(crate) end: TimeStamp,
}

/// Writes a profile in Gecko's format. While it is longer than `max_bytes`, writes it again without
/// its older half.
///
/// # Errors
/// The error of the file.
pub(crate) fn spool_profile(
    mut profile: FrozenProfile,
    max_bytes: u64,
    progress: Option<&SharedProgress>,
) -> io::Result<SpoolFile> {
    loop {
        let mut options = default_options();
        options.stream.progress = ProgressLogger::for_job(progress);
        // The parent may write any format from it.
        options.stream.merges_alike = false;
        let mut spool = SpoolFile::create()?;
        profile.write(&options, &mut spool)?;
        if spool.bytes() <= max_bytes || !profile.leave_out_older_half() {
            return Ok(spool);
        }
    }
}
