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
    let var = |name: &str| env::var(name).unwrap_or_default();
    let linux = var("CARGO_CFG_TARGET_OS") == "linux";
    let known_registers = matches!(var("CARGO_CFG_TARGET_ARCH").as_str(), "x86_64" | "aarch64");
    let enabled = env::var_os("CARGO_FEATURE_ENABLED").is_some();
    let capabilities = [
        ("has_signal_suspend", linux),
        ("has_register_capture", linux && known_registers),
        ("has_cpu_clock", linux),
        ("has_module_list", linux),
    ];
    let all = capabilities.iter().all(|(_, present)| *present);
    for (name, present) in capabilities
        .into_iter()
        .chain([("has_profiler", all && enabled)])
    {
        println!("cargo::rustc-check-cfg=cfg({name})");
        if present {
            println!("cargo::rustc-cfg={name}");
        }
    }
    let shares_context = env::var_os("CARGO_FEATURE_OTEL_CONTEXT_UNSTABLE").is_some();
    // The published package has no tests, and Cargo refuses the line without any.
    if all && shares_context && Path::new("tests/it/main.rs").exists() {
        // Only for this package's own tests, which read the context from outside. An application
        // needs such a line in a build script of its own.
        println!("cargo::rustc-link-arg-tests=-Wl,--export-dynamic-symbol=otel_thread_ctx_v1");
    }
}
