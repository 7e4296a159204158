//! Decides whether the profiler is built (`has_profiler`), or its empty replacement.
//!
//! It is built with the feature `enabled`, on the targets for which `src/platform` can send a signal with
//! a value to a thread, read the registers from the signal's context, read the CPU time of any thread of
//! the process, and list the loaded modules.

use std::env;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-check-cfg=cfg(has_profiler)");
    let is = |name: &str, values: &[&str]| {
        env::var(name).is_ok_and(|value| values.contains(&value.as_str()))
    };
    let can_sample = is("CARGO_CFG_TARGET_OS", &["linux"])
        && is("CARGO_CFG_TARGET_ARCH", &["x86_64", "aarch64"]);
    if can_sample && env::var_os("CARGO_FEATURE_ENABLED").is_some() {
        println!("cargo::rustc-cfg=has_profiler");
    }
}
