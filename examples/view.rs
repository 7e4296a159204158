//! Opens a profile in the Firefox Profiler, with names, source code and instructions.
//!
//! ```text
//! cargo run --release --example view -- PROFILE
//! ```
//!
//! Builds and runs the package `examples/view`, whose documentation says more. It is a package of
//! its own because an example uses the dependencies of its crate, and a server needs many others.

/// Becomes `cargo run` for the package. Returns only if that fails.
#[cfg(unix)]
fn run_package() -> String {
    use std::os::unix::process::CommandExt;

    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/view/Cargo.toml");
    let mut command = std::process::Command::new(cargo);
    command.args(["run", "--release", "--manifest-path", manifest, "--"]);
    let error = command.args(std::env::args_os().skip(1)).exec();
    format!("cannot run cargo: {error}")
}

#[cfg(not(unix))]
fn run_package() -> String {
    "got a system that is not Unix, expected Linux".to_owned()
}

fn main() {
    eprintln!("view: {}", run_package());
    std::process::exit(1);
}
