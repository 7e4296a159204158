//! How a profile is written.

use std::path::Path;
use std::sync::Arc;

use crate::model::ProfileModel;
use crate::session::embedded_sources::read_sources;
use crate::session::env::wants_names;
use crate::session::save::{expand_path, is_compressed};
use crate::stream::StreamOptions;
use crate::types::{ExportOptions, Format, SaveError, Symbolicate};
use crate::util::ProgressLocation;

/// How a profile is written.
#[derive(Debug)]
pub(crate) struct WriteOptions {
    pub(crate) format: Format,
    /// What a session's profile contains. A profile from a file has no other choice than its
    /// progress.
    pub(crate) stream: StreamOptions,
    /// Not used for Gecko's format of a session.
    pub(crate) export: ExportOptions,
}

/// Returns the default options: the whole session in Gecko's format, with function names unless the
/// environment disables them.
pub(crate) fn default_options() -> WriteOptions {
    WriteOptions {
        format: Format::Gecko,
        stream: StreamOptions::whole(match wants_names() {
            true => Symbolicate::Full,
            false => Symbolicate::No,
        }),
        export: ExportOptions::default(),
    }
}

/// Returns the default options for a file, with the format that its name selects.
///
/// # Errors
/// Those of [`WriteOptions::for_file`].
pub(crate) fn default_options_for(path: &Path) -> Result<WriteOptions, SaveError> {
    let options = default_options().for_file(path)?;
    Ok(WriteOptions {
        export: ExportOptions {
            is_compressed_later: options.export.is_compressed_later,
            ..ExportOptions::usual_for(options.format)
        },
        ..options
    })
}

impl WriteOptions {
    /// Returns what a writer needs to write this profile, with the texts of source files if they
    /// are wanted. `done` is the progress so far.
    pub(super) fn export_of(&self, profile: &ProfileModel, done: f32) -> ExportOptions {
        let mut export = self.export.clone();
        let rows: usize = profile.threads.iter().map(|one| one.samples.len()).sum();
        // A writer reads them once or twice.
        let writing = self
            .stream
            .progress
            .sub_logger(done, 1.0, ProgressLocation::Samples);
        export.progress = Some(Arc::new(
            writing.counter(2 * rows, ProgressLocation::Samples),
        ));
        if self.format == Format::Processed && export.max_source_bytes > 0 {
            export.sources = read_sources(profile, export.max_source_bytes);
        }
        export
    }

    /// Sets the format that a file's name selects.
    ///
    /// # Errors
    /// [`SaveError::UnknownEnding`], or [`SaveError::MissingFeature`]
    pub(crate) fn for_file(mut self, path: &Path) -> Result<Self, SaveError> {
        let path = &expand_path(path);
        self.format = Format::of_path(path).ok_or_else(|| SaveError::UnknownEnding {
            path: path.to_owned(),
            known: Format::endings(),
        })?;
        if let Some(feature) = self.format.missing_feature() {
            let path = path.to_owned();
            return Err(SaveError::MissingFeature { path, feature });
        }
        self.export.is_compressed_later = is_compressed(path);
        Ok(self)
    }
}
