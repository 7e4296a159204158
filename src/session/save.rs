//! Saves a profile to a file. Writes a temporary file next to it and then renames that, so the file
//! is complete or absent.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::platform::{SharedFile, create_private, current_process_id};
use crate::types::SaveError;

/// Replaces the first `%p` with the process id.
pub(crate) fn expand_path(path: &Path) -> PathBuf {
    match path.to_str() {
        Some(text) => text
            .replacen("%p", &current_process_id().to_number().to_string(), 1)
            .into(),
        None => path.to_owned(),
    }
}

/// Resolves a symbolic link, so that saving replaces the target and keeps the link.
fn follow_links(path: PathBuf) -> PathBuf {
    let is_link = std::fs::symlink_metadata(&path).is_ok_and(|metadata| metadata.is_symlink());
    if !is_link {
        return path;
    }
    std::fs::canonicalize(&path).unwrap_or_else(|_| match std::fs::read_link(&path) {
        // The target does not exist yet.
        Ok(target) => path
            .parent()
            .map_or_else(|| target.clone(), |folder| folder.join(&target)),
        Err(_) => path,
    })
}

/// Creates the file with the output of `write`, and returns its absolute path.
///
/// Replaces `%p` in the path and follows symbolic links. Compresses the file if its name ends in
/// `.gz`.
pub(crate) fn save_profile(
    path: &Path,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<PathBuf, SaveError> {
    let path = follow_links(expand_path(path));
    let failed = |action, error| SaveError::Io {
        path: path.clone(),
        action,
        error,
    };
    // Writes to a device or pipe directly: a rename would replace it by a file.
    if let Ok(metadata) = std::fs::metadata(&path)
        && !metadata.is_file()
        && !metadata.is_dir()
    {
        let file = SharedFile::open(OpenOptions::new().write(true), &path)
            .map_err(|error| failed("open", error))?;
        fill(file, &path, write).map_err(|error| failed("write", error))?;
        return Ok(path);
    }
    save_at(path, write)
}

/// Creates the file at exactly this path: does not replace `%p`, and replaces a symbolic link
/// instead of following it.
///
/// Safe for a predictable name in a folder where other users may create links.
pub(crate) fn save_at(
    path: PathBuf,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<PathBuf, SaveError> {
    let failed = |action, error| SaveError::Io {
        path: path.clone(),
        action,
        error,
    };
    let beside = name_beside(&path)
        .ok_or_else(|| failed("write to", io::Error::other("the path has no file name")))?;
    // An earlier process with the same id may have left this file when it crashed.
    let _ = std::fs::remove_file(&beside);
    let file = create_private(&beside).map_err(|error| match missing_folder(&path) {
        Some(folder) if error.kind() == io::ErrorKind::NotFound => SaveError::NoFolder {
            path: path.clone(),
            folder,
        },
        _ => failed("create", error),
    })?;
    let filled = fill(file, &path, write).and_then(|file| file.sync_all());
    let written = filled.map_err(|error| failed("write", error));
    let moved = written
        .and_then(|()| std::fs::rename(&beside, &path).map_err(|error| failed("move to", error)));
    if moved.is_err() {
        let _ = std::fs::remove_file(&beside);
    }
    moved.map(|()| std::path::absolute(&path).unwrap_or(path))
}

/// Returns the outermost folder of the path that does not exist.
fn missing_folder(path: &Path) -> Option<PathBuf> {
    let path = std::path::absolute(path).ok()?;
    let folders = path.ancestors().skip(1);
    let missing = folders.take_while(|folder| !folder.exists());
    missing.last().map(Path::to_owned)
}

/// Returns the path of a temporary file in the same folder. No other thread or process uses it
/// concurrently.
fn name_beside(path: &Path) -> Option<PathBuf> {
    use std::sync::atomic::{AtomicU32, Ordering};
    static SERIAL: AtomicU32 = AtomicU32::new(0);
    let mut name = std::ffi::OsString::from(".");
    name.push(path.file_name()?);
    let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
    name.push(format!(
        ".{}-{serial}.tmp",
        current_process_id().to_number()
    ));
    Some(path.with_file_name(name))
}

/// Writes the file without buffering. `write` has a buffer of its own and discards it on failure,
/// so no write is retried.
fn fill(
    mut file: SharedFile,
    path: &Path,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> io::Result<SharedFile> {
    if path.extension().is_some_and(|extension| extension == "gz") {
        compress(&mut file, write)?;
    } else {
        write(&mut file)?;
    }
    Ok(file)
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

#[cfg(all(test, feature = "gzip"))]
mod tests {
    use super::*;

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
