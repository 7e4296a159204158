//! Saves a profile to a file. Writes a temporary file in the same folder, which then takes the
//! place of the file, so the file is complete or absent.
//!
//! If the folder is not writable, or the file is a mount point, no file can take its place. The
//! profile then goes to a temporary file elsewhere, and from there into the existing file. That
//! last copy needs no more memory, space or work of the profiler. Only a kill or a power failure
//! during the copy leaves the file incomplete, and only an error of the disk leaves it empty.
//!
//! If the process has no free descriptor, a thread with its own descriptor table writes the file.
//! The calling thread still generates the text, because that may run code of the application.

use std::ffi::OsStr;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::model::ProfileModel;
use crate::platform::{
    ExistingFile, SpecialFile, TemporaryFile, current_process_id, feed_own_descriptors,
    follow_links, is_out_of_descriptors, on_own_descriptors, remove_stale_files,
};
use crate::session::env::wants_names;
use crate::session::saving::embedded_sources::read_sources;
use crate::state::CorePs;
use crate::stream::{StreamOptions, is_out_of_memory};
use crate::types::{ExportOptions, Format, Look, SaveError, Symbolicate};
use crate::util::ProgressLocation;

/// Maximum length of a process's name or type in the name of a file. A name of a file may have 255
/// bytes.
const MAX_NAME_CHARS: usize = 32;

/// Writes the text of a profile. Called at most once.
type WriteText<'a> = &'a mut dyn FnMut(&mut dyn Write) -> io::Result<()>;

/// Replaces the first `%p` with the process id and, in the name of the file, the first `%n` with
/// the process's name and the first `%t` with its type.
pub(crate) fn expand_path(path: &Path) -> PathBuf {
    let Some(text) = path.to_str() else {
        return path.to_owned();
    };
    let process = current_process_id().to_number().to_string();
    let path = PathBuf::from(text.replacen("%p", &process, 1));
    let name = path.file_name().and_then(OsStr::to_str);
    let is_named = |name: &&str| ["%n", "%t"].iter().any(|part| name.contains(part));
    match name.filter(is_named) {
        Some(file) => {
            let (process_type, name) = CorePs::process_type_and_name();
            path.with_file_name(expand_name(file, &name, &process_type))
        }
        None => path,
    }
}

/// Replaces `%n` and `%t` from left to right, so that a name may contain them.
fn expand_name(text: &str, name: &str, process_type: &str) -> String {
    let mut expanded = String::with_capacity(text.len());
    let (mut rest, mut name, mut process_type) = (text, Some(name), Some(process_type));
    while let Some(at) = rest.find('%') {
        let (before, from) = rest.split_at(at);
        expanded += before;
        let value = match from.as_bytes().get(1) {
            Some(b'n') => name.take(),
            Some(b't') => process_type.take(),
            _ => None,
        };
        let taken = match value {
            Some(value) => {
                expanded.extend(value.chars().take(MAX_NAME_CHARS).map(as_part_of_file_name));
                2
            }
            None => {
                expanded.push('%');
                1
            }
        };
        rest = &from[taken..];
    }
    expanded + rest
}

/// Replaces a character that would begin a folder, or that a shell or a terminal treats specially.
fn as_part_of_file_name(character: char) -> char {
    match character.is_alphanumeric() || "-_+".contains(character) {
        true => character,
        false => '_',
    }
}

fn failed(path: &Path, action: &'static str, error: io::Error) -> SaveError {
    SaveError::Io {
        path: path.to_owned(),
        action,
        error,
    }
}

/// Creates the file with the output of `write`, and returns its absolute path.
///
/// Expands the path ([`expand_path`]). Follows symbolic links, except for those that another user
/// may have planted. Compresses the file if its name ends in `.gz`.
pub(crate) fn save_profile(
    path: &Path,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<PathBuf, SaveError> {
    save_with_any_descriptor(expand_path(path), save_followed, write)
}

/// Creates the file at exactly this path: does not expand it, and replaces a symbolic link
/// instead of following it.
///
/// Safe for a predictable name in a folder where other users may create links.
pub(crate) fn save_at(
    path: PathBuf,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<PathBuf, SaveError> {
    save_with_any_descriptor(path, save_exactly, write)
}

/// Calls `save`. If the process has no free descriptor, does so on a thread with its own
/// descriptor table.
fn save_with_any_descriptor(
    path: PathBuf,
    save: fn(PathBuf, WriteText<'_>) -> Result<PathBuf, SaveError>,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<PathBuf, SaveError> {
    let mut write = Some(write);
    let saved = save(path.clone(), &mut |out| match write.take() {
        Some(write) => write(out),
        None => Err(io::Error::other("the text was already written")),
    });
    let lacks_descriptor = matches!(
        &saved,
        Err(SaveError::Io { error, .. }) if is_out_of_descriptors(error)
    );
    match write.filter(|_| lacks_descriptor) {
        Some(write) => feed_own_descriptors(write, move |write| save(path, write)).unwrap_or(saved),
        None => saved,
    }
}

fn save_followed(requested: PathBuf, write: WriteText<'_>) -> Result<PathBuf, SaveError> {
    let path =
        follow_links(requested.clone()).map_err(|error| failed(&requested, "follow", error))?;
    if !SpecialFile::is_at(&path) {
        return save_exactly(path, write);
    }
    let mut file = SpecialFile::open(&path).map_err(|error| failed(&path, "open", error))?;
    // A pipe keeps the bytes that it has accepted, so the save is not repeated after a lack of
    // memory.
    let as_cause = |error: io::Error| match is_out_of_memory(&error) {
        true => io::Error::new(error.kind(), error),
        false => error,
    };
    fill(&mut file, &path, write).map_err(|error| failed(&path, "write", as_cause(error)))?;
    Ok(path)
}

fn save_exactly(path: PathBuf, write: WriteText<'_>) -> Result<PathBuf, SaveError> {
    if path.file_name().is_none() {
        let error = io::Error::other("the path has no file name");
        return Err(failed(&path, "write to", error));
    }
    // Finds a folder, or a name that is too long, before the work begins.
    match std::fs::symlink_metadata(&path) {
        Ok(metadata) if metadata.is_dir() => {
            let error = io::Error::other("it is a folder, expected the path of a file");
            return Err(failed(&path, "write to", error));
        }
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(failed(&path, "create", error));
        }
        _ => {}
    }
    let near = path.clone();
    on_own_descriptors(move || remove_stale_files(&near));
    match TemporaryFile::create_for(&path) {
        Ok(temporary) => save_through(temporary, &path, write)?,
        Err(error) if is_refusal(&error) => overwrite_existing(&path, error, write)?,
        Err(error) => {
            return Err(match missing_folder(&path) {
                Some(folder) if error.kind() == io::ErrorKind::NotFound => {
                    SaveError::NoFolder { path, folder }
                }
                _ => failed(&path, "create", error),
            });
        }
    }
    Ok(std::path::absolute(&path).unwrap_or(path))
}

/// Fills a temporary file, which then takes the place of the file.
fn save_through(
    mut temporary: TemporaryFile,
    path: &Path,
    write: WriteText<'_>,
) -> Result<(), SaveError> {
    fill(&mut temporary, path, write)
        .and_then(|()| temporary.sync())
        .map_err(|error| failed(path, "write", error))?;
    match temporary.publish(path) {
        // The file is a mount point.
        Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
            let file = ExistingFile::open(path).map_err(|_| failed(path, "move to", error))?;
            overwrite(&file, &temporary, path)
        }
        moved => moved.map_err(|error| failed(path, "move to", error)),
    }
}

/// Overwrites the existing file once the profile is complete. `refusal` is the reason why this
/// process cannot create a file in its folder.
fn overwrite_existing(
    path: &Path,
    refusal: io::Error,
    write: WriteText<'_>,
) -> Result<(), SaveError> {
    let file = ExistingFile::open(path).map_err(|error| {
        // Without a file to overwrite, the cause is that a file cannot be created.
        let is_cause = error.kind() != io::ErrorKind::NotFound && !is_refusal(&error);
        failed(path, "create", if is_cause { error } else { refusal })
    })?;
    let mut temporary = TemporaryFile::create_elsewhere()
        .map_err(|error| failed(path, "create a temporary file for", error))?;
    fill(&mut temporary, path, write)
        .map_err(|error| failed(path, "write a temporary file for", error))?;
    overwrite(&file, &temporary, path)
}

fn overwrite(file: &ExistingFile, from: &TemporaryFile, path: &Path) -> Result<(), SaveError> {
    file.overwrite_with(from.as_file())
        .map_err(|error| failed(path, "overwrite", error))
}

/// Returns whether the kernel does not let this process create a file in a folder.
fn is_refusal(error: &io::Error) -> bool {
    use io::ErrorKind::{PermissionDenied, ReadOnlyFilesystem};
    // An error without a number is one of ours, and has a better text than the kernel's.
    error.raw_os_error().is_some() && matches!(error.kind(), PermissionDenied | ReadOnlyFilesystem)
}

/// Returns the outermost folder of the path that does not exist.
pub(crate) fn missing_folder(path: &Path) -> Option<PathBuf> {
    let path = std::path::absolute(path).ok()?;
    let folders = path.ancestors().skip(1);
    // What cannot be asked, for lack of rights, is not missing.
    let missing = folders.take_while(|folder| matches!(folder.try_exists(), Ok(false)));
    missing.last().map(Path::to_owned)
}

/// Returns whether the name says that the file is compressed.
fn is_compressed(path: &Path) -> bool {
    let ending = path.extension();
    ending.is_some_and(|ending| ending.eq_ignore_ascii_case("gz"))
}

/// Writes the file without buffering. `write` has its own buffer and discards it on failure, so no
/// write is retried.
fn fill(out: &mut dyn Write, path: &Path, write: WriteText<'_>) -> io::Result<()> {
    if is_compressed(path) {
        compress(out, write)
    } else {
        write(out)
    }
}

#[cfg(feature = "gzip")]
fn compress(
    out: &mut dyn Write,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> io::Result<()> {
    let out = UntilFailure {
        out,
        has_failed: false,
    };
    let mut compressor = flate2::write::GzEncoder::new(out, flate2::Compression::fast());
    write(&mut compressor)?;
    compressor.finish().map(drop)
}

/// Forwards writes until the first failure. When the compressor is dropped, it tries to finish the
/// file; after a failure, this writer rejects that attempt.
#[cfg(feature = "gzip")]
struct UntilFailure<'a> {
    out: &'a mut dyn Write,
    has_failed: bool,
}

#[cfg(feature = "gzip")]
impl Write for UntilFailure<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.has_failed {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let written = self.out.write(bytes);
        self.has_failed = written
            .as_ref()
            .is_err_and(|error| error.kind() != io::ErrorKind::Interrupted);
        written
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.has_failed {
            Err(io::ErrorKind::BrokenPipe.into())
        } else {
            self.out.flush()
        }
    }
}

#[cfg(not(feature = "gzip"))]
fn compress(_: &mut dyn Write, _: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    Err(io::Error::other(
        "a name that ends in .gz needs the crate's feature `gzip`",
    ))
}

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
    /// Returns the options for the text summary with this look.
    pub(crate) fn of_summary(look: Look) -> Self {
        Self {
            format: Format::Text,
            export: ExportOptions {
                look,
                ..ExportOptions::usual_for(Format::Text)
            },
            ..default_options()
        }
    }

    /// Returns what a writer needs to write this profile, with the texts of source files if they
    /// are wanted. `done` is the progress so far.
    pub(crate) fn export_of(&self, profile: &ProfileModel, done: f32) -> ExportOptions {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_name_and_type_in_a_path_are_replaced() {
        let name = |text| expand_name(text, "a/b %t", "worker");
        assert_eq!(name("%t-%n.json"), "worker-a_b__t.json");
        assert_eq!(name("%n%n%t%t%"), "a_b__t%nworker%t%");
        assert_eq!(name("100 %, 5 %ö"), "100 %, 5 %ö");
        let long = "ä".repeat(100);
        assert_eq!(expand_name("%n", &long, "").chars().count(), MAX_NAME_CHARS);
    }

    #[cfg(feature = "gzip")]
    #[test]
    fn compress_does_not_write_after_a_failure() {
        struct Full(usize);
        impl Write for Full {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                self.0 += 1;
                Err(io::Error::other(format!("full, attempt {}", self.0)))
            }
            fn flush(&mut self) -> io::Result<()> {
                self.0 += 1;
                Ok(())
            }
        }
        let mut sink = Full(0);
        let failure = compress(&mut sink, |out| {
            // Data that hardly compress, so that the compressor does not keep all of them in its
            // buffer.
            let text: Vec<u8> = (0..1u32 << 18)
                .flat_map(|n| n.wrapping_mul(2_654_435_769).to_le_bytes())
                .collect();
            out.write_all(&text)
        });
        assert_eq!(failure.unwrap_err().to_string(), "full, attempt 1");
        assert_eq!(sink.0, 1);
    }
}
