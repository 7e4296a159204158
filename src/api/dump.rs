//! Dumps: the seconds before something went wrong.

use std::panic::PanicHookInfo;
use std::path::PathBuf;
use std::sync::Once;
use std::time::Duration;

use crate::api::backend;
use crate::types::{DumpError, DumpSettings};

/// Longest time that a thread which panics waits for the dump.
const PANIC_WAIT: Duration = Duration::from_secs(10);

/// Writes the last seconds of all threads to a file: samples, markers, contexts and counters.
///
/// ```no_run
/// use std::time::Duration;
/// use gekkota::dump::{DumpError, profiler_dump};
///
/// fn note_slow_request(route: &str, took: Duration) {
///     match profiler_dump(Duration::from_secs(10), &format!("{route} took {took:?}")) {
///         Ok(path) => eprintln!("the profile will be {}", path.display()),
///         Err(DumpError::TooSoon { .. }) => {}
///         Err(error) => eprintln!("{error}"),
///     }
/// }
/// ```
///
/// Returns the path of the file at once. A thread of the profiler writes it, and the file appears when
/// it is complete; a line on standard error says so. Its name has the process id, the time in UTC and
/// the reason. The calling thread's track gets a marker “Dump” with the reason.
///
/// The session goes on, so a program that keeps a session running at a low rate can look back whenever
/// something goes wrong. How far depends on the session's capacity: what the buffer has dropped is not in
/// the file. [`profiler_set_dumps`] sets the folder, which is otherwise that for temporary files, and
/// further causes.
///
/// May be called from any thread, but not in a signal handler. Cost: the creation of a thread, some 50
/// µs; if a dump is refused, some loads.
///
/// # Errors
/// - [`DumpError::Inactive`]: no session runs.
/// - [`DumpError::TooSoon`]: the last dump was less than [`DumpSettings::min_interval`] ago, or is being
///   written.
/// - [`DumpError::Reentrant`]: the caller is code that the profiler runs, such as the application's
///   allocator.
/// - [`DumpError::System`]: the system refused a thread.
/// - [`DumpError::Unsupported`]: this build contains no profiler.
#[doc(alias = "flight recorder")]
pub fn profiler_dump(last: Duration, reason: &str) -> Result<PathBuf, DumpError> {
    let written = backend::dump(Some(last), reason)?;
    Ok(written.path().to_owned())
}

/// Sets where dumps go, and what causes one beside [`profiler_dump`]. `None` ends all other causes.
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
/// The settings hold until the next call, for each session. May be called from any thread. Cost: a lock.
/// With a limit of CPU time or memory, a thread of the profiler looks once a second.
///
/// # Errors
/// - [`DumpError::System`]: the system refused the thread that looks at the limits. Nothing has changed.
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
    static IS_INSTALLED: Once = Once::new();
    IS_INSTALLED.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            before(info);
            dump_at_panic(info);
        }));
    });
}

fn dump_at_panic(info: &PanicHookInfo<'_>) {
    if !backend::dumps_at_panic() {
        return;
    }
    let place = info.location().map_or_else(String::new, |location| {
        format!(" at {}:{}", location.file(), location.line())
    });
    if let Ok(written) = backend::dump(None, &format!("a thread panicked{place}")) {
        written.wait(PANIC_WAIT);
    }
}
