//! Dumps: the seconds before something went wrong.

use std::panic::PanicHookInfo;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::api::backend;
use crate::types::{DumpError, DumpSettings};

/// Longest time that a thread which panics waits for the dump.
const PANIC_WAIT: Duration = Duration::from_secs(10);

/// A dump that a thread of the profiler writes.
#[derive(Debug)]
pub struct ProfilerDump(backend::WrittenDump);

impl ProfilerDump {
    /// Returns the path of the file, which appears when it is complete.
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// Waits until the file is complete or cannot be written, for this time at most: a program that
    /// ends earlier leaves no file. Returns whether the file is there.
    pub fn wait(&self, longest: Duration) -> bool {
        self.0.wait(longest);
        self.path().exists()
    }
}

/// Writes the last seconds of all threads to a file: samples, markers, contexts and counters.
///
/// ```no_run
/// use std::time::Duration;
/// use gekkota::dump::{DumpError, profiler_dump};
///
/// fn note_slow_request(route: &str, took: Duration) {
///     match profiler_dump(Duration::from_secs(10), &format!("{route} took {took:?}")) {
///         Ok(dump) => eprintln!("the profile will be {}", dump.path().display()),
///         Err(DumpError::TooSoon { .. } | DumpError::Busy) => {}
///         Err(error) => eprintln!("{error}"),
///     }
/// }
/// ```
///
/// Returns at once. A thread of the profiler writes the file, which appears when it is complete; a
/// line on standard error says so. The name of the file has the process id, the time in UTC, a
/// number and the reason. The calling thread's track gets a marker “Dump” with the reason.
///
/// The session continues, so a program that keeps a session running at a low rate can look back
/// whenever something goes wrong. How far depends on the session's capacity: data that the buffer
/// has dropped are not in the file. [`profiler_set_dumps`] sets further causes, and the folder.
/// Default: the folder for temporary files. Callbacks for changes of the profiler's state are not
/// called.
///
/// May be called from any thread, but not in a signal handler. Cost: the creation of a
/// thread; if the last dump was too short a time ago, some loads.
///
/// # Errors
/// - [`DumpError::Inactive`]: no session runs.
/// - [`DumpError::TooSoon`]: the last dump was less than [`DumpSettings::min_interval`] ago.
/// - [`DumpError::Busy`]: another dump is being written.
/// - [`DumpError::Reentrant`]: the caller is code that the profiler runs, such as the application's
///   allocator.
/// - [`DumpError::System`]: the system refused a thread.
/// - [`DumpError::Unsupported`]: this build contains no profiler.
#[doc(alias = "flight recorder")]
pub fn profiler_dump(last: Duration, reason: &str) -> Result<ProfilerDump, DumpError> {
    backend::dump(Some(last), format_args!("{reason}")).map(ProfilerDump)
}

/// Sets where dumps go, and what causes a dump in addition to [`profiler_dump`]. `None` ends all
/// other causes.
///
/// ```no_run
/// use std::time::Duration;
/// use gekkota::dump::{DumpSettings, profiler_set_dumps};
///
/// profiler_set_dumps(Some(
///     DumpSettings::in_folder("/var/lib/server/profiles")
///         .last(Duration::from_secs(20))
///         .on_interval_longer_than(Duration::from_millis(500))
///         .on_panic(),
/// ))?;
/// # Ok::<(), gekkota::dump::DumpError>(())
/// ```
///
/// The settings hold until the next call, for each session. May be called from any thread. Cost: a
/// lock, which a start or a stop of the profiler may hold for some ms. With a limit of CPU time or
/// memory, a thread of the profiler checks it once a second. Of two calls at the same moment, the
/// second one holds as a whole.
///
/// With `MOZ_PROFILER_DUMP_SIGNAL`, [`profiler_init`](crate::api::life_cycle::profiler_init) sets
/// dumps that a signal causes, unless the application has called this function before.
///
/// # Errors
/// - [`DumpError::BadValue`]: the signal cannot be used. The settings before stay.
/// - [`DumpError::System`]: the system refused the thread that checks the limits, or the signal.
///   The settings before stay, but their limits or their signal may no longer have an effect.
/// - [`DumpError::Reentrant`]: the caller is code that the profiler runs, such as the application's
///   allocator.
/// - [`DumpError::Unsupported`]: this build contains no profiler.
pub fn profiler_set_dumps(settings: Option<DumpSettings>) -> Result<(), DumpError> {
    let on_panic = settings.as_ref().is_some_and(|settings| settings.on_panic);
    backend::set_dumps(settings)?;
    if on_panic {
        install_panic_hook();
    }
    Ok(())
}

fn install_panic_hook() {
    static IS_INSTALLED: AtomicBool = AtomicBool::new(false);
    // The standard library refuses a new hook then. A later call installs it.
    if std::thread::panicking() || IS_INSTALLED.swap(true, Ordering::AcqRel) {
        return;
    }
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        // The dump begins before the other hook, which may end the process, and is written while
        // that hook runs.
        let written = begin_dump_at_panic(info);
        before(info);
        if let Some(written) = written {
            written.wait(PANIC_WAIT);
        }
    }));
}

fn begin_dump_at_panic(info: &PanicHookInfo<'_>) -> Option<backend::WrittenDump> {
    if !backend::dumps_at_panic() {
        return None;
    }
    let (file, line) = match info.location() {
        Some(location) => (location.file(), location.line()),
        None => ("an unknown place", 0),
    };
    backend::dump(None, format_args!("a thread panicked at {file}:{line}")).ok()
}
