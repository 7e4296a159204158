//! Names of temporary files. They do not depend on the name of the saved file, which may be as long
//! as the file system allows.

use std::ffi::OsStr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::platform::identity::current_process_id;

const PREFIX: &str = ".gekkota-";
const EMPTY_SUFFIX: &str = ".new";
const FILLED_SUFFIX: &str = ".tmp";

/// The file that a temporary name belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum TemporaryName {
    /// A file that is still empty.
    Empty,
    /// The file with this inode. A copy of the file, or one restored from a backup, has another
    /// inode, so it does not count as temporary.
    Inode(u64),
}

impl TemporaryName {
    /// Returns a file name that no other file has: it contains the process, the time and a serial
    /// number.
    pub(super) fn new_text(self) -> String {
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
    pub(super) fn parse(name: &OsStr) -> Option<Self> {
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

#[cfg(test)]
mod tests {
    use super::*;

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
}
