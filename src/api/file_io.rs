//! Records file operations as `FileIO` markers, those of a `ProfiledFile` by itself.
//!
//! | Feature | Thread | Track of the marker |
//! |---|---|---|
//! | `mainthreadio` | the main thread | its own |
//! | `fileio` | any thread whose markers the session records | its own |
//! | `fileioall` | any other thread | the main thread's, with the thread's id |
//!
//! Each feature includes those above it. The first operation of a thread that has not registered
//! registers it, as its first marker does, so that it has a track of its own.

use std::fmt::Arguments;
use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, IoSlice, IoSliceMut, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use crate::api::backend;
use crate::markers::{BorrowedFileIO, MarkerDestination, MarkerTiming, NewMarker};
use crate::types::{
    Features, Generation, ProfilerTime, ProfilingCategoryPair, StackFeatures, ThreadId,
};

/// Records a file operation from its construction until it is dropped.
///
/// For I/O that does not go through a [`ProfiledFile`]: the functions of `std::fs`, a database, a
/// memory-mapped file.
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
        let of_thread = |thread| backend::marker_destination(Some(session), thread);
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

/// The component that the markers name.
const SOURCE: &str = "ProfiledFile";

/// A [`File`], or another reader or writer, whose operations become `FileIO` markers with stacks.
///
/// ```
/// use std::io::{BufReader, Read, Write};
///
/// use gekkota::file_io::ProfiledFile;
/// use gekkota::{Features, ProfilerSession, StartParams};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # if Features::available() == Features::NONE { return Ok(()); }
/// # let path = std::env::temp_dir().join(format!("profiled-{}.txt", std::process::id()));
/// let features = Features::default_set() | Features::FILE_IO;
/// let session = ProfilerSession::start(StartParams::default().features(features))?;
///
/// let mut file = ProfiledFile::create(&path)?;
/// file.write_all(b"recorded")?;
/// file.sync_all()?;
/// drop(file); // closes the file, which is recorded, too
///
/// // The wrapper is below the buffer, where the system calls are.
/// let mut text = String::new();
/// BufReader::new(ProfiledFile::open(&path)?).read_to_string(&mut text)?;
/// # assert_eq!(text, "recorded");
/// # std::fs::remove_file(&path)?;
///
/// // Has “create/open”, “write”, “fsync”, “close” and “read” on this thread's track.
/// let profile = session.finish()?;
/// # let mut text = Vec::new();
/// # profile.write(gekkota::profile::Format::Gecko, &mut text)?;
/// # let text = String::from_utf8(text)?;
/// # for operation in ["create/open", "write", "fsync", "close", "read"] {
/// #     assert!(text.contains(&format!("\"operation\":\"{operation}\"")), "{operation}");
/// # }
/// # Ok(())
/// # }
/// ```
///
/// Which threads' operations are recorded depends on the session's features:
/// [`MAIN_THREAD_IO`](crate::Features::MAIN_THREAD_IO), [`FILE_IO`](crate::Features::FILE_IO) or
/// [`FILE_IO_ALL`](crate::Features::FILE_IO_ALL). Each call of a method is one marker, however short
/// it was, also if it fails; results and errors are the inner value's. The stack is that at the end
/// of the operation. [`record`](Self::record) records what has no method here.
///
/// Cost: opening allocates the path. Without a session, or without these features, an operation costs
/// one relaxed load more than the inner value's; otherwise it costs a marker with a stack, some
/// microseconds. Idea: Gecko's `PoisonIOInterposer`, which replaces the functions of the C library
/// in the whole process instead.
#[doc(alias = "PoisonIOInterposer", alias = "NSPRInterposer")]
#[derive(Debug)]
pub struct ProfiledFile<F = File> {
    /// `None` only while the wrapper is dropped, or turned into the inner value.
    inner: Option<F>,
    path: PathBuf,
}

impl ProfiledFile {
    /// Opens a file for reading, as [`File::open`] does. Recorded as “create/open”.
    ///
    /// # Errors
    /// Those of [`File::open`].
    #[inline]
    pub fn open<P: AsRef<Path>>(path: P) -> io::Result<Self> {
        Self::open_with(OpenOptions::new().read(true), path)
    }

    /// Creates a file for writing, or empties the existing one, as [`File::create`] does. Recorded
    /// as “create/open”.
    ///
    /// # Errors
    /// Those of [`File::create`].
    #[inline]
    pub fn create<P: AsRef<Path>>(path: P) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        Self::open_with(options.write(true).create(true).truncate(true), path)
    }

    /// Creates a file for reading and writing that must not exist, as [`File::create_new`] does.
    /// Recorded as “create/open”.
    ///
    /// # Errors
    /// Those of [`File::create_new`].
    #[inline]
    pub fn create_new<P: AsRef<Path>>(path: P) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        Self::open_with(options.read(true).write(true).create_new(true), path)
    }

    /// Opens a file with these options. Recorded as “create/open”.
    ///
    /// # Errors
    /// Those of [`OpenOptions::open`].
    #[inline]
    pub fn open_with<P: AsRef<Path>>(options: &OpenOptions, path: P) -> io::Result<Self> {
        let path = path.as_ref();
        let file = {
            let _io = AutoProfilerFileIO::new("create/open", SOURCE, path);
            options.open(path)
        }?;
        Ok(Self::new(file, path))
    }

    /// Writes the file's data and metadata to the disk. Recorded as “fsync”.
    ///
    /// # Errors
    /// Those of [`File::sync_all`].
    #[inline]
    pub fn sync_all(&self) -> io::Result<()> {
        self.record("fsync", File::sync_all)
    }

    /// Writes the file's data to the disk. Recorded as “fdatasync”.
    ///
    /// # Errors
    /// Those of [`File::sync_data`].
    #[inline]
    pub fn sync_data(&self) -> io::Result<()> {
        self.record("fdatasync", File::sync_data)
    }

    /// Cuts or extends the file to this many bytes. Recorded as “truncate”.
    ///
    /// # Errors
    /// Those of [`File::set_len`].
    #[inline]
    pub fn set_len(&self, bytes: u64) -> io::Result<()> {
        self.record("truncate", |file| file.set_len(bytes))
    }

    /// Returns the file's metadata. Recorded as “stat”.
    ///
    /// # Errors
    /// Those of [`File::metadata`].
    #[inline]
    pub fn metadata(&self) -> io::Result<Metadata> {
        self.record("stat", File::metadata)
    }

    /// Duplicates the descriptor, under the same path. Not recorded, because it accesses no file.
    ///
    /// # Errors
    /// Those of [`File::try_clone`].
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self::new(self.get_ref().try_clone()?, &self.path))
    }
}

impl<F> ProfiledFile<F> {
    /// Wraps an open file, or another reader or writer. `path` is the name that the markers show.
    /// Not recorded.
    pub fn new<P: AsRef<Path>>(inner: F, path: P) -> Self {
        Self {
            inner: Some(inner),
            path: path.as_ref().to_owned(),
        }
    }

    /// Returns the path, as the application gave it.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the inner value. What is done with it is not recorded.
    #[inline]
    pub fn get_ref(&self) -> &F {
        self.inner.as_ref().expect(HAS_INNER)
    }

    /// Returns the inner value. What is done with it is not recorded.
    #[inline]
    pub fn get_mut(&mut self) -> &mut F {
        self.inner.as_mut().expect(HAS_INNER)
    }

    /// Unwraps the inner value, which stays open. Not recorded.
    pub fn into_inner(mut self) -> F {
        self.inner.take().expect(HAS_INNER)
    }

    /// Records what `body` does with the inner value as one operation, and returns the result.
    ///
    /// ```
    /// # fn main() -> std::io::Result<()> {
    /// use std::io::Read;
    ///
    /// let file = gekkota::file_io::ProfiledFile::open("Cargo.toml")?;
    /// let mut head = String::new();
    /// file.record("read the head", |file| file.take(9).read_to_string(&mut head))?;
    /// # assert_eq!(head, "[package]");
    /// # Ok(())
    /// # }
    /// ```
    #[inline]
    pub fn record<T>(&self, operation: &str, body: impl FnOnce(&F) -> T) -> T {
        let _io = AutoProfilerFileIO::new(operation, SOURCE, &self.path);
        body(self.get_ref())
    }

    #[inline(always)]
    fn record_mut<T>(&mut self, operation: &str, body: impl FnOnce(&mut F) -> T) -> T {
        let _io = AutoProfilerFileIO::new(operation, SOURCE, &self.path);
        body(self.inner.as_mut().expect(HAS_INNER))
    }
}

const HAS_INNER: &str = "a `ProfiledFile` has its inner value until it is dropped";

/// Drops the inner value. Recorded as “close”.
impl<F> Drop for ProfiledFile<F> {
    #[inline]
    fn drop(&mut self) {
        if let Some(inner) = self.inner.take() {
            let _io = AutoProfilerFileIO::new("close", SOURCE, &self.path);
            drop(inner);
        }
    }
}

/// Each method is recorded as “read”.
impl<F: Read> Read for ProfiledFile<F> {
    #[inline]
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.record_mut("read", |inner| inner.read(buffer))
    }

    #[inline]
    fn read_vectored(&mut self, buffers: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        self.record_mut("read", |inner| inner.read_vectored(buffers))
    }

    #[inline]
    fn read_to_end(&mut self, buffer: &mut Vec<u8>) -> io::Result<usize> {
        self.record_mut("read", |inner| inner.read_to_end(buffer))
    }

    #[inline]
    fn read_to_string(&mut self, buffer: &mut String) -> io::Result<usize> {
        self.record_mut("read", |inner| inner.read_to_string(buffer))
    }

    #[inline]
    fn read_exact(&mut self, buffer: &mut [u8]) -> io::Result<()> {
        self.record_mut("read", |inner| inner.read_exact(buffer))
    }
}

/// A flush is recorded as “flush”, each other method as “write”.
impl<F: Write> Write for ProfiledFile<F> {
    #[inline]
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.record_mut("write", |inner| inner.write(bytes))
    }

    #[inline]
    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        self.record_mut("write", |inner| inner.write_vectored(slices))
    }

    #[inline]
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.record_mut("write", |inner| inner.write_all(bytes))
    }

    #[inline]
    fn write_fmt(&mut self, arguments: Arguments<'_>) -> io::Result<()> {
        self.record_mut("write", |inner| inner.write_fmt(arguments))
    }

    #[inline]
    fn flush(&mut self) -> io::Result<()> {
        self.record_mut("flush", F::flush)
    }
}

/// A move is recorded as “seek”. A question for the position is not recorded.
impl<F: Seek> Seek for ProfiledFile<F> {
    #[inline]
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.record_mut("seek", |inner| inner.seek(to))
    }

    #[inline]
    fn rewind(&mut self) -> io::Result<()> {
        self.record_mut("seek", F::rewind)
    }

    #[inline]
    fn stream_position(&mut self) -> io::Result<u64> {
        self.get_mut().stream_position()
    }

    #[inline]
    fn seek_relative(&mut self, offset: i64) -> io::Result<()> {
        self.record_mut("seek", |inner| inner.seek_relative(offset))
    }
}

/// Reads through a shared reference, as `&File` does.
impl Read for &ProfiledFile {
    #[inline]
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.record("read", |mut file| file.read(buffer))
    }

    #[inline]
    fn read_vectored(&mut self, buffers: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        self.record("read", |mut file| file.read_vectored(buffers))
    }

    #[inline]
    fn read_to_end(&mut self, buffer: &mut Vec<u8>) -> io::Result<usize> {
        self.record("read", |mut file| file.read_to_end(buffer))
    }

    #[inline]
    fn read_to_string(&mut self, buffer: &mut String) -> io::Result<usize> {
        self.record("read", |mut file| file.read_to_string(buffer))
    }

    #[inline]
    fn read_exact(&mut self, buffer: &mut [u8]) -> io::Result<()> {
        self.record("read", |mut file| file.read_exact(buffer))
    }
}

/// Writes through a shared reference, as `&File` does.
impl Write for &ProfiledFile {
    #[inline]
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.record("write", |mut file| file.write(bytes))
    }

    #[inline]
    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        self.record("write", |mut file| file.write_vectored(slices))
    }

    #[inline]
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.record("write", |mut file| file.write_all(bytes))
    }

    #[inline]
    fn flush(&mut self) -> io::Result<()> {
        self.record("flush", |mut file| file.flush())
    }
}

/// Moves through a shared reference, as `&File` does.
impl Seek for &ProfiledFile {
    #[inline]
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.record("seek", |mut file| file.seek(to))
    }

    #[inline]
    fn stream_position(&mut self) -> io::Result<u64> {
        self.get_ref().stream_position()
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
