//! Dumps: the last seconds of the session, written to a file when something went wrong.
//!
//! The caller only decides whether a dump is due, and starts a thread of the profiler that writes it.
//! Dumps are as rare as the settings say, whatever causes them.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::platform::{Receiver, channel, current_process_id, monotonic_now, utc_now};
use crate::session::notices;
use crate::session::running::running_generation;
use crate::session::save::save_at;
use crate::session::snapshot::freeze;
use crate::session::task::spawn_task;
use crate::session::write_options::{WriteOptions, default_options_for};
use crate::types::{DumpError, DumpSettings, Generation, SaveError, TimeStamp};
use crate::util::{PsCell, PsLock, is_any_lock_held_on_current_thread};

/// Maximum length of the reason in the name of a file, in characters.
const MAX_REASON_CHARS: usize = 60;

/// The settings, and the files that this process has written.
struct Dumps {
    settings: DumpSettings,
    files: VecDeque<PathBuf>,
}

static DUMPS: PsCell<Option<Dumps>> = PsCell::new(None);

/// Intervals that are longer than this cause a dump, in ns. The maximum means that none does.
static LONG_INTERVAL_NS: AtomicU64 = AtomicU64::new(u64::MAX);

/// Time before which no dump begins, in ns.
static NOT_BEFORE_NS: AtomicU64 = AtomicU64::new(0);

/// Whether a dump is being written.
static IS_WRITING: AtomicBool = AtomicBool::new(false);

/// Number of causes since the last dump that were too soon.
static REFUSED: AtomicU64 = AtomicU64::new(0);

/// Sets where dumps go and what causes them; `None` for no more causes.
pub(super) fn keep_settings(settings: Option<DumpSettings>) {
    let limit = settings
        .as_ref()
        .and_then(|settings| settings.long_interval);
    let limit_ns = limit.map_or(u64::MAX, |limit| limit.as_nanos() as u64);
    {
        let mut lock = PsLock::acquire();
        let dumps = DUMPS.get_mut(&mut lock);
        let files = dumps.take().map(|dumps| dumps.files).unwrap_or_default();
        *dumps = settings.map(|settings| Dumps { settings, files });
    }
    NOT_BEFORE_NS.store(0, Ordering::Relaxed);
    LONG_INTERVAL_NS.store(limit_ns, Ordering::Relaxed);
}

/// Returns the settings. Without any, those for dumps in the folder for temporary files.
pub(crate) fn dump_settings() -> DumpSettings {
    let lock = PsLock::acquire();
    let dumps = DUMPS.get(&lock).as_ref();
    let settings = dumps.map(|dumps| dumps.settings.clone());
    drop(lock);
    settings.unwrap_or_else(|| DumpSettings::in_folder(std::env::temp_dir()))
}

/// Returns whether an interval of this length is a reason to dump.
#[inline(always)]
pub(crate) fn is_long_interval(ns: u64) -> bool {
    ns > LONG_INTERVAL_NS.load(Ordering::Relaxed)
}

/// Returns whether a panic causes a dump.
pub(crate) fn dumps_at_panic() -> bool {
    !is_any_lock_held_on_current_thread() && dump_settings().on_panic
}

/// A dump that is allowed now. Dropping it without [`DumpPermit::write`] allows another one at once.
#[derive(Debug)]
pub(crate) struct DumpPermit {
    session: Generation,
    now: TimeStamp,
    settings: DumpSettings,
    /// Number of causes since the last dump that were too soon.
    pub(crate) refused: u64,
    is_used: bool,
}

/// A dump that is being written.
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

/// Decides whether a dump may be written now.
///
/// # Errors
/// [`DumpError::Inactive`], [`DumpError::TooSoon`] or [`DumpError::Reentrant`]
pub(crate) fn permit_dump() -> Result<DumpPermit, DumpError> {
    if is_any_lock_held_on_current_thread() {
        return Err(DumpError::Reentrant);
    }
    let session = running_generation().ok_or(DumpError::Inactive)?;
    let now = monotonic_now();
    let too_soon = |wait_ns: u64| {
        REFUSED.fetch_add(1, Ordering::Relaxed);
        let wait = Duration::from_nanos(wait_ns);
        Err(DumpError::TooSoon { wait })
    };
    // Without the lock: causes may be frequent.
    let wait_ns = NOT_BEFORE_NS.load(Ordering::Relaxed).saturating_sub(now.0);
    if wait_ns > 0 {
        return too_soon(wait_ns);
    }
    if IS_WRITING.swap(true, Ordering::AcqRel) {
        return too_soon(0);
    }
    let settings = dump_settings();
    let min_ns = settings.min_interval.as_nanos() as u64;
    NOT_BEFORE_NS.store(now.0.saturating_add(min_ns), Ordering::Relaxed);
    Ok(DumpPermit {
        session,
        now,
        settings,
        refused: REFUSED.swap(0, Ordering::Relaxed),
        is_used: false,
    })
}

impl DumpPermit {
    /// Starts a thread that writes the dump: the time `last` before now, or as long as the settings say.
    ///
    /// # Errors
    /// [`DumpError::System`] if the system refuses the thread.
    pub(crate) fn write(
        mut self,
        last: Option<Duration>,
        reason: &str,
    ) -> Result<WrittenDump, DumpError> {
        let last = last.unwrap_or(self.settings.last);
        let since = TimeStamp(self.now.0.saturating_sub(last.as_nanos() as u64));
        let path = self.settings.folder.join(file_name(reason));
        let (done, is_done) = channel();
        let (session, file, reason) = (self.session, path.clone(), reason.to_owned());
        let task = move || {
            write_dump(session, since, &file, &reason);
            IS_WRITING.store(false, Ordering::Release);
            done.send(());
        };
        spawn_task(task).map_err(|error| DumpError::System {
            action: "create a thread that writes the dump",
            answer: error.to_string(),
        })?;
        self.is_used = true;
        Ok(WrittenDump { path, is_done })
    }
}

impl Drop for DumpPermit {
    fn drop(&mut self) {
        if !self.is_used {
            NOT_BEFORE_NS.store(0, Ordering::Relaxed);
            IS_WRITING.store(false, Ordering::Release);
        }
    }
}

/// Allows dumps in the child of a fork, where no thread writes one.
pub(crate) fn forget_dumps_in_child(lock: &mut PsLock) {
    IS_WRITING.store(false, Ordering::Relaxed);
    if let Some(dumps) = DUMPS.get_mut(lock) {
        // The parent removes its own files.
        dumps.files.clear();
    }
}

fn write_dump(session: Generation, since: TimeStamp, path: &Path, reason: &str) {
    let Some(profile) = freeze(Some(session)) else {
        return notices::notify("cannot dump: the session has stopped");
    };
    match options_for(path, since)
        .and_then(|options| save_at(path.to_owned(), |out| profile.write_once(&options, out)))
    {
        Ok(path) => {
            notices::notify(&format!("dumped as {}, because {reason}", path.display()));
            remove_oldest(path);
        }
        Err(error) => notices::notify(&format!("{error}, for a dump because {reason}")),
    }
}

fn options_for(path: &Path, since: TimeStamp) -> Result<WriteOptions, SaveError> {
    let mut options = default_options_for(path)?;
    options.stream.since = Some(since);
    Ok(options)
}

/// Notes a file, and removes the oldest of those that are too many.
fn remove_oldest(path: PathBuf) {
    let removed: Vec<_> = {
        let mut lock = PsLock::acquire();
        let Some(dumps) = DUMPS.get_mut(&mut lock) else {
            return;
        };
        dumps.files.push_back(path);
        let too_many = dumps
            .files
            .len()
            .saturating_sub(dumps.settings.max_files.max(1));
        dumps.files.drain(..too_many).collect()
    };
    for path in removed {
        // It may have been moved or removed by the user.
        let _ = std::fs::remove_file(path);
    }
}

/// Returns the name of a dump's file: the process, the time, and the reason.
fn file_name(reason: &str) -> String {
    let [year, month, day, hour, minute, second] = utc_now();
    let process = current_process_id().to_number();
    let ending = match cfg!(feature = "gzip") {
        true => "json.gz",
        false => "json",
    };
    format!(
        "dump_{process}_{year:04}-{month:02}-{day:02}T{hour:02}-{minute:02}-{second:02}Z_{}.{ending}",
        as_file_name(reason)
    )
}

/// Returns a text that every file system accepts, and that a shell takes as one word.
fn as_file_name(reason: &str) -> String {
    let mut name = String::new();
    for character in reason.chars() {
        let is_plain = character.is_ascii_alphanumeric();
        if is_plain {
            name.push(character);
        } else if !name.is_empty() && !name.ends_with('-') {
            name.push('-');
        }
        if name.len() >= MAX_REASON_CHARS {
            break;
        }
    }
    let name = name.trim_end_matches('-');
    match name {
        "" => "dump".to_owned(),
        name => name.to_owned(),
    }
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
}
