//! Builds the libraries that the storm loads: a small and a large one in Rust, and three in C, of
//! which two have no call frame information. Several files of each, so that several threads load
//! them. Also copies the library that contains the profiler.

use std::ffi::{CStr, CString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crate::folder;

const RUST: [(&str, &[&str]); 2] = [("small", &[]), ("large", &["--cfg", "large"])];
const NO_TABLES: [&str; 2] = ["-fno-asynchronous-unwind-tables", "-fno-unwind-tables"];
const C: [(&str, &[&str]); 3] = [
    ("c", &["-O2"]),
    (
        "c_frames",
        &["-O1", "-fno-omit-frame-pointer", NO_TABLES[0], NO_TABLES[1]],
    ),
    (
        "c_bare",
        &["-O2", "-fomit-frame-pointer", NO_TABLES[0], NO_TABLES[1]],
    ),
];
const FILES: usize = 3;
/// Number of files that contain the profiler. With the storm's own copy, there are as many copies
/// as signals that the profiler uses without being asked. Of two copies that use the same signal,
/// the one whose handler is older does not sample until it starts anew.
pub const COPIES: usize = 2;

static LIBRARIES: OnceLock<Libraries> = OnceLock::new();

/// The paths of the libraries.
struct Libraries {
    rust: Vec<CString>,
    c: Vec<CString>,
}

/// Compiles the libraries into the folder of this run, which takes some seconds.
pub fn build() -> Result<(), String> {
    copy_profiler()?;
    let libraries = Libraries {
        rust: build_each(&RUST, rust_compiler)?,
        c: build_each(&C, c_compiler)?,
    };
    let set = LIBRARIES.set(libraries);
    set.map_err(|_| "the libraries are already built".to_owned())
}

fn build_each(
    kinds: &[(&str, &[&str])],
    compiler: fn(&Path, &[&str]) -> Command,
) -> Result<Vec<CString>, String> {
    let mut paths = Vec::new();
    for (kind, arguments) in kinds {
        let first = folder::path().join(format!("libstorm_{kind}_0.so"));
        run(compiler(&first, arguments))?;
        for number in 0..FILES {
            let path = first.with_file_name(format!("libstorm_{kind}_{number}.so"));
            if path != first {
                copy(&first, &path)?;
            }
            paths.push(to_c_string(&path)?);
        }
    }
    Ok(paths)
}

fn rust_compiler(to: &Path, arguments: &[&str]) -> Command {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("library/lib.rs");
    let mut command = Command::new(env!("STORM_RUSTC"));
    command.args(["--edition", "2024", "--crate-type", "cdylib"]);
    command.args(["--crate-name", "storm_library", "-O", "-C", "debuginfo=1"]);
    command.args(["--check-cfg", "cfg(large)"]).args(arguments);
    command.arg("-o").arg(to).arg(source);
    command
}

fn c_compiler(to: &Path, arguments: &[&str]) -> Command {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("library/work.c");
    let mut command = Command::new(std::env::var_os("CC").unwrap_or_else(|| "cc".into()));
    command.args(["-shared", "-fPIC", "-g"]).args(arguments);
    command.arg("-o").arg(to).arg(source);
    command
}

fn run(mut command: Command) -> Result<(), String> {
    let output = command.output();
    let output = output.map_err(|error| format!("cannot run {command:?}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr);
    Err(format!("a library does not compile:\n{text}"))
}

/// Copies the library that contains the profiler. The loader takes each file for another library,
/// so each has a profiler of its own.
fn copy_profiler() -> Result<(), String> {
    // Cargo builds the library of a dependency into this folder next to the executable.
    let storm = std::env::current_exe().map_err(|error| error.to_string())?;
    let built = storm.with_file_name("deps").join("libplugin.so");
    (0..COPIES).try_for_each(|number| copy(&built, &path_of_copy(number)))
}

/// Returns the path of a library that contains the profiler.
pub fn path_of_copy(number: usize) -> PathBuf {
    folder::path().join(format!("libplugin_{number}.so"))
}

fn copy(from: &Path, to: &Path) -> Result<(), String> {
    let copied = std::fs::copy(from, to).map(drop);
    copied.map_err(|error| {
        format!(
            "cannot copy {} to {}: {error}",
            from.display(),
            to.display()
        )
    })
}

fn to_c_string(path: &Path) -> Result<CString, String> {
    CString::new(path.as_os_str().as_bytes()).map_err(|error| error.to_string())
}

fn paths(of: impl Fn(&'static Libraries) -> &'static [CString]) -> Vec<&'static CStr> {
    let libraries = LIBRARIES.get().into_iter();
    libraries.flat_map(of).map(CString::as_c_str).collect()
}

/// Returns the files in Rust.
pub fn in_rust() -> Vec<&'static CStr> {
    paths(|libraries| &libraries.rust)
}

/// Returns the files in C.
pub fn in_c() -> Vec<&'static CStr> {
    paths(|libraries| &libraries.c)
}
