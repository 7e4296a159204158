//! A profile that was read from a file.

use std::fmt;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::export::{
    Diff, DiffOptions, compare, explain, read_profile_file, read_profile_from, summarize,
    write_profile,
};
use crate::model::ProfileModel;
use crate::platform::StandardStream;
use crate::session::env::look_on;
use crate::session::saving::save::{WriteOptions, save_profile};
use crate::types::{Explanation, Format, Look, ReadError, SaveError, ThreadSummary, Wanted};

/// A profile from a file. Clones share its memory.
#[derive(Clone)]
pub(crate) struct ReadProfile(Arc<ProfileModel>);

impl fmt::Debug for ReadProfile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let threads = self.0.threads.iter().map(|thread| &thread.name);
        f.debug_list().entries(threads).finish()
    }
}

impl ReadProfile {
    pub(crate) fn of_model(profile: ProfileModel) -> Self {
        Self(Arc::new(profile))
    }

    pub(crate) fn read(path: &Path) -> Result<Self, ReadError> {
        read_profile_file(path).map(Self::of_model)
    }

    pub(crate) fn read_from(stream: impl Read) -> Result<Self, ReadError> {
        read_profile_from(stream).map(Self::of_model)
    }

    /// Writes the profile. In Gecko's format, only a session's own data can be written.
    pub(crate) fn write(&self, options: &WriteOptions, out: &mut dyn Write) -> io::Result<()> {
        let export = options.export_of(&self.0, 0.0);
        write_profile(&self.0, options.format, &export, out)
    }

    /// Writes the profile to a file, in the format that the file's name selects. If the name
    /// selects Gecko's format, writes the processed one.
    pub(crate) fn save_with(
        &self,
        options: WriteOptions,
        path: &Path,
    ) -> Result<PathBuf, SaveError> {
        let mut options = options.for_file(path)?;
        if options.format == Format::Gecko {
            options.format = Format::Processed;
        }
        save_profile(path, |out| self.write(&options, out))
    }

    /// Returns this profile, as [`FrozenProfile`](crate::session::FrozenProfile) returns its own.
    pub(crate) fn to_read(&self) -> io::Result<Self> {
        Ok(self.clone())
    }

    /// Compares the profile with a later one, by times per unit of work if its marker is named.
    pub(crate) fn compare(&self, after: &Self, unit_of_work: Option<&str>) -> io::Result<Diff> {
        let options = DiffOptions {
            unit_of_work: unit_of_work.map(str::to_owned),
            ..DiffOptions::default()
        };
        compare(&self.0, &after.0, &options)
    }

    /// Explains where the time of a request went.
    pub(crate) fn explain(&self, wanted: &Wanted) -> io::Result<Explanation> {
        explain(&self.0, wanted)
    }

    /// Returns the summary as a plain text, and as a text for standard output if that is a
    /// terminal.
    pub(crate) fn texts(&self) -> io::Result<(String, Option<String>)> {
        let text = |look| {
            let mut text = Vec::new();
            self.write(&WriteOptions::of_summary(look), &mut text)?;
            io::Result::Ok(String::from_utf8_lossy(&text).into_owned())
        };
        let look = look_on(StandardStream::Output);
        let of_terminal = (look != Look::Plain).then(|| text(look));
        Ok((text(Look::Plain)?, of_terminal.transpose()?))
    }

    pub(crate) fn summarize(&self) -> Vec<ThreadSummary> {
        summarize(&self.0)
    }
}
