//! Attributes in `/sys`: files with a short text that the kernel makes anew for each read.
//!
//! All functions take the path of `/sys`, so that tests can pass another folder. The profiler
//! itself always uses [`SYS_FOLDER`]: no setting and no environment variable selects another
//! folder.

use std::fs::OpenOptions;
use std::io;
use std::path::{Path, PathBuf};

use crate::platform::shared_file::SharedFile;
use crate::platform::thread::kept_file::KeptFile;

/// The folder of the system's attributes.
pub(crate) const SYS_FOLDER: &str = "/sys";
/// Maximum length of an attribute, in bytes: the kernel's own. The list of the processors of a large
/// machine can be long.
const MAX_BYTES: usize = 4096;
/// Maximum length of an attribute that is a number, in bytes. A longer one is cut.
const MAX_NUMBER_BYTES: usize = 256;
/// Maximum length of the part of an unexpected text that an error quotes, in characters.
const MAX_QUOTED: usize = 40;
/// Attributes stay open only on descriptors below this number, so that most of the numbers that the
/// sampler may keep are left to the files of threads.
pub(super) const FIRST_CLOSED: i32 = 48;

/// Returns the text of an attribute, without the white space around it.
///
/// # Errors
/// The error of the operating system.
pub(super) fn read_attribute(path: &Path) -> io::Result<String> {
    let mut bytes = [0; MAX_BYTES];
    let file = SharedFile::open(OpenOptions::new().read(true), path)?;
    let length = file.read_at(&mut bytes, 0)?;
    let text = String::from_utf8_lossy(bytes[..length].trim_ascii());
    Ok(text.into_owned())
}

/// Says why an attribute could not be read.
pub(super) fn unreadable(path: &Path, error: &io::Error) -> String {
    format!("cannot read {}: {error}", path.display())
}

/// Says that an attribute has an unexpected text.
pub(super) fn unexpected(path: &Path, text: &str, expected: &str) -> String {
    let quoted: String = text.chars().take(MAX_QUOTED).collect();
    format!(
        "cannot use {}: got {quoted:?}, expected {expected}",
        path.display()
    )
}

/// Reads an attribute that is a number.
///
/// # Errors
/// The reason, for the user.
pub(super) fn read_number(path: &Path) -> Result<u64, String> {
    let text = read_attribute(path).map_err(|error| unreadable(path, &error))?;
    parse_number(path, &text)
}

fn parse_number(path: &Path, text: &str) -> Result<u64, String> {
    text.parse()
        .map_err(|_| unexpected(path, text, "a number of 0 or above"))
}

/// Returns the numbers of a list such as `0-3,8`, in its order, at most `most`. An invalid part is
/// left out.
pub(super) fn parse_list(text: &str, most: usize) -> Vec<u32> {
    let parts = text.split(',').filter_map(|part| {
        let (first, last) = part.trim().split_once('-').unwrap_or((part, part));
        Some(first.trim().parse::<u32>().ok()?..=last.trim().parse().ok()?)
    });
    parts.flatten().take(most).collect()
}

/// An attribute with a number that one thread reads again and again. Its file stays open where the
/// thread may keep it.
#[derive(Debug)]
pub(super) struct NumberAttribute {
    path: PathBuf,
    file: KeptFile,
}

impl NumberAttribute {
    pub(super) fn new(path: PathBuf) -> Self {
        Self {
            path,
            file: KeptFile::default(),
        }
    }

    /// Reads the number. Cost: about 1 µs and the kernel's own work if the file is open, otherwise
    /// 5 µs more.
    ///
    /// # Errors
    /// The reason, for the user.
    pub(super) fn read(&mut self) -> Result<u64, String> {
        let mut bytes = [0; MAX_NUMBER_BYTES];
        let path = || &self.path;
        match self.file.read_below(FIRST_CLOSED, path, &mut bytes) {
            Ok(length) => {
                let text = String::from_utf8_lossy(bytes[..length].trim_ascii());
                parse_number(&self.path, &text)
            }
            Err(error) => {
                // The file of a processor that was switched off stays unreadable: the next read
                // opens the new one.
                self.file = KeptFile::default();
                Err(unreadable(&self.path, &error))
            }
        }
    }
}

/// A folder with attributes for a test, removed on drop.
#[cfg(test)]
pub(crate) struct TestTree {
    root: PathBuf,
}

#[cfg(test)]
impl TestTree {
    pub(crate) fn new(name: &str) -> Self {
        let folder = format!("gekkota-sys-{name}-{}", std::process::id());
        let root = std::env::temp_dir().join(folder);
        let _ = std::fs::remove_dir_all(&root);
        std::fs::create_dir_all(&root).expect("a folder");
        Self { root }
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// Writes an attribute, as the kernel does: with a newline, in the same file.
    pub(crate) fn set(&self, path: &str, text: &str) {
        let path = self.root.join(path);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("created");
        std::fs::write(path, format!("{text}\n")).expect("written");
    }

    pub(crate) fn remove(&self, path: &str) {
        std::fs::remove_file(self.root.join(path)).expect("removed");
    }

    /// Makes a file whose reads fail, also for a privileged user.
    pub(crate) fn make_unreadable(&self, path: &str) {
        std::fs::create_dir_all(self.root.join(path)).expect("created");
    }
}

#[cfg(test)]
impl Drop for TestTree {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.root);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn list_has_single_numbers_and_ranges() {
        assert_eq!(parse_list("0-3,8, 10-11", 99), [0, 1, 2, 3, 8, 10, 11]);
        assert_eq!(parse_list("5", 99), [5]);
        assert_eq!(parse_list("", 99), [0; 0]);
        assert_eq!(parse_list("x,2,9-7,-1", 99), [2]);
        assert_eq!(parse_list("0-4294967295", 3), [0, 1, 2]);
    }

    #[test]
    fn number_follows_the_file_and_errors_say_what_was_read() {
        let tree = TestTree::new("numbers");
        let mut number = NumberAttribute::new(tree.root().join("a"));
        let error = number.read().unwrap_err();
        assert!(error.starts_with("cannot read /") && error.contains("No such file"));
        tree.set("a", "17");
        assert_eq!(number.read(), Ok(17));
        tree.set("a", "18446744073709551615");
        assert_eq!(number.read(), Ok(u64::MAX));
        for garbage in ["18446744073709551616", "-1", "", "\u{fffd}", "<unknown>"] {
            tree.set("a", garbage);
            let error = number.read().unwrap_err();
            let expected = format!("got {garbage:?}, expected a number of 0 or above");
            assert!(error.ends_with(&expected), "{error}");
        }
        tree.remove("a");
        tree.make_unreadable("a");
        assert!(number.read().unwrap_err().contains("Is a directory"));
        let long = "x".repeat(300);
        tree.set("b", &long);
        let error = read_number(&tree.root().join("b")).unwrap_err();
        assert!(error.contains(&format!("{:?}", &long[..MAX_QUOTED])));
    }
}
