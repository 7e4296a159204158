//! A folder of this user alone, with files that are whole or absent, for one process at a time.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use nix::unistd::geteuid;

use crate::platform::output::{TemporaryFile, remove_stale_files};
use crate::platform::private_file::open_own_file;
use crate::platform::shared_file::{SharedFile, SharedFolder};
use crate::platform::socket::is_private_folder;

/// The file that the process which uses the folder has locked.
const LOCK: &str = "lock";
const ONLY_OWNER: u32 = 0o700;
/// Maximum numbers of names to read, and of files to look at, so that a folder with very many files does
/// not delay a start.
const MAX_NAMES: usize = 1_000_000;
const MAX_FILES: usize = 10_000;

/// A folder that this process uses alone, until the value is dropped.
#[derive(Debug)]
pub(crate) struct PrivateStore {
    folder: PathBuf,
    _lock: SharedFile,
}

impl PrivateStore {
    /// Opens the folder, or creates it, in a folder that exists. Removes files that a killed process
    /// has not completed.
    ///
    /// # Errors
    /// `PermissionDenied` if other users can open it, `WouldBlock` if another process uses it;
    /// otherwise the error of the operating system.
    pub(crate) fn open(folder: &Path) -> io::Result<Self> {
        match DirBuilder::new().mode(ONLY_OWNER).create(folder) {
            // The mask of the process may forbid the owner, too.
            Ok(()) => fs::set_permissions(folder, fs::Permissions::from_mode(ONLY_OWNER))?,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
        if !is_private_folder(folder) {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false).mode(0o600);
        let path = folder.join(LOCK);
        let lock = SharedFile::open_no_link(&mut options, &path)?.lock();
        let lock = lock.ok_or(io::ErrorKind::WouldBlock)?;
        remove_stale_files(&path);
        Ok(Self {
            folder: folder.to_owned(),
            _lock: lock,
        })
    }

    /// Returns the names of the files for which `is_wanted` returns true, with their sizes in bytes,
    /// in the order of the names: the first 10,000 of them.
    pub(crate) fn files(&self, is_wanted: impl Fn(&str) -> bool) -> Vec<(String, u64)> {
        let Ok(names) = SharedFolder::open(&self.folder) else {
            return Vec::new();
        };
        let names = names
            .take(MAX_NAMES)
            .filter_map(|name| name.into_string().ok());
        let mut names: Vec<_> = names.filter(|name| is_wanted(name)).collect();
        names.sort();
        let sized = names.into_iter().take(MAX_FILES).filter_map(|name| {
            let file = fs::symlink_metadata(self.folder.join(&name)).ok()?;
            file.is_file().then_some((name, file.len()))
        });
        sized.collect()
    }

    /// Creates a file. A kill in between leaves no file of this name.
    ///
    /// # Errors
    /// The error of the operating system, also if the file exists.
    pub(crate) fn write(&self, name: &str, parts: &[&[u8]]) -> io::Result<()> {
        let path = self.folder.join(name);
        let mut file = TemporaryFile::create_for(&path)?;
        for part in parts {
            file.write_all(part)?;
        }
        file.publish_new(&path)
    }

    /// Reads a file, unless it is longer than this.
    ///
    /// # Errors
    /// `InvalidData` if it is longer, or not a file of this user; otherwise the error of the operating system.
    pub(crate) fn read(&self, name: &str, max_bytes: u64) -> io::Result<Vec<u8>> {
        let path = self.folder.join(name);
        let Some(own) = open_own_file(&path) else {
            let file = fs::symlink_metadata(&path)?;
            return Err(match file.is_file() && file.uid() == geteuid().as_raw() {
                true => io::Error::other("a file that cannot be opened"),
                false => io::ErrorKind::InvalidData.into(),
            });
        };
        if own.bytes > max_bytes {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let mut bytes = Vec::new();
        own.file.take(max_bytes).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    /// Removes a file.
    ///
    /// # Errors
    /// The error of the operating system.
    pub(crate) fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.folder.join(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::TestFolder;

    #[test]
    fn store_is_private_and_has_one_user() {
        let folder = TestFolder::new("private-store");
        let path = folder.path().join("store");
        let store = PrivateStore::open(&path).expect("created");
        assert!(is_private_folder(&path));
        let refused = PrivateStore::open(&path).expect_err("another user of the folder");
        assert_eq!(refused.kind(), io::ErrorKind::WouldBlock);
        store.write("b", &[b"one", b" two"]).expect("written");
        store.write("a", &[b"three"]).expect("written");
        assert!(store.write("a", &[b"again"]).is_err());
        let files = store.files(|name| name != LOCK);
        assert_eq!(files, [("a".to_owned(), 5), ("b".to_owned(), 7)]);
        assert_eq!(store.read("b", 7).expect("read"), b"one two");
        assert!(store.read("b", 6).is_err());
        store.remove("b").expect("removed");
        assert!(store.read("b", 7).is_err());
        drop(store);
        let again = PrivateStore::open(&path).expect("free again");
        assert_eq!(again.read("a", 100).expect("kept"), b"three");
    }

    #[test]
    fn folder_that_others_can_open_is_refused() {
        let folder = TestFolder::new("open-store");
        let path = folder.path().join("store");
        fs::create_dir(&path).expect("created");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("set");
        let refused = PrivateStore::open(&path).expect_err("others can read it");
        assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied);
        let missing = PrivateStore::open(&folder.path().join("no/store")).expect_err("no parent");
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
    }
}
