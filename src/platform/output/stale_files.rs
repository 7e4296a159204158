//! Removes the temporary files of processes that were killed during a save.

use std::fs::{Metadata, OpenOptions};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use nix::unistd::geteuid;

use crate::platform::output::copying::is_same_file;
use crate::platform::output::links::folder_of;
use crate::platform::output::temporary_name::TemporaryName;
use crate::platform::shared_file::{SharedFile, SharedFolder};

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
