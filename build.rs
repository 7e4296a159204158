//! Turns the target into capabilities, so that the code asks for what it needs and never lists operating systems.
//!
//! | cfg | means |
//! |---|---|
//! | `has_signal_suspend` | a thread can be signalled with a value (`rt_tgsigqueueinfo`), and its handler gets its registers |
//! | `has_register_capture` | `src/platform` knows where the registers stand in a signal's context |
//! | `has_cpu_clock` | the CPU time of any thread of the process can be read from its id |
//! | `has_module_list` | `dl_iterate_phdr` lists the loaded modules, with counters of changes |
//! | `has_profiler` | all of these, and the feature `enabled`: the profiler is built; else its twin that does nothing |

use std::env;

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
}
