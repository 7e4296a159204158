//! Getting the profile out while the session goes on.

use std::io::Write;
use std::path::Path;

use crate::api::engine;
use crate::base::{SaveError, StreamError};

/// Whether addresses get names.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum Symbolicate {
    /// Names of functions, inlined ones included, from the debug information and symbol tables on this machine. Each
    /// distinct address is looked up once; the first look into a large executable takes seconds and memory.
    #[default]
    Full,
    /// Addresses stay as they are; the viewer asks a symbol server, such as `samply load` starts.
    No,
}

/// How a profile is to be written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct SnapshotOptions {
    /// Whether addresses get names.
    pub symbolicate: Symbolicate,
}

impl SnapshotOptions {
    /// The same options with this.
    #[must_use]
    pub fn symbolicate(mut self, symbolicate: Symbolicate) -> Self {
        self.symbolicate = symbolicate;
        self
    }

    pub(super) fn wants_names(self) -> bool {
        self.symbolicate == Symbolicate::Full
    }
}

/// Writes the profile so far, in the Gecko format that <https://profiler.firefox.com> opens. The session goes on.
///
/// May be called from any thread, also from several at once; samples and markers do not wait for it. The text is
/// streamed; memory grows with the number of distinct stacks, and by about 10 bytes a sample.
///
/// # Errors
/// [`StreamError::Inactive`], or the writer's first failure as [`StreamError::Io`].
pub fn profiler_stream_json(out: &mut dyn Write, options: &SnapshotOptions) -> Result<(), StreamError> {
    let profile = engine::freeze(None).ok_or(StreamError::Inactive)?;
    profile.write(options.wants_names(), out).map_err(StreamError::Io)
}

/// The profile so far, as [`profiler_stream_json`] writes it, with names unless `MOZ_PROFILER_SYMBOLICATE` is `0`; `None`
/// when the profiler is not active.
pub fn profiler_get_profile() -> Option<Vec<u8>> {
    let mut text = Vec::new();
    let profile = engine::freeze(None)?;
    profile.write(engine::wants_names(), &mut text).ok().map(|()| text)
}

/// Saves the profile so far to a file, readable by its owner alone. The session goes on.
///
/// The first `%p` in the path becomes the process's id; a name that ends in `.gz` gets the file compressed. It is written
/// beside its place and moved there, so it is whole or absent. Functions have names unless `MOZ_PROFILER_SYMBOLICATE` is `0`.
///
/// # Errors
/// [`SaveError`] tells which file could not be made or written, and why.
pub fn profiler_save_profile_to_file(path: impl AsRef<Path>) -> Result<(), SaveError> {
    let profile = engine::freeze(None).ok_or(SaveError::Inactive)?;
    profile.save(path.as_ref(), engine::wants_names()).map(drop)
}
