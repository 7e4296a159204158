//! Temporary files and folders.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// A path of a temporary file or folder. Dropping this removes the file or folder.
pub(crate) struct Temporary(PathBuf);

impl Temporary {
    /// Returns a path that nothing else uses, whose name ends with this.
    pub(crate) fn new(ending: &str) -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("gekkota-peers-{}-{number}{ending}", std::process::id());
        Self(std::env::temp_dir().join(name))
    }

    /// Makes a folder.
    pub(crate) fn folder(name: &str) -> std::io::Result<Self> {
        let folder = Self::new(name);
        std::fs::create_dir_all(&folder.0)?;
        Ok(folder)
    }

    pub(crate) fn remove(&self) {
        // There may be nothing, or something of the other kind.
        let _ = std::fs::remove_file(&self.0);
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl std::ops::Deref for Temporary {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.0
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        self.remove();
    }
}
