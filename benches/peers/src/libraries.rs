//! Shared libraries, as many as wanted, loaded into this process for good.
//!
//! **Contract** (cited below):
//! - *ours*: the library is the one that is built beside this program. Its constructors are Rust's, and it is never closed.
#![allow(unsafe_code, reason = "the loader has no safe interface")]

use std::error::Error;
use std::ffi::CString;
use std::path::{Path, PathBuf};

const LIBRARY: &str = "libpeers_preload.so";

/// A folder for copies, which is removed at the end; what is loaded of them stays.
pub(crate) struct Copies(PathBuf);

impl Copies {
    pub(crate) fn new() -> Result<Self, Box<dyn Error>> {
        let folder =
            std::env::temp_dir().join(format!("gekkota-peers-libraries-{}", std::process::id()));
        std::fs::create_dir_all(&folder)?;
        Ok(Self(folder))
    }

    /// Loads so many, each a file of its own, since the loader loads a file once.
    pub(crate) fn load(&self, count: usize) -> Result<(), Box<dyn Error>> {
        let original = beside_this_program(LIBRARY)?;
        for number in 0..count {
            let copy = self.0.join(format!("libcopy{number}.so"));
            std::fs::copy(&original, &copy)?;
            load(&copy)?;
        }
        Ok(())
    }
}

impl Drop for Copies {
    fn drop(&mut self) {
        // It lies among temporary files.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Cargo puts a library that another target needs beside the program, or in its folder of parts.
pub(crate) fn beside_this_program(name: &str) -> Result<PathBuf, Box<dyn Error>> {
    let own = std::env::current_exe()?;
    let folder = own.parent().ok_or("this program lies nowhere")?;
    [folder.to_owned(), folder.join("deps")]
        .map(|folder| folder.join(name))
        .into_iter()
        .find(|path| path.exists())
        .ok_or_else(|| format!("{name} is not beside {}", own.display()).into())
}

fn load(path: &Path) -> Result<(), Box<dyn Error>> {
    let name = CString::new(path.as_os_str().as_encoded_bytes())?;
    // SAFETY: *ours*.
    let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_LAZY | libc::RTLD_LOCAL) };
    if handle.is_null() {
        Err(format!("{} could not be loaded", path.display()).into())
    } else {
        Ok(())
    }
}
