//! Loads any number of shared libraries into this process for good.
//!
//! **Contract** (cited below):
//! - *ours*: the library is the one built together with this program. Its constructors are Rust's,
//!   and it is never closed.
#![allow(unsafe_code, reason = "the loader has no safe interface")]

use std::ffi::CString;
use std::path::{Path, PathBuf};

use crate::study::Fallible;
use crate::temporary::Temporary;

pub(crate) const LIBRARY: &str = "libpeers_preload.so";

/// A temporary folder for copies of a library. Dropping it removes the folder; the loaded copies
/// stay mapped.
pub(crate) struct Copies(Temporary);

impl Copies {
    pub(crate) fn new() -> Fallible<Self> {
        Ok(Self(Temporary::folder("-libraries")?))
    }

    /// Loads `count` copies. Each is a separate file, because the loader loads a file only once.
    pub(crate) fn load(&self, count: usize) -> Fallible<()> {
        let original = find_built_library(LIBRARY)?;
        for number in 0..count {
            let copy = self.0.join(format!("libcopy{number}.so"));
            std::fs::copy(&original, &copy)?;
            load(&copy)?;
        }
        Ok(())
    }
}

/// Returns the path of a library that cargo built for another target of this package: in the
/// program's folder, or in `deps` below it.
pub(crate) fn find_built_library(name: &str) -> Fallible<PathBuf> {
    let own = std::env::current_exe()?;
    let folder = own
        .parent()
        .ok_or("the path of this program has no folder")?;
    [folder.to_owned(), folder.join("deps")]
        .map(|folder| folder.join(name))
        .into_iter()
        .find(|path| path.exists())
        .ok_or_else(|| format!("cannot find {name} in the folder of {}", own.display()).into())
}

fn load(path: &Path) -> Fallible<()> {
    let name = CString::new(path.as_os_str().as_encoded_bytes())?;
    // SAFETY: *ours*.
    let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_LAZY | libc::RTLD_LOCAL) };
    if handle.is_null() {
        Err(format!("cannot load {}", path.display()).into())
    } else {
        Ok(())
    }
}
