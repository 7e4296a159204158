//! The folder of this run, which holds the libraries that are loaded and the profiles that are
//! saved.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// Variable in which the storm passes the folder to its programs.
pub const VARIABLE: &str = "STORM_FOLDER";

static PATH: OnceLock<PathBuf> = OnceLock::new();

/// The folder, removed on drop.
pub struct Folder(PathBuf);

impl Folder {
    pub fn create() -> Result<Self, String> {
        let path = std::env::temp_dir().join(format!("gekkota-storm-{}", std::process::id()));
        std::fs::create_dir_all(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        let folder = Self(path.clone());
        set(path)?;
        Ok(folder)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0) {
            eprintln!("storm: cannot remove {}: {error}", self.0.display());
        }
    }
}

fn set(path: PathBuf) -> Result<(), String> {
    PATH.set(path).map_err(|_| "two folders".to_owned())
}

/// Uses the folder of the storm that has started this program.
pub fn join() -> Result<(), String> {
    let path = std::env::var_os(VARIABLE);
    set(path
        .ok_or("no folder: only the storm starts programs")?
        .into())
}

pub fn path() -> &'static Path {
    PATH.get().expect("created before the first use")
}

/// Returns the names in the folder that begin with `prefix`.
pub fn names_with(prefix: &str) -> Vec<String> {
    let entries = std::fs::read_dir(path()).into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| name.starts_with(prefix)).collect()
}
