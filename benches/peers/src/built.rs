//! Builds programs of their own: other packages, in folders of their own, as a user would.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::raw;

/// Folder of the package of this program.
pub(crate) const PACKAGE: &str = env!("CARGO_MANIFEST_DIR");

/// Returns a folder for the builds, next to the file of this program.
pub(crate) fn folder(name: &str) -> Result<PathBuf, Box<dyn Error>> {
    let program = std::env::current_exe()?;
    let profile = program.parent().ok_or("this program has no folder")?;
    let folder = profile.join(name);
    std::fs::create_dir_all(&folder)?;
    Ok(folder)
}

/// Returns a call of Cargo in a folder, without the settings that change what it builds. Spaces
/// separate the arguments.
pub(crate) fn cargo(folder: &Path, arguments: &str) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command
        .args(arguments.split(' '))
        .current_dir(folder)
        .stdin(Stdio::null());
    let changes_builds = |name: &str| {
        let groups = ["CARGO_BUILD_", "CARGO_PROFILE_", "CARGO_TARGET_", "RUSTC_"];
        groups.iter().any(|group| name.starts_with(group))
            || matches!(
                name,
                "CARGO_ENCODED_RUSTFLAGS" | "CARGO_INCREMENTAL" | "RUSTFLAGS"
            )
    };
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(changes_builds) {
            command.env_remove(name);
        }
    }
    command
}

/// Runs a command to its end, and returns what it printed, and the CPU time of its processes in
/// seconds.
pub(crate) fn run(mut command: Command) -> Result<(String, f64), Box<dyn Error>> {
    let before = raw::children_cpu_ns()?;
    let output = command.output()?;
    let cpu = (raw::children_cpu_ns()? - before) as f64 / 1e9;
    if !output.status.success() {
        let problem = String::from_utf8_lossy(&output.stderr);
        return Err(format!("`{command:?}` ended with {}: {problem}", output.status).into());
    }
    Ok((String::from_utf8(output.stdout)?, cpu))
}
