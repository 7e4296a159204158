//! `weight`: what a dependency adds to a program that prints one line: the packages, the CPU time of
//! a clean release build, and the size of the stripped program.
//!
//! Each arm is a package of its own, written and built by Cargo in a folder of its own. The program
//! uses its dependency as its documentation shows first, so that the linker keeps what a user needs.
//! `ours_NAME` is the default with one feature more, and `ours_enabled` the profiler without the
//! other default features. `ours_hint` has the profile that gekkota's README suggests.
//!
//! The CPU time is user and system time of Cargo, the compiler and the linker. It grows if the
//! machine is busy, so compare it within one run. The rounds build the same in turn.

use std::error::Error;
use std::fs;
use std::path::Path;

use crate::built::{PACKAGE, cargo, folder, run};
use crate::machine::{self, load_note};
use crate::report::{Arm, Report};
use crate::{Effort, Outcome};

const GOAL_PACKAGES: f64 = 35.0;
const GOAL_CPU_SECONDS: f64 = 45.0;
const GOAL_BYTES: f64 = 1.2e6;

/// A program, by its dependency.
struct Program {
    name: &'static str,
    /// Lines of the manifest.
    dependencies: String,
    /// Body of `main`.
    main: &'static str,
    profile: &'static str,
}

/// What a program weighs.
struct Weight {
    /// All that Cargo builds, without the program itself.
    packages: f64,
    cpu_seconds: f64,
    bytes: f64,
}

const OURS: &str = "let _profiler = gekkota::AutoProfilerInit::new();";
/// The profile that the README suggests for small programs.
const HINT: &str = "[profile.release.package.gekkota]\nopt-level = \"s\"\n";
/// The features that are measured one by one, in addition to the default.
const FEATURES: [(&str, &str); 9] = [
    ("ours_backtrace", "backtrace"),
    ("ours_cpp", "cpp"),
    ("ours_derive", "derive"),
    ("ours_formats", "formats"),
    ("ours_log", "log"),
    ("ours_metrics", "metrics"),
    ("ours_mini_debug_info", "mini_debug_info"),
    ("ours_protobuf", "protobuf"),
    ("ours_tracing", "tracing"),
];

fn ours(name: &'static str, rest: &str, profile: &'static str) -> Program {
    Program {
        name,
        dependencies: format!(
            "gekkota = {{ path = {:?}{rest} }}",
            format!("{PACKAGE}/../..")
        ),
        main: OURS,
        profile,
    }
}

/// Returns the programs: the one without a dependency, ours with its default features, and the
/// others.
fn programs() -> Vec<Program> {
    let peer = |name, dependencies: &str, main| Program {
        name,
        dependencies: dependencies.to_owned(),
        main,
        profile: "",
    };
    let mut programs = vec![
        peer("hello", "", ""),
        ours("ours", "", ""),
        ours("ours_hint", "", HINT),
        peer(
            "pprof",
            "pprof = \"0.15\"",
            "let guard = pprof::ProfilerGuard::new(100).unwrap(); println!(\"{:?}\", guard.report().build().unwrap());",
        ),
        peer(
            "puffin",
            "puffin = \"0.20\"",
            "puffin::set_scopes_on(true); puffin::GlobalProfiler::lock().new_frame(); puffin::profile_scope!(\"main\");",
        ),
        peer(
            "tracing_chrome",
            "tracing = \"0.1\"\ntracing-chrome = \"0.7\"\ntracing-subscriber = { version = \"0.3\", default-features = false, features = [\"registry\", \"std\"] }",
            "use tracing_subscriber::prelude::*; let (layer, _guard) = tracing_chrome::ChromeLayerBuilder::new().build(); \
             tracing_subscriber::registry().with(layer).init(); let _span = tracing::info_span!(\"main\").entered();",
        ),
        ours(
            "ours_enabled",
            ", default-features = false, features = [\"enabled\"]",
            "",
        ),
    ];
    for (name, feature) in FEATURES {
        programs.push(ours(name, &format!(", features = [{feature:?}]"), ""));
    }
    programs
}

pub(crate) fn measure(effort: Effort) -> Outcome {
    // A round takes as long as it takes; a first look leaves out the features.
    let programs = programs();
    let chosen = if effort.quick { 4 } else { programs.len() };
    let rounds = if effort.quick { 1 } else { 3 };
    let mut arms: Vec<[Arm; 3]> = programs[..chosen]
        .iter()
        .map(|program| {
            let extra = |unit: &str| Arm::extra(format!("{}_{unit}", program.name).leak());
            let seconds = match program.name {
                "ours" | "pprof" | "puffin" | "tracing_chrome" => Arm::new(program.name),
                other => Arm::extra(other),
            };
            [seconds, extra("packages"), extra("bytes")]
        })
        .collect();
    let mut notes = vec![load_note()];
    let folder = folder("weight")?;
    for round in 1..=rounds {
        let (result, taken) = machine::watch(|| {
            let mut empty = 0.0;
            for (program, [seconds, packages, bytes]) in programs.iter().zip(&mut arms) {
                let weight = program.weigh(&folder)?;
                if program.name == "hello" {
                    empty = weight.bytes;
                }
                seconds.runs.push(weight.cpu_seconds);
                packages.runs.push(weight.packages);
                bytes.runs.push(weight.bytes - empty);
            }
            Ok::<(), Box<dyn Error>>(())
        });
        result?;
        notes.push(format!(
            "round {round}: CPUs used by other processes + the hypervisor: {taken}"
        ));
    }
    notes.push(
        "`…_packages`: what Cargo builds beside the program; `…_bytes`: what the stripped program has \
         more than `hello`"
            .to_owned(),
    );
    let [ours, ours_hint] = [1, 2].map(|place: usize| arms[place].each_ref().map(Arm::figure));
    let met = is_met(ours);
    notes.push(format!(
        "with the default profile: {}; with the suggested one: {}",
        verdict(met),
        verdict(is_met(ours_hint))
    ));
    let mut arms: Vec<Arm> = arms.into_iter().flatten().collect();
    // The size of the empty program is what all are compared with.
    arms.drain(..3);
    let ours = arms.remove(0);
    Ok(Report {
        unit: "CPU seconds of a clean release build of a program that prints one line",
        ours,
        peers: arms,
        floor: None,
        better: f64::min,
        goal: "ours <= 35 packages, 45 CPU seconds, 1.2 MB",
        met,
        notes,
    })
}

/// Returns whether CPU seconds, packages and bytes are small enough.
fn is_met([seconds, packages, bytes]: [f64; 3]) -> bool {
    seconds <= GOAL_CPU_SECONDS && packages <= GOAL_PACKAGES && bytes <= GOAL_BYTES
}

fn verdict(met: bool) -> &'static str {
    if met { "met" } else { "not met" }
}

impl Program {
    /// Builds the program from scratch, and weighs it.
    fn weigh(&self, folder: &Path) -> Result<Weight, Box<dyn Error>> {
        let package = folder.join(self.name);
        fs::create_dir_all(package.join("src"))?;
        let manifest = format!(
            "[package]\nname = \"hello\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n[workspace]\n\n\
             [dependencies]\n{}\n\n{}\n[profile.release]\nstrip = true\n",
            self.dependencies, self.profile
        );
        fs::write(package.join("Cargo.toml"), manifest)?;
        fs::write(
            package.join("src/main.rs"),
            format!(
                "fn main() {{\n    {}\n    println!(\"hello\");\n}}\n",
                self.main
            ),
        )?;
        let target = package.join("target");
        if target.exists() {
            fs::remove_dir_all(&target)?;
        }
        // The download is not measured.
        run(cargo(&package, &["fetch", "--quiet"]))?;
        let tree = [
            "tree",
            "--edges",
            "normal,build",
            "--prefix",
            "none",
            "--no-dedupe",
        ];
        let (tree, _) = run(cargo(&package, &tree))?;
        let build = [
            "build",
            "--release",
            "--quiet",
            "--offline",
            "--target-dir",
            "target",
        ];
        let (_, cpu_seconds) = run(cargo(&package, &build))?;
        let bytes = fs::metadata(target.join("release/hello"))?.len();
        fs::remove_dir_all(&target)?;
        Ok(Weight {
            packages: packages(&tree) as f64 - 1.0,
            cpu_seconds,
            bytes: bytes as f64,
        })
    }
}

/// Counts the packages that `cargo tree` lists, each once.
fn packages(tree: &str) -> usize {
    let mut packages: Vec<&str> = tree
        .lines()
        .map(|line| line.split(" (").next().unwrap_or(line))
        .filter(|line| !line.is_empty())
        .collect();
    packages.sort_unstable();
    packages.dedup();
    packages.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn package_counts_once_and_versions_count_apart() {
        let tree = "hello v0.0.0 (/tmp/hello)\nlibc v0.2.1\nsyn v2.0.0\nlibc v0.2.1\nsyn v3.0.0 (*)\nmacro v1.0.0 (proc-macro)\n\n";
        assert_eq!(packages(tree), 5);
    }

    #[test]
    fn goal_needs_all_three_figures() {
        assert!(is_met([45.0, 35.0, 1.2e6]));
        for missed in [
            [45.1, 35.0, 1.2e6],
            [45.0, 36.0, 1.2e6],
            [45.0, 35.0, 1.3e6],
        ] {
            assert!(!is_met(missed));
        }
    }

    #[test]
    fn first_program_has_no_dependency_and_the_second_is_ours() {
        let programs = programs();
        assert_eq!(programs[0].dependencies, "");
        assert!(programs[1].name == "ours" && programs[1].dependencies.contains("gekkota"));
    }
}
