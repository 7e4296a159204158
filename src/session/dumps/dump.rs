//! Dumps: the last seconds of the session, written to a file when something went wrong.
//!
//! The caller only decides whether a dump is due, and starts a thread of the profiler that writes
//! it. Dumps are as rare as the settings say, whatever causes them.

use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use crate::platform::{
    Receiver, channel, current_process_id, is_current_thread_own, monotonic_now,
    prepare_to_wait_as_loader_call, spawn_profiler_thread, utc_now, with_signals_blocked,
};
use crate::session::env::{environment, notices};
use crate::session::running::running_generation;
use crate::session::saving::frozen_profile::LongInterval;
use crate::session::saving::save::{WriteOptions, default_options_for, save_at};
use crate::session::saving::snapshot::{FrozenProfile, freeze_unnoticed};
use crate::types::{DumpError, DumpSettings, Generation, SaveError, TimeStamp};
use crate::util::{PsCell, PsLock, cut_at_character, is_any_lock_held_on_current_thread};

/// Maximum length of the reason in the name of a file, in characters.
const MAX_FILE_REASON: usize = 60;
/// Maximum length of the reason in a notice, in bytes.
const MAX_REASON_BYTES: usize = 512;

/// Least time that a dump shows before its cause began, in ns.
const BEFORE_CAUSE_NS: u64 = 1_000_000_000;

static SETTINGS: PsCell<Option<DumpSettings>> = PsCell::new(None);

/// The dumps of this process, the oldest first.
static FILES: PsCell<VecDeque<PathBuf>> = PsCell::new(VecDeque::new());

/// Intervals that are longer than this cause a dump, in ns. The maximum means that none does.
static LONG_INTERVAL_NS: AtomicU64 = AtomicU64::new(u64::MAX);

/// Janks that are longer than this cause a dump, in ns. The maximum means that none does.
static LONG_JANK_NS: AtomicU64 = AtomicU64::new(u64::MAX);

/// Time before which no dump begins, in ns.
static NOT_BEFORE_NS: AtomicU64 = AtomicU64::new(0);

/// Whether a dump is being written.
static IS_WRITING: AtomicBool = AtomicBool::new(false);

/// Number of causes since the last dump that were refused.
static REFUSED: AtomicU64 = AtomicU64::new(0);

/// Number of dumps, for the names of files.
static COUNT: AtomicU32 = AtomicU32::new(0);

/// Returns a time in ns; the maximum for a longer one.
pub(crate) fn to_ns(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Sets where dumps go and what causes them; `None` for no more causes.
pub(crate) fn keep_settings(settings: Option<DumpSettings>) {
    let limit_ns = |limit_of: fn(&DumpSettings) -> Option<Duration>| {
        settings.as_ref().and_then(limit_of).map_or(u64::MAX, to_ns)
    };
    let interval_ns = limit_ns(|settings| settings.long_interval);
    let jank_ns = limit_ns(|settings| settings.long_jank);
    let before = {
        let mut lock = PsLock::acquire();
        // Under the lock: see `delay_next`.
        NOT_BEFORE_NS.store(0, Ordering::Relaxed);
        LONG_INTERVAL_NS.store(interval_ns, Ordering::Relaxed);
        LONG_JANK_NS.store(jank_ns, Ordering::Relaxed);
        std::mem::replace(SETTINGS.get_mut(&mut lock), settings)
    };
    // After the lock is released.
    drop(before);
}

/// Delays the next dump, as the settings say that hold now: they may be newer than those of the
/// dump. `otherwise` is for none. Returns the time before which no dump was allowed, in ns.
fn delay_next(now: TimeStamp, otherwise: Duration) -> u64 {
    let lock = PsLock::acquire();
    let settings = SETTINGS.get(&lock).as_ref();
    let min_interval = settings.map_or(otherwise, |settings| settings.min_interval);
    let not_before_ns = now.0.saturating_add(to_ns(min_interval));
    NOT_BEFORE_NS.swap(not_before_ns, Ordering::Relaxed)
}

/// Returns the settings. Without any, those for dumps in the folder for temporary files.
pub(crate) fn dump_settings() -> DumpSettings {
    let settings = SETTINGS.get(&PsLock::acquire()).clone();
    settings.unwrap_or_else(|| {
        let folder = environment::variable("TMPDIR");
        DumpSettings::in_folder(folder.map_or_else(|| PathBuf::from("/tmp"), PathBuf::from))
    })
}

/// Returns whether an interval of this length is a reason to dump.
#[inline(always)]
pub(crate) fn is_long_interval(ns: u64) -> bool {
    ns > LONG_INTERVAL_NS.load(Ordering::Relaxed)
}

/// Returns the length, in ns, above which a jank causes a dump; `None` if no jank does.
#[inline(always)]
pub(crate) fn long_jank_ns() -> Option<u64> {
    Some(LONG_JANK_NS.load(Ordering::Relaxed)).filter(|ns| *ns != u64::MAX)
}

/// Returns whether a panic of the calling thread causes a dump.
pub(crate) fn dumps_at_panic() -> bool {
    let is_own = is_current_thread_own();
    !is_own && !is_any_lock_held_on_current_thread() && dump_settings().on_panic
}

/// A dump that is allowed now. Dropping it without [`DumpPermit::write`] allows another one at
/// once.
#[derive(Debug)]
pub(crate) struct DumpPermit {
    session: Generation,
    now: TimeStamp,
    settings: DumpSettings,
    writing: Writing,
    refused: u64,
}

/// What caused a dump.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Cause {
    /// A long interval. A text file next to the dump explains it.
    Interval(LongInterval),
    /// Something that has lasted for this time.
    Lasting(Duration),
    Other,
}

impl Cause {
    /// Returns how long before `now` the cause began, in ns.
    fn age_ns(&self, now: TimeStamp) -> u64 {
        match self {
            Self::Interval(interval) => now.since_ns(interval.start),
            Self::Lasting(time) => to_ns(*time),
            Self::Other => 0,
        }
    }
}

/// The right to write the only dump. Dropping it gives the right back.
#[derive(Debug)]
struct Writing;

impl Drop for Writing {
    fn drop(&mut self) {
        IS_WRITING.store(false, Ordering::Release);
    }
}

/// A dump that is being written.
#[derive(Debug)]
pub(crate) struct WrittenDump {
    path: PathBuf,
    is_done: Receiver<()>,
}

impl WrittenDump {
    /// Returns the path of the file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Waits until the file is complete or cannot be written, for this time at most.
    pub(crate) fn wait(&self, longest: Duration) {
        self.is_done.receive_within(longest);
    }
}

/// Decides whether a dump may be written now. `counts` is whether a refusal counts as one.
///
/// # Errors
/// [`DumpError::Inactive`], [`DumpError::TooSoon`], [`DumpError::Busy`] or [`DumpError::Reentrant`]
pub(crate) fn permit_dump(counts: bool) -> Result<DumpPermit, DumpError> {
    if is_any_lock_held_on_current_thread() {
        return Err(DumpError::Reentrant);
    }
    let refuse = |error| {
        REFUSED.fetch_add(u64::from(counts), Ordering::Relaxed);
        Err(error)
    };
    let now = monotonic_now();
    let check_time = || {
        let wait_ns = NOT_BEFORE_NS.load(Ordering::Relaxed).saturating_sub(now.0);
        let wait = Duration::from_nanos(wait_ns);
        (wait_ns > 0).then_some(DumpError::TooSoon { wait })
    };
    // Without a lock: causes may be frequent.
    if let Some(too_soon) = check_time() {
        return refuse(too_soon);
    }
    if IS_WRITING.swap(true, Ordering::AcqRel) {
        return refuse(DumpError::Busy);
    }
    let writing = Writing;
    // Another thread may have begun and ended a dump in between.
    if let Some(too_soon) = check_time() {
        return refuse(too_soon);
    }
    let session = running_generation().ok_or(DumpError::Inactive)?;
    Ok(DumpPermit {
        session,
        now,
        settings: dump_settings(),
        writing,
        refused: REFUSED.swap(0, Ordering::Relaxed),
    })
}

impl DumpPermit {
    /// Returns the reason as the dump's marker and notices have it: in one line, with the number of
    /// causes that were refused since the last dump.
    pub(crate) fn whole_reason(&self, reason: &str) -> String {
        let reason = cut_at_character(reason, MAX_REASON_BYTES).escape_debug();
        match self.refused {
            0 => reason.to_string(),
            1 => format!("{reason}; 1 other cause was refused since the last dump"),
            count => format!("{reason}; {count} other causes were refused since the last dump"),
        }
    }

    /// Starts a thread that writes the dump: the time `last` before now, or as long as the settings
    /// say. It has at least the whole cause.
    ///
    /// # Errors
    /// [`DumpError::System`] if the system refuses the thread.
    pub(crate) fn write(
        self,
        last: Option<Duration>,
        reason: &str,
        cause: Cause,
    ) -> Result<WrittenDump, DumpError> {
        let last_ns = to_ns(last.unwrap_or(self.settings.last));
        let cause_ns = cause.age_ns(self.now).saturating_add(BEFORE_CAUSE_NS);
        let cause_ns = Some(cause_ns).filter(|_| cause != Cause::Other);
        let last_ns = last_ns.max(cause_ns.unwrap_or(0));
        let since = TimeStamp(self.now.0.saturating_sub(last_ns));
        let path = self.settings.folder.join(file_name(reason));
        let whole_reason = self.whole_reason(reason);
        let (done, is_done) = channel();
        let (session, file, max_files) = (self.session, path.clone(), self.settings.max_files);
        let writing = self.writing;
        let before_ns = delay_next(self.now, self.settings.min_interval);
        let task = move || {
            // Dropped even if the writer panics. `done` is last, and wakes the waiting thread.
            let _writing = (writing, done);
            // Without a file, the next cause waits as long: each attempt costs as much as a dump.
            if let Some(saved) = write_dump(session, since, &file, &whole_reason, &cause) {
                remove_oldest(saved, max_files);
            }
        };
        spawn_task(task).map_err(|error| {
            NOT_BEFORE_NS.store(before_ns, Ordering::Relaxed);
            DumpError::System {
                action: "create a thread that writes the dump",
                answer: error.to_string(),
            }
        })?;
        Ok(WrittenDump { path, is_done })
    }
}

/// Forgets the parent's dumps in the child of a fork, where no thread writes one.
pub(crate) fn forget_dumps_in_child(lock: &mut PsLock) {
    IS_WRITING.store(false, Ordering::Relaxed);
    NOT_BEFORE_NS.store(0, Ordering::Relaxed);
    REFUSED.store(0, Ordering::Relaxed);
    // The parent removes its own files. Leaked, so that the application's allocator does not run
    // under the locks.
    std::mem::forget(std::mem::take(FILES.get_mut(lock)));
}

/// Writes the file, and returns its path. Calls no callback of the application: a callback might
/// wait for the caller, which may be a panicking thread.
fn write_dump(
    session: Generation,
    since: TimeStamp,
    path: &Path,
    reason: &str,
    cause: &Cause,
) -> Option<PathBuf> {
    let Some(profile) = freeze_unnoticed(Some(session)) else {
        notices::notify(&format!(
            "cannot dump: the session has stopped; the cause: {reason}"
        ));
        return None;
    };
    let explained = match cause {
        Cause::Interval(interval) => Some((profile.clone(), interval)),
        Cause::Lasting(_) | Cause::Other => None,
    };
    let saved =
        options_for(path, since).and_then(|options| profile.save_at(&options, path.to_owned()));
    match saved {
        Ok(path) => {
            notices::notify(&format!(
                "dumped as {}; the cause: {reason}",
                path.display()
            ));
            if let Some((profile, interval)) = explained {
                write_explanation(profile, interval, &path);
            }
            Some(path)
        }
        Err(error) => {
            notices::notify(&format!("{error}; the cause of the dump: {reason}"));
            None
        }
    }
}

/// Writes a file next to the dump that explains where the time of an interval went. Reports a
/// failure on standard error.
fn write_explanation(profile: FrozenProfile, interval: &LongInterval, dump: &Path) {
    let explained = profile.explain_interval(interval);
    let path = explanation_path(dump);
    let written = explained
        .map_err(|error| error.to_string())
        .and_then(|explanation| {
            let text = explanation.to_string();
            let saved = save_at(path, |out| out.write_all(text.as_bytes()));
            saved.map_err(|error| error.to_string())
        });
    if let Err(error) = written {
        notices::notify(&error);
    }
}

/// Returns the path of the text that explains a dump.
fn explanation_path(dump: &Path) -> PathBuf {
    dump.with_file_name(format!("{}.txt", stem(dump)))
}

/// Returns the name of a dump without its ending. The reason in it has no dot.
fn stem(dump: &Path) -> String {
    let name = dump.file_name().unwrap_or_default().to_string_lossy();
    let ended = name.split_once('.').map_or(&*name, |(stem, _)| stem);
    ended.to_owned()
}

fn options_for(path: &Path, since: TimeStamp) -> Result<WriteOptions, SaveError> {
    let mut options = default_options_for(path)?;
    options.stream.since = Some(since);
    Ok(options)
}

/// Notes a file, and removes the oldest files beyond the maximum number.
fn remove_oldest(path: PathBuf, max_files: usize) {
    let removed: Vec<_> = {
        let mut lock = PsLock::acquire();
        let files = FILES.get_mut(&mut lock);
        files.push_back(path);
        let too_many = files.len().saturating_sub(max_files.max(1));
        files.drain(..too_many).collect()
    };
    for path in removed {
        // The user may have moved or removed it.
        let _ = std::fs::remove_file(explanation_path(&path));
        let _ = std::fs::remove_file(path);
    }
}

/// Returns the name of a dump's file: the process, the time, the number of the dump, and the
/// reason.
fn file_name(reason: &str) -> String {
    let [year, month, day, hour, minute, second] = utc_now();
    let process = current_process_id().to_number();
    let number = COUNT.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
    let ending = match cfg!(feature = "gzip") {
        true => "json.gz",
        false => "json",
    };
    format!(
        "dump_{process}_{year:04}-{month:02}-{day:02}T{hour:02}-{minute:02}-{second:02}Z_{number}_{}.{ending}",
        as_file_name(reason)
    )
}

/// Returns a text that every file system accepts, and that a shell takes as one word.
fn as_file_name(reason: &str) -> String {
    let mut name = String::new();
    for character in reason.chars() {
        if character.is_ascii_alphanumeric() {
            name.push(character);
        } else if !name.is_empty() && !name.ends_with('-') {
            name.push('-');
        }
        if name.len() >= MAX_FILE_REASON {
            break;
        }
    }
    match name.trim_end_matches('-') {
        "" => "dump".to_owned(),
        name => name.to_owned(),
    }
}

/// Runs a task on a thread of the profiler, which blocks all signals and is not sampled. No thread
/// waits for it under a lock.
///
/// # Errors
/// The error of the operating system, if it refuses the thread.
pub(crate) fn spawn_task(task: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let body = || {
        prepare_to_wait_as_loader_call();
        task();
    };
    with_signals_blocked(|| spawn_profiler_thread(c"GekkotaTask", body)).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reason_becomes_one_word() {
        assert_eq!(as_file_name("request took 1.5 s"), "request-took-1-5-s");
        assert_eq!(as_file_name("../../etc/passwd"), "etc-passwd");
        assert_eq!(as_file_name("\u{1f40c} …"), "dump");
        assert_eq!(as_file_name(&"long ".repeat(100)).len(), 59);
    }

    #[test]
    fn times_beyond_the_clock_are_its_end() {
        assert_eq!(to_ns(Duration::from_secs(18_446_744_074)), u64::MAX);
        assert_eq!(to_ns(Duration::from_secs(2)), 2_000_000_000);
    }
}
