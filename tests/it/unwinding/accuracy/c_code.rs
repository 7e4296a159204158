//! C code that the test compiles and loads.

use std::ffi::{CString, c_char, c_void};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A temporary folder of this process, removed on drop.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new() -> Self {
        let folder = std::env::temp_dir().join(format!("gekkota-accuracy-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder for compiled code");
        Self(folder)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // A temporary folder may stay.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Compiles a shared library.
pub(crate) fn compile(folder: &Folder, name: &str, source: &str, flags: &[&str]) -> PathBuf {
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".to_owned());
    let (source_file, library) = (
        folder.path().join(format!("{name}.c")),
        folder.path().join(format!("lib{name}.so")),
    );
    std::fs::write(&source_file, source).expect("the source is written");
    let output = Command::new(&compiler)
        .args(["-shared", "-fPIC", "-g0", "-w"])
        .args(flags)
        .arg("-o")
        .args([&library, &source_file])
        .output()
        .unwrap_or_else(|error| {
            panic!(
                "this test compiles C code with {compiler:?}, which cargo itself needs to link; it could not be run: \
                 {error}. Set CC to a C compiler."
            )
        });
    assert!(
        output.status.success(),
        "{compiler} {flags:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    library
}

/// A library that stays loaded until it is closed.
pub(crate) struct Library(*mut c_void);

impl Library {
    pub(crate) fn load(path: &Path) -> Self {
        let name = CString::new(path.to_str().expect("UTF-8")).expect("no zero");
        // SAFETY: the library has only the compiler's own constructors.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_LAZY | libc::RTLD_LOCAL) };
        assert!(!handle.is_null(), "{} could not be loaded", path.display());
        Self(handle)
    }

    pub(crate) fn address(&self, name: &str) -> *mut c_void {
        let c_name = CString::new(name).expect("no zero");
        // SAFETY: the handle is open, and the name is terminated.
        let address = unsafe { libc::dlsym(self.0, c_name.as_ptr()) };
        assert!(!address.is_null(), "no {name}");
        address
    }

    /// Unloads the library.
    pub(crate) fn close(self) {
        // SAFETY: `self` is consumed, so the handle is closed once.
        let answer = unsafe { libc::dlclose(self.0) };
        assert_eq!(answer, 0, "cannot unload the library");
    }

    /// Returns a function `unsigned long f(unsigned long)`.
    pub(crate) fn function(&self, name: &str) -> extern "C" fn(u64) -> u64 {
        // SAFETY: the tests request only functions with this signature.
        unsafe { std::mem::transmute(self.address(name)) }
    }

    /// Returns `acc_calls_back`, a `void f(void (*back)(unsigned long), unsigned long)`.
    pub(crate) fn calls_back(&self) -> extern "C" fn(extern "C" fn(u64), u64) {
        // SAFETY: the function has this signature in its source.
        unsafe { std::mem::transmute(self.address("acc_calls_back")) }
    }

    /// Returns `acc_calls_libc`, an `unsigned long f(char *to, const char *from, unsigned long
    /// bytes)`.
    pub(crate) fn calls_libc(&self) -> extern "C" fn(*mut c_char, *const c_char, u64) -> u64 {
        // SAFETY: the function has this signature in its source.
        unsafe { std::mem::transmute(self.address("acc_calls_libc")) }
    }
}
