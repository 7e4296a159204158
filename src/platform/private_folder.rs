//! Folders of this user alone: one with a socket in it, and one with files that are whole or
//! absent, for one process at a time.

use std::ffi::OsStr;
use std::fs::{DirBuilder, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use nix::errno::Errno;
use nix::sys::signal::kill;
use nix::unistd::{Pid, geteuid};

use crate::platform::identity::{current_process_id, has_rights_of_another_user};
use crate::platform::shared_file::{SharedFile, SharedFolder, open_own_file};
use crate::platform::socket::calls::random_bytes;
use crate::platform::socket::unix_socket::Socket;
use crate::platform::temporary_file::{TemporaryFile, remove_stale_files};
use crate::platform::variables::variable;

const PREFIX: &str = "gekkota-family-";
/// The socket's name in the folder.
const SOCKET: &str = "s";
const ONLY_OWNER: u32 = 0o700;
/// Maximum length of a socket's path, in bytes.
const MAX_PATH_BYTES: usize = 107;
/// Maximum number of names to look at, so that a folder with very many files does not delay a start.
const MAX_NAMES: usize = 10_000;
/// A folder without a socket may be that of a process that is about to make it.
const MAX_AGE_WITHOUT_SOCKET: Duration = Duration::from_secs(60);

/// A folder that this process has created, for one socket.
#[derive(Clone, Debug)]
pub(crate) struct PrivateFolder {
    path: PathBuf,
}

impl PrivateFolder {
    /// Creates a folder that no other user can open: in `XDG_RUNTIME_DIR` if that belongs to this user
    /// alone, otherwise in `TMPDIR`, otherwise in `/tmp`.
    ///
    /// # Errors
    /// The error of the operating system for the last of them.
    pub(crate) fn create() -> io::Result<Self> {
        let name = format!(
            "{PREFIX}{}-{:016x}",
            current_process_id().to_number(),
            u64::from_ne_bytes(random_bytes()?)
        );
        let mut answer = Err(io::ErrorKind::NotFound.into());
        for parent in parents() {
            let path = parent.join(&name);
            if path.join(SOCKET).as_os_str().len() > MAX_PATH_BYTES {
                continue;
            }
            answer = create_private(&path).map(|()| Self { path });
            if answer.is_ok() {
                break;
            }
        }
        answer
    }

    /// Returns the path of the socket in the folder.
    pub(crate) fn socket(&self) -> PathBuf {
        self.path.join(SOCKET)
    }

    /// Removes the socket and the folder.
    pub(crate) fn remove(self) {
        remove(&self.path);
    }

    /// Removes the folders of processes of this user that have ended, from the same folder. Best effort.
    pub(crate) fn remove_stale_ones(&self) {
        if let Some(parent) = self.path.parent()
            && let Ok(names) = SharedFolder::open(parent)
        {
            for name in names.take(MAX_NAMES) {
                if let Some(process) = process_in(&name) {
                    let path = parent.join(&name);
                    if path != self.path && is_stale(&path, process) {
                        remove(&path);
                    }
                }
            }
        }
    }
}

/// Returns the folders in which to create one, best first.
fn parents() -> Vec<PathBuf> {
    let mut parents = Vec::new();
    // The user who started a set-user-id program has chosen its variables.
    if !has_rights_of_another_user() {
        let of_variable = |name| variable(name).map(PathBuf::from);
        let runtime = of_variable("XDG_RUNTIME_DIR");
        parents.extend(runtime.filter(|folder| is_private_folder(folder)));
        parents.extend(of_variable("TMPDIR"));
        parents.retain(|folder| folder.is_absolute());
    }
    parents.push(PathBuf::from("/tmp"));
    parents
}

/// Returns whether this is a folder, not a link to one, that only this user can open.
pub(crate) fn is_private_folder(path: &Path) -> bool {
    std::fs::symlink_metadata(path).is_ok_and(|folder| {
        folder.is_dir()
            && folder.uid() == geteuid().as_raw()
            && folder.permissions().mode() & 0o777 == ONLY_OWNER
    })
}

fn create_private(path: &Path) -> io::Result<()> {
    DirBuilder::new().mode(ONLY_OWNER).create(path)?;
    // The mask of the process may forbid the owner, too.
    let set = std::fs::set_permissions(path, std::fs::Permissions::from_mode(ONLY_OWNER));
    if set.is_ok() && is_private_folder(path) {
        return Ok(());
    }
    let _ = std::fs::remove_dir(path);
    set.and(Err(io::ErrorKind::PermissionDenied.into()))
}

fn remove(folder: &Path) {
    let _ = std::fs::remove_file(folder.join(SOCKET));
    let _ = std::fs::remove_dir(folder);
}

/// Returns the process that made the folder of this name.
fn process_in(name: &OsStr) -> Option<i32> {
    let (process, _) = name.to_str()?.strip_prefix(PREFIX)?.split_once('-')?;
    process.parse().ok().filter(|&process| process > 0)
}

/// Returns whether no process listens in the folder any more. The process may be in another namespace,
/// where its id is another one, so the kernel is asked about the socket, too.
fn is_stale(folder: &Path, process: i32) -> bool {
    // A program that replaces itself by `exec` leaves the folder of the one before.
    let is_own = process == current_process_id().to_number();
    let has_ended = is_own || kill(Pid::from_raw(process), None) == Err(Errno::ESRCH);
    if !is_private_folder(folder) || !has_ended {
        return false;
    }
    match Socket::connect(&folder.join(SOCKET)) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => true,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let changed = std::fs::symlink_metadata(folder).and_then(|folder| folder.modified());
            let age = changed.map(|changed| SystemTime::now().duration_since(changed));
            age.is_ok_and(|age| age.is_ok_and(|age| age > MAX_AGE_WITHOUT_SOCKET))
        }
        _ => false,
    }
}

/// The file that the process which uses the folder has locked.
const LOCK: &str = "lock";
/// Maximum numbers of names to read, and of files to look at, so that a folder with very many files does
/// not delay a start.
const MAX_STORED_NAMES: usize = 1_000_000;
const MAX_STORED_FILES: usize = 10_000;

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
        match create_private(folder) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            Err(_) if !is_private_folder(folder) => {
                return Err(io::ErrorKind::PermissionDenied.into());
            }
            _ => {}
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
            .take(MAX_STORED_NAMES)
            .filter_map(|name| name.into_string().ok());
        let mut names: Vec<_> = names.filter(|name| is_wanted(name)).collect();
        names.sort();
        let sized = names.into_iter().take(MAX_STORED_FILES).filter_map(|name| {
            let file = std::fs::symlink_metadata(self.folder.join(&name)).ok()?;
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
            let file = std::fs::symlink_metadata(&path)?;
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
        std::fs::remove_file(self.folder.join(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::TestFolder;
    use crate::platform::socket::unix_socket::ListeningSocket;

    #[test]
    fn folder_is_private_and_goes_with_its_socket() {
        let folder = PrivateFolder::create().expect("a folder");
        let path = folder.path.clone();
        assert!(is_private_folder(&path));
        let listener = ListeningSocket::bind(&folder.socket()).expect("bound");
        // The folder of a process that runs, and one in which a process listens.
        assert!(!is_stale(&path, std::process::id() as i32));
        let ended = i32::MAX;
        assert!(!is_stale(&path, ended));
        drop(listener);
        assert!(is_stale(&path, ended));
        folder.remove_stale_ones();
        assert!(path.exists(), "it is not stale for itself");
        folder.remove();
        assert!(!path.exists());
    }

    #[test]
    fn stale_folder_is_removed_by_the_next_one() {
        let folder = PrivateFolder::create().expect("a folder");
        let name = format!("{PREFIX}{}-0123456789abcdef", i32::MAX);
        let stale = folder.path.with_file_name(name);
        let _ = std::fs::remove_dir_all(&stale);
        create_private(&stale).expect("a folder");
        drop(ListeningSocket::bind(&stale.join(SOCKET)).expect("bound"));
        folder.remove_stale_ones();
        assert!(!stale.exists());
        folder.remove();
    }

    #[test]
    fn name_contains_the_process() {
        assert_eq!(process_in(OsStr::new("gekkota-family-12-ab")), Some(12));
        for other in [
            "gekkota-family-",
            "gekkota-family-x-1",
            "gekkota-family-0-1",
            "x-12-ab",
        ] {
            assert_eq!(process_in(OsStr::new(other)), None, "{other}");
        }
    }

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
        std::fs::create_dir(&path).expect("created");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("set");
        let refused = PrivateStore::open(&path).expect_err("others can read it");
        assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied);
        let missing = PrivateStore::open(&folder.path().join("no/store")).expect_err("no parent");
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
    }
}
