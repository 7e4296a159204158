//! Shared libraries that a unit test compiles, loads and unloads.
//!
//! **Contract** (cited below):
//! - *ours*: the library has no constructors, no thread runs its code when it is closed, and it is
//!   closed once.

use std::ffi::{CString, c_void};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Held by the test that loads libraries. Another one could change its libraries' addresses.
static ONE_TEST: Mutex<()> = Mutex::new(());

/// A temporary folder, removed on drop. While it exists, no other test has one.
pub(crate) struct TestFolder {
    path: PathBuf,
    _one_test: MutexGuard<'static, ()>,
}

impl TestFolder {
    pub(crate) fn new(name: &str) -> Self {
        let one_test = ONE_TEST.lock().unwrap_or_else(PoisonError::into_inner);
        let folder = std::env::temp_dir().join(format!("gekkota-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder for libraries");
        Self {
            path: folder,
            _one_test: one_test,
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Compiles a library with the functions `function` and `enter`, which calls it. Returns the
    /// library's path.
    pub(crate) fn compile(&self, library: &str, function: &str, flags: &[&str]) -> PathBuf {
        let (source, path) = (
            self.path.join("source.c"),
            self.path.join(format!("lib{library}.so")),
        );
        let text = format!(
            "int {function}(int x) {{ return x * 3; }} int enter(int x) {{ return {function}(x) + 1; }}"
        );
        std::fs::write(&source, text).expect("the source is written");
        // A new file gets a new inode, so a library that is still loaded from the old file is
        // unaffected.
        let _ = std::fs::remove_file(&path);
        let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".to_owned());
        let output = Command::new(&compiler)
            .args(["-shared", "-fPIC", "-O1", "-o"])
            .args([&path, &source])
            .args(flags)
            .output()
            .unwrap_or_else(|error| {
                panic!("cannot run the C compiler {compiler}: {error}; set CC to select another")
            });
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        path
    }
}

impl Drop for TestFolder {
    fn drop(&mut self) {
        // A failure leaves the files in the temporary folder, which is harmless.
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

/// A loaded library. The caller unloads it with [`close`](Self::close).
pub(crate) struct TestLibrary(*mut c_void);

impl TestLibrary {
    pub(crate) fn load(path: &Path) -> Self {
        let name = CString::new(path.to_str().expect("UTF-8")).expect("no zero");
        // SAFETY: *ours*.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        assert!(!handle.is_null(), "cannot load {}", path.display());
        Self(handle)
    }

    /// Returns the address of the library's function `enter`.
    pub(crate) fn address(&self) -> u64 {
        // SAFETY: *ours*: the library is loaded.
        let address = unsafe { libc::dlsym(self.0, c"enter".as_ptr()) };
        assert!(!address.is_null());
        address as u64
    }

    pub(crate) fn close(self) {
        // SAFETY: *ours*.
        assert_eq!(unsafe { libc::dlclose(self.0) }, 0);
    }
}
