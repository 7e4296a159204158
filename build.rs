//! Maps the target to capabilities, so that the code tests for what it needs instead of listing
//! operating systems.
//!
//! | cfg | meaning |
//! |---|---|
//! | `has_signal_suspend` | a signal with a value can be sent to a thread (`rt_tgsigqueueinfo`), and its handler receives the thread's registers |
//! | `has_register_capture` | `src/platform` can read the registers from a signal's context |
//! | `has_cpu_clock` | the CPU time of any thread of the process can be read from its id |
//! | `has_module_list` | `dl_iterate_phdr` lists the loaded modules and counts loads and unloads |
//! | `has_profiler` | all of the above, and the feature `enabled`: the profiler is built, instead of its empty replacement |

use std::env;
use std::path::Path;

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
