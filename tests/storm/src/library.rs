//! Builds the libraries that the storm loads: a small and a large one, three files of each, in a
//! folder of this run.

use std::ffi::{CStr, CString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

const COPIES: usize = 3;
static LIBRARIES: OnceLock<Vec<CString>> = OnceLock::new();

/// The folder with the libraries, removed on drop.
pub struct Libraries {
    folder: PathBuf,
}

impl Libraries {
    /// Compiles the libraries, which takes some seconds.
    pub fn build() -> Result<Self, String> {
        let folder = std::env::temp_dir().join(format!("gekkota-storm-{}", std::process::id()));
        let describe = |error: std::io::Error| format!("{}: {error}", folder.display());
        std::fs::create_dir_all(&folder).map_err(describe)?;
        let libraries = Self {
            folder: folder.clone(),
        };
        let mut paths = Vec::new();
        for (size, arguments) in [("small", &[][..]), ("large", &["--cfg", "large"][..])] {
            let first = folder.join(format!("libstorm_{size}_0.so"));
            compile(&first, arguments)?;
            for copy in 0..COPIES {
                let path = folder.join(format!("libstorm_{size}_{copy}.so"));
                if path != first {
                    std::fs::copy(&first, &path).map_err(describe)?;
                }
                let path =
                    CString::new(path.as_os_str().as_bytes()).map_err(|error| error.to_string())?;
                paths.push(path);
            }
        }
        LIBRARIES
            .set(paths)
            .map_err(|_| "the libraries are already built".to_owned())?;
        Ok(libraries)
    }
}

impl Drop for Libraries {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.folder) {
            eprintln!("storm: cannot remove {}: {error}", self.folder.display());
        }
    }
}

fn compile(to: &Path, arguments: &[&str]) -> Result<(), String> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("library/lib.rs");
    let mut command = Command::new(env!("STORM_RUSTC"));
    command.args([
        "--edition",
        "2024",
        "--crate-type",
        "cdylib",
        "--crate-name",
        "storm_library",
    ]);
    command
        .args(["-O", "-C", "debuginfo=1", "--check-cfg", "cfg(large)"])
        .args(arguments);
    let output = command.arg("-o").arg(to).arg(source).output();
    let output = output.map_err(|error| format!("cannot run {}: {error}", env!("STORM_RUSTC")))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!(
        "the library does not compile:\n{}",
        String::from_utf8_lossy(&output.stderr)
    ))
}

/// Returns the files, the small libraries first.
pub fn paths() -> Vec<&'static CStr> {
    LIBRARIES
        .get()
        .into_iter()
        .flatten()
        .map(CString::as_c_str)
        .collect()
}
