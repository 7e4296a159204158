//! Records file operations as `FileIO` markers.
//!
//! | Feature | Thread | Track of the marker |
//! |---|---|---|
//! | `mainthreadio` | the main thread | its own |
//! | `fileio` | any thread whose markers the session records | its own |
//! | `fileioall` | any other thread | the main thread's, with the thread's id |
//!
//! Each feature includes those above it. The first operation of a thread that has not registered
//! registers it, as its first marker does, so that it has a track of its own.

use std::path::Path;

use crate::api::backend;
use crate::markers::{BorrowedFileIO, MarkerDestination, MarkerTiming, NewMarker};
use crate::types::{
    Features, Generation, ProfilerTime, ProfilingCategoryPair, StackFeatures, ThreadId,
};

/// Records a file operation from its construction until it is dropped.
///
/// For I/O that does not go through a [`ProfiledFile`](crate::file_io::ProfiledFile): the functions
/// of `std::fs`, a database, a memory-mapped file.
///
/// ```
/// use gekkota::file_io::AutoProfilerFileIO;
///
/// fn remove(path: &str) -> std::io::Result<()> {
///     let _io = AutoProfilerFileIO::new("unlink", "Cache", path);
///     std::fs::remove_file(path)
/// }
/// # assert!(remove("no such file").is_err());
/// ```
///
/// The marker goes to the thread that drops the guard, with the stack at that point, unless the
/// session has the feature `nomarkerstacks`. It may set `errno`, so the application reads the
/// result of a system call before the guard is dropped. An operation that outlasts its session is
/// not recorded. Idea: Gecko's `IOInterposeObserver::Observation`, which also takes the stack at
/// the end.
#[doc(alias = "IOInterposeObserver")]
#[derive(Debug)]
#[must_use = "the marker is added when this is dropped"]
pub struct AutoProfilerFileIO<'a> {
    operation: &'a str,
    source: &'a str,
    filename: &'a Path,
    start: ProfilerTime,
    session: Generation,
}

impl<'a> AutoProfilerFileIO<'a> {
    /// Begins an operation. Returns `None` if no session records file operations of the calling
    /// thread.
    ///
    /// Gecko's operations are “create/open”, “read”, “write”, “fsync”, “stat” and “close”; any
    /// other word may be used. `source` names the component that does the I/O. An empty `filename`
    /// is left out of the marker.
    ///
    /// May be called from any thread. Cost: one relaxed load without a session, or without one of
    /// the features [`MAIN_THREAD_IO`](Features::MAIN_THREAD_IO), [`FILE_IO`](Features::FILE_IO)
    /// and [`FILE_IO_ALL`](Features::FILE_IO_ALL); otherwise the cost of a marker with a stack.
    #[inline(always)]
    pub fn new<P>(operation: &'a str, source: &'a str, filename: &'a P) -> Option<Self>
    where
        P: AsRef<Path> + ?Sized,
    {
        let session = session_that_records()?;
        Some(Self {
            operation,
            source,
            filename: filename.as_ref(),
            start: ProfilerTime::now(),
            session,
        })
    }
}

impl Drop for AutoProfilerFileIO<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        // First: what follows is not part of the operation.
        let end = ProfilerTime::now();
        let timing = MarkerTiming::interval(self.start, end);
        if let Some(place) = Place::find(self.session, &timing) {
            let stack = backend::record_own_stack(&place.destination, StackFeatures::FULL);
            place.put(&timing, stack, self.operation, self.source, self.filename);
        }
    }
}

/// Records a file operation of the calling thread that took from `start` to `end`.
///
/// For I/O that another component measures. The marker has the stack of the caller, unless the
/// session has the feature `nomarkerstacks`. Does nothing if no session records file operations of
/// the calling thread. The arguments are those of [`AutoProfilerFileIO::new`].
///
/// ```
/// use gekkota::ProfilerTime;
///
/// let start = ProfilerTime::now();
/// let is_file = std::path::Path::new("Cargo.toml").is_file();
/// gekkota::file_io::add_file_io_marker("stat", "Settings", "Cargo.toml", start, ProfilerTime::now());
/// # assert!(is_file);
/// ```
///
/// May be called from any thread. Cost: one relaxed load without a session, or without the
/// features; otherwise the cost of a marker with a stack. Idea: Gecko's `IOInterposer::Report`.
#[doc(alias = "IOInterposer")]
#[inline(always)]
pub fn add_file_io_marker<P>(
    operation: &str,
    source: &str,
    filename: &P,
    start: ProfilerTime,
    end: ProfilerTime,
) where
    P: AsRef<Path> + ?Sized,
{
    let timing = MarkerTiming::interval(start, end);
    let place = |session| Place::find(session, &timing);
    if let Some(place) = session_that_records().and_then(place) {
        let stack = backend::record_own_stack(&place.destination, StackFeatures::FULL);
        place.put(&timing, stack, operation, source, filename.as_ref());
    }
}

/// Returns the session if it records file operations of the calling thread, paused or not.
#[inline(always)]
fn session_that_records() -> Option<Generation> {
    // Each of the other features implies this one.
    match backend::features_if_active() {
        Some(features) if features.contains(Features::MAIN_THREAD_IO) => session_with(features),
        _ => None,
    }
}

#[inline(never)]
fn session_with(features: Features) -> Option<Generation> {
    match features.contains(Features::FILE_IO) || backend::is_main_thread() {
        true => backend::running_session(),
        false => None,
    }
}

/// The track that shows an operation of the calling thread.
#[derive(Debug)]
struct Place {
    destination: MarkerDestination,
    /// The marker's name, which says whether the track is another thread's, as in Gecko.
    name: &'static str,
    /// The calling thread, if the track is another thread's.
    thread_id: Option<ThreadId>,
}

impl Place {
    /// Returns the track, or `None` if this session no longer runs, is paused, does not record the
    /// operation, or leaves it out.
    #[inline(never)]
    fn find(session: Generation, timing: &MarkerTiming) -> Option<Self> {
        let features = backend::features_if_active_and_unpaused()?;
        if !features.contains(Features::FILE_IO) && !backend::is_main_thread() {
            return None;
        }
        let of_thread = |thread| backend::marker_destination_in(session, thread);
        if let Some(destination) = of_thread(ThreadId::UNSPECIFIED) {
            let name = "FileIO";
            return Some(Self {
                destination: backend::chosen(&destination, name, timing)?,
                name,
                thread_id: None,
            });
        }
        if !features.contains(Features::FILE_IO_ALL) || backend::is_locked_on_current_thread() {
            return None;
        }
        let name = match backend::is_thread_registered() {
            true => "FileIO (non-profiled thread)",
            false => "FileIO (unregistered thread)",
        };
        let destination = of_thread(backend::main_thread_id())?;
        Some(Self {
            destination: backend::chosen(&destination, name, timing)?,
            name,
            thread_id: Some(backend::own_thread_id()),
        })
    }

    #[inline(never)]
    fn put(
        &self,
        timing: &MarkerTiming,
        stack: u64,
        operation: &str,
        source: &str,
        filename: &Path,
    ) {
        let filename = filename.to_string_lossy();
        let payload = BorrowedFileIO {
            operation,
            source,
            filename: Some(&*filename).filter(|filename| !filename.is_empty()),
            thread_id: self.thread_id,
        };
        let marker = NewMarker {
            name: self.name,
            category: ProfilingCategoryPair::Other(None).indices().0,
            timing,
            stack,
        };
        backend::put_file_io_marker(&self.destination, &marker, &payload);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sessions of other tests, which may run at the same time, do not have the features.
    #[test]
    fn without_the_features_no_operation_begins() {
        assert!(AutoProfilerFileIO::new("read", "test", "file").is_none());
        assert_eq!(session_that_records(), None);
    }
}
