//! A file that gets its name only when it is complete.
//!
//! Where the file system allows it, the file has no name until then, so the kernel frees it if the
//! process is killed. Otherwise, it has a temporary name in the same folder, and the process holds
//! its lock. If the process is killed, the lock is free, and [`remove_stale_files`] removes the
//! file during a later save.

use std::ffi::OsStr;
use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, AtFlags, FallocateFlags, OFlag, fallocate};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::statvfs::fstatvfs;
use nix::unistd::{geteuid, linkat};

use crate::platform::existing_file::{copy_all, folder_of, is_same_file};
use crate::platform::identity::{current_process_id, without_write_signals};
use crate::platform::shared_file::{SharedFile, SharedFolder};

/// Number of attempts to create a file with a temporary name. Each fails only if a concurrent
/// cleanup of the folder meets the file before it is locked.
const ATTEMPTS: usize = 100;

/// Folders for a file that is only read back, best first. The first one is usually on a disk, and
/// the second may be in memory. The environment is not asked, because it may be the attacker's.
const OTHER_FOLDERS: [&str; 2] = ["/var/tmp", "/tmp"];

/// A file that only its owner can read, without a name or with a temporary one. Dropping it removes
/// it, unless it was published.
#[derive(Debug)]
pub(crate) struct TemporaryFile {
    file: SharedFile,
    /// The temporary name, if the file has one.
    name: Option<PathBuf>,
}

impl TemporaryFile {
    /// Creates an empty file for publication at `path`.
    pub(crate) fn create_for(path: &Path) -> io::Result<Self> {
        let folder = folder_of(path);
        match open_unnamed(folder) {
            Ok(file) if has_link_in_proc(&file) => Self::unnamed(file),
            // The kernel's error for files without a name is not the error of creating a file.
            _ => Self::named(folder),
        }
    }

    /// Creates an empty file that is not published, outside of the folder of the saved file.
    pub(crate) fn create_elsewhere() -> io::Result<Self> {
        let in_folder = OTHER_FOLDERS
            .iter()
            .find_map(|folder| open_unnamed(Path::new(folder)).ok());
        match in_folder {
            Some(file) => Self::unnamed(file),
            // It costs as much memory as the profile is long.
            None => Self::create_in_memory(),
        }
    }

    /// Creates an empty file in memory.
    pub(crate) fn create_in_memory() -> io::Result<Self> {
        let file = memfd_create(c"gekkota", MFdFlags::MFD_CLOEXEC)?;
        Self::unnamed(SharedFile::new(file.into())?)
    }

    fn unnamed(file: SharedFile) -> io::Result<Self> {
        // No other process can have locked a file without a name.
        let file = file.lock().ok_or(Errno::EWOULDBLOCK)?;
        Ok(Self { file, name: None })
    }

    /// Creates a file with a temporary name. The name changes once the inode is known. A kill
    /// before that leaves an empty file, which [`TemporaryName::Empty`] marks as removable.
    fn named(folder: &Path) -> io::Result<Self> {
        for _ in 0..ATTEMPTS {
            let path = folder.join(TemporaryName::Empty.new_text());
            let mut options = OpenOptions::new();
            options.read(true).write(true).create_new(true).mode(0o600);
            let Some(file) = SharedFile::open(&options, &path)?.lock() else {
                continue;
            };
            let mut temporary = Self {
                file,
                name: Some(path),
            };
            // A cleanup may have removed the file before it was locked.
            let metadata = temporary.file.get()?.metadata()?;
            if metadata.nlink() == 0 {
                temporary.name = None;
                continue;
            }
            let path = folder.join(TemporaryName::Inode(metadata.ino()).new_text());
            temporary.rename(&path)?;
            temporary.name = Some(path);
            return Ok(temporary);
        }
        Err(Errno::EWOULDBLOCK.into())
    }

    /// Returns the file, to read it back.
    pub(crate) fn as_file(&self) -> &SharedFile {
        &self.file
    }

    /// Waits until the content is on the disk.
    pub(crate) fn sync(&self) -> io::Result<()> {
        self.as_file().sync_all()
    }

    /// Gives the file its name, which replaces an existing file. Replaces a link instead of
    /// following it. Each observer of the path finds either the old file or this one.
    pub(crate) fn publish(&mut self, path: &Path) -> io::Result<()> {
        if self.name.is_none() {
            match self.link(path) {
                Ok(()) => return Ok(()),
                // A link does not replace a file, but a rename does.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    let inode = self.file.get()?.metadata()?.ino();
                    let name = folder_of(path).join(TemporaryName::Inode(inode).new_text());
                    self.name = self.link(&name).is_ok().then_some(name);
                }
                Err(_) => {}
            }
        }
        match &self.name {
            Some(_) => self.rename(path),
            // Some security policies allow a process to create files but no links.
            None => self.publish_copy(path),
        }
    }

    /// Gives the file its name like [`Self::publish`], but replaces no file. It stays locked.
    ///
    /// # Errors
    /// `AlreadyExists` if a file of that name exists; otherwise the error of the operating system.
    pub(crate) fn publish_new(&mut self, path: &Path) -> io::Result<()> {
        let Some(name) = self.name.clone() else {
            return self.link(path);
        };
        match std::fs::hard_link(&name, path) {
            Ok(()) => {
                let _ = std::fs::remove_file(&name);
                self.name = None;
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(error),
            // A file system without links: another process may create the file in between.
            Err(_) if std::fs::symlink_metadata(path).is_err() => self.rename(path),
            Err(error) => Err(error),
        }
    }

    /// Opens the published file once more, and locks that instead. A mapping of the file keeps what it
    /// was made from open, with its lock, even in the child of a fork; this lock ends with the
    /// descriptor.
    ///
    /// # Errors
    /// The error of the operating system, also if another file is at `path`. The old lock stays then,
    /// if the error is not that of the new lock.
    pub(crate) fn lock_without_mapping(&mut self, path: &Path) -> io::Result<()> {
        let file = SharedFile::open_no_link(OpenOptions::new().read(true).write(true), path)?;
        if !is_same_file(&self.file.get()?.metadata()?, &file.get()?.metadata()?) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        self.file.unlock();
        self.file = file.lock().ok_or(Errno::EWOULDBLOCK)?;
        Ok(())
    }

    /// Moves the file's descriptor off the numbers of the standard streams, so that it can stay open.
    ///
    /// # Errors
    /// The error of the operating system: no descriptor may be free.
    pub(crate) fn above_standard_streams(mut self) -> io::Result<Self> {
        const FIRST: i32 = 3;
        let file = self.file.get()?;
        if file.as_raw_fd() < FIRST {
            // A clone never has a lower number.
            let clone = SharedFile::new(file.try_clone()?)?;
            self.file = clone.lock().ok_or(Errno::EWOULDBLOCK)?;
        }
        Ok(self)
    }

    /// Reserves this much space on the disk, and makes the file as long.
    ///
    /// # Errors
    /// The error of the operating system: the disk may be full, or the file system may not reserve
    /// space.
    pub(crate) fn reserve(&self, bytes: usize) -> io::Result<()> {
        let length = i64::try_from(bytes).map_err(io::Error::other)?;
        without_write_signals(|| {
            let file = self.file.get()?;
            Ok(fallocate(file, FallocateFlags::empty(), 0, length)?)
        })
    }

    /// Checks that the file system has this much space left, as far as it says.
    ///
    /// # Errors
    /// It does not, or the error of the operating system.
    pub(crate) fn check_space(&self, bytes: usize) -> io::Result<()> {
        let system = fstatvfs(self.file.get()?)?;
        let left = system
            .blocks_available()
            .saturating_mul(system.fragment_size());
        match system.blocks() == 0 || left >= bytes as u64 {
            true => Ok(()),
            false => Err(io::ErrorKind::StorageFull.into()),
        }
    }

    /// Makes the file this long, without reserving space.
    ///
    /// # Errors
    /// The error of the operating system.
    pub(crate) fn set_length(&self, bytes: usize) -> io::Result<()> {
        without_write_signals(|| self.file.get()?.set_len(bytes as u64))
    }

    /// Returns whether `path` names this file.
    pub(crate) fn is_at(&self, path: &Path) -> bool {
        let named = std::fs::symlink_metadata(path);
        self.file.get().is_ok() && named.is_ok_and(|named| self.file.is_file_of(&named))
    }

    fn publish_copy(&self, path: &Path) -> io::Result<()> {
        let mut copy = Self::named(folder_of(path))?;
        without_write_signals(|| copy_all(self.as_file(), copy.as_file()))?;
        copy.sync()?;
        copy.rename(path)
    }

    /// Gives a file without a name its first one. Fails if a file of that name exists.
    fn link(&self, path: &Path) -> io::Result<()> {
        let from = link_in_proc(self.file.get()?);
        let flags = AtFlags::AT_SYMLINK_FOLLOW;
        Ok(linkat(AT_FDCWD, &from, AT_FDCWD, path, flags)?)
    }

    /// Renames a file that has a temporary name. Afterwards, it has none.
    fn rename(&mut self, path: &Path) -> io::Result<()> {
        if let Some(name) = &self.name {
            std::fs::rename(name, path)?;
        }
        self.name = None;
        Ok(())
    }
}

impl Write for TemporaryFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        without_write_signals(|| self.file.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        // Another process may have moved this file and created one of that name.
        if let Some(name) = &self.name
            && self.is_at(name)
        {
            let _ = std::fs::remove_file(name);
        }
    }
}

/// Creates a file without a name.
fn open_unnamed(folder: &Path) -> io::Result<SharedFile> {
    let mut options = OpenOptions::new();
    let flags = OFlag::O_TMPFILE.bits();
    options.read(true).write(true).custom_flags(flags);
    SharedFile::open(options.mode(0o600), folder)
}

/// Returns the kernel's link to an open file, from which the file can get a name. The calling
/// thread may have a descriptor table of its own.
fn link_in_proc(file: &File) -> PathBuf {
    format!("/proc/thread-self/fd/{}", file.as_raw_fd()).into()
}

/// Returns whether the kernel's link is accessible. It is not without `/proc`, nor in a process
/// that has given up the superuser's rights.
fn has_link_in_proc(file: &SharedFile) -> bool {
    let linked = file
        .get()
        .and_then(|file| std::fs::metadata(link_in_proc(file)));
    linked.is_ok_and(|linked| file.is_file_of(&linked))
}

const PREFIX: &str = ".gekkota-";
const EMPTY_SUFFIX: &str = ".new";
const FILLED_SUFFIX: &str = ".tmp";

/// The file that a temporary name belongs to. The name does not depend on that of the saved file,
/// which may be as long as the file system allows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum TemporaryName {
    /// A file that is still empty.
    Empty,
    /// The file with this inode. A copy of the file, or one restored from a backup, has another
    /// inode, so it does not count as temporary.
    Inode(u64),
}

impl TemporaryName {
    /// Returns a file name that no other file has: it contains the process, the time and a serial
    /// number.
    fn new_text(self) -> String {
        static SERIAL: AtomicU32 = AtomicU32::new(0);
        let process = current_process_id().to_number();
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = now.unwrap_or_default().as_nanos();
        let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
        match self {
            Self::Empty => format!("{PREFIX}{process}-{now}-{serial}{EMPTY_SUFFIX}"),
            Self::Inode(inode) => {
                format!("{PREFIX}{process}-{now}-{serial}-{inode}{FILLED_SUFFIX}")
            }
        }
    }

    /// Parses a file name. Returns `None` for a name of another form.
    fn parse(name: &OsStr) -> Option<Self> {
        let name = name.to_str()?.strip_prefix(PREFIX)?;
        let numbers = |name: &str| -> Option<Vec<u64>> {
            let parts = name.split('-');
            parts.map(|part| part.parse().ok()).collect()
        };
        if let Some(name) = name.strip_suffix(EMPTY_SUFFIX) {
            return (numbers(name)?.len() == 3).then_some(Self::Empty);
        }
        match numbers(name.strip_suffix(FILLED_SUFFIX)?)?[..] {
            [_, _, _, inode] => Some(Self::Inode(inode)),
            _ => None,
        }
    }
}

/// Maximum number of files to look at, so that a folder with very many files does not delay a save.
const MAX_FILES: usize = 10_000;

/// Removes the temporary files in the folder of `path` whose processes have ended. Best effort: an
/// error leaves a file where it is.
///
/// A file is removed only if it is proved to be a temporary one, and stale:
///
/// - it has a name of [`TemporaryName`], and is the file with the inode that the name contains, or
///   an empty one;
/// - it is a regular file of this user with no other name;
/// - no process holds its lock. The process that creates such a file holds its lock until it ends.
pub(crate) fn remove_stale_files(path: &Path) {
    let folder = folder_of(path);
    let Ok(names) = SharedFolder::open(folder) else {
        return;
    };
    for file in names.take(MAX_FILES) {
        if let Some(name) = TemporaryName::parse(&file) {
            let _ = remove_if_stale(&folder.join(&file), name);
        }
    }
}

fn remove_if_stale(path: &Path, name: TemporaryName) -> Option<()> {
    // Does not even open a file of another user, who may have put it there as a trap.
    is_temporary(&std::fs::symlink_metadata(path).ok()?, name).then_some(())?;
    // Some network file systems lock only files that are open for writing.
    let mut options = OpenOptions::new();
    let file = SharedFile::open_no_link(options.read(true).write(true), path);
    let locked = file.ok()?.lock()?;
    locked.is_locked().then_some(())?;
    // Under the lock, and again: the process may have filled, published or removed the file.
    let now = locked.get().ok()?.metadata().ok()?;
    let named = std::fs::symlink_metadata(path).ok()?;
    if is_temporary(&now, name) && is_same_file(&now, &named) {
        std::fs::remove_file(path).ok()?;
    }
    Some(())
}

fn is_temporary(metadata: &Metadata, name: TemporaryName) -> bool {
    let is_named_after_it = match name {
        TemporaryName::Empty => metadata.len() == 0,
        TemporaryName::Inode(inode) => metadata.ino() == inode,
    };
    is_named_after_it
        && metadata.is_file()
        && metadata.uid() == geteuid().as_raw()
        && metadata.nlink() == 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::TestFolder;

    fn names(folder: &TestFolder) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(folder.path())
            .expect("the folder")
            .flatten();
        entries.map(|entry| entry.path()).collect()
    }

    #[test]
    fn named_file_is_removed_once_its_process_has_ended() {
        let folder = TestFolder::new("stale-files");
        let mut temporary = TemporaryFile::named(folder.path()).expect("created");
        temporary.write_all(b"begun").expect("written");
        remove_stale_files(&folder.path().join("p.json"));
        assert_eq!(names(&folder).len(), 1, "a locked file is in use");
        let stale = temporary.name.take().expect("a name");
        // Closes the file, as the kernel does when the process ends.
        let other = File::open("/dev/null").expect("a device");
        let other = SharedFile::new(other).expect("a status");
        drop(std::mem::replace(&mut temporary.file, other));
        remove_stale_files(&folder.path().join("p.json"));
        assert!(!stale.exists());
    }

    #[test]
    fn dropped_file_is_removed() {
        let folder = TestFolder::new("dropped-files");
        drop(TemporaryFile::named(folder.path()).expect("created"));
        assert_eq!(names(&folder), [""; 0].map(PathBuf::from));
    }

    #[test]
    fn copy_is_published_where_links_are_refused() {
        let folder = TestFolder::new("copied-files");
        let path = folder.path().join("p.json");
        let mut temporary = TemporaryFile::create_elsewhere().expect("created");
        temporary.write_all(b"whole").expect("written");
        temporary.publish_copy(&path).expect("published");
        assert_eq!(std::fs::read(&path).expect("the file"), b"whole");
        assert_eq!(names(&folder), [path]);
    }

    #[test]
    fn parse_accepts_only_names_of_new_text() {
        for name in [TemporaryName::Empty, TemporaryName::Inode(u64::MAX)] {
            let text = name.new_text();
            assert_eq!(
                TemporaryName::parse(OsStr::new(&text)),
                Some(name),
                "{text}"
            );
            assert_ne!(name.new_text(), text, "each name is new");
        }
        for other in [
            "",
            ".gekkota-.tmp",
            ".gekkota-1-2-3.tmp",
            ".gekkota-1-2-3-4.new",
            ".gekkota-1-2-3-x.tmp",
            ".gekkota-1-2-3-4-5.tmp",
            "x.gekkota-1-2-3-4.tmp",
            ".gekkota-1-2-3-4.tmp.json",
        ] {
            assert_eq!(TemporaryName::parse(OsStr::new(other)), None, "{other}");
        }
    }

    /// Returns whether a file with this content, moved to the name that `name` returns for its
    /// inode, survives a cleanup.
    fn survives(
        folder: &TestFolder,
        content: &str,
        name: impl FnOnce(u64) -> TemporaryName,
    ) -> bool {
        let path = folder.path().join("file");
        std::fs::write(&path, content).expect("written");
        let inode = std::fs::metadata(&path).expect("the file").ino();
        let renamed = folder.path().join(name(inode).new_text());
        std::fs::rename(&path, &renamed).expect("renamed");
        remove_stale_files(&folder.path().join("p.json"));
        renamed.exists()
    }

    #[test]
    fn remove_stale_files_removes_only_proved_ones() {
        let folder = TestFolder::new("proved-files");
        assert!(!survives(&folder, "begun", TemporaryName::Inode));
        assert!(!survives(&folder, "", |_| TemporaryName::Empty));
        assert!(survives(&folder, "begun", |inode| TemporaryName::Inode(
            inode + 1
        )));
        assert!(survives(&folder, "begun", |_| TemporaryName::Empty));
    }

    #[test]
    fn remove_stale_files_keeps_a_file_with_another_name() {
        let folder = TestFolder::new("named-files");
        let path = folder.path().join("file");
        std::fs::write(&path, "content").expect("written");
        let inode = std::fs::metadata(&path).expect("the file").ino();
        let second = folder.path().join(TemporaryName::Inode(inode).new_text());
        std::fs::hard_link(&path, &second).expect("a second name");
        remove_stale_files(&path);
        assert!(second.exists());
    }
}
