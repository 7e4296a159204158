//! A profile's file: written beside its place and moved there, so that it is whole or absent.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::base::SaveError;
use crate::platform::{create_private, current_process_id};

/// Replaces the first `%p` by the process's id.
pub(super) fn expand_path(path: &Path) -> PathBuf {
    match path.to_str() {
        Some(text) => text
            .replacen("%p", &current_process_id().to_number().to_string(), 1)
            .into(),
        None => path.to_owned(),
    }
}

/// What a link leads to, so that the link stays and its target is replaced.
fn follow_links(path: PathBuf) -> PathBuf {
    let is_link = std::fs::symlink_metadata(&path).is_ok_and(|metadata| metadata.is_symlink());
    if !is_link {
        return path;
    }
    std::fs::canonicalize(&path).unwrap_or_else(|_| match std::fs::read_link(&path) {
        // There is no such file yet.
        Ok(target) => path
            .parent()
            .map_or_else(|| target.clone(), |folder| folder.join(&target)),
        Err(_) => path,
    })
}

/// Has `write` fill the file, and gives its whole path. A name that ends in `.gz` gets it compressed.
pub(super) fn save_profile(
    path: &Path,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<PathBuf, SaveError> {
    let path = follow_links(expand_path(path));
    let failed = |action, error| SaveError::Io {
        path: path.clone(),
        action,
        error,
    };
    // A device or a pipe is written to; a file in its place would be no help.
    if let Ok(metadata) = std::fs::metadata(&path)
        && !metadata.is_file()
        && !metadata.is_dir()
    {
        let file = std::fs::OpenOptions::new()
            .write(true)
            .open(&path)
            .map_err(|error| failed("open", error))?;
        fill(file, &path, write).map_err(|error| failed("write", error))?;
        return Ok(path);
    }
    save_at(path, write)
}

/// The same at this very place: nothing in the name is replaced, and where there is a link, a file takes its place. So
/// a name that can be guessed leads nobody's writing astray, in a folder in which others may make links.
pub(super) fn save_at(
    path: PathBuf,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<PathBuf, SaveError> {
    let failed = |action, error| SaveError::Io {
        path: path.clone(),
        action,
        error,
    };
    let beside = name_beside(&path)
        .ok_or_else(|| failed("write to", io::Error::other("it is no name of a file")))?;
    // One of this process's own may be left from a crash of a thread in the middle of it.
    let _ = std::fs::remove_file(&beside);
    let file = create_private(&beside).map_err(|error| failed("create", error))?;
    let whole = fill(file, &path, write).and_then(|file| file.sync_all());
    let written = whole.map_err(|error| failed("write", error));
    let moved = written
        .and_then(|()| std::fs::rename(&beside, &path).map_err(|error| failed("move to", error)));
    if moved.is_err() {
        let _ = std::fs::remove_file(&beside);
    }
    moved.map(|()| std::path::absolute(&path).unwrap_or(path))
}

/// A name in the same folder, which no other thread or process uses at the same time.
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

/// The writer brings a buffer of its own, and drops it when the file fails, so that nothing is tried again.
fn fill(
    mut file: File,
    path: &Path,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> io::Result<File> {
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

/// Keeps the compressor, which tries to finish when it is dropped, from a file that has failed.
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
    fn the_compressor_leaves_a_file_alone_that_has_failed() {
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
            // What hardly gets shorter, so that it is not all held back.
            let text: Vec<u8> = (0..1u32 << 18)
                .flat_map(|n| n.wrapping_mul(2_654_435_769).to_le_bytes())
                .collect();
            out.write_all(&text)
        });
        assert_eq!(failure.unwrap_err().to_string(), "full, attempt 1");
        assert_eq!(sink.0, 1);
    }
}
