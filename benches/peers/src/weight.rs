//! `weight`: what a dependency adds to a program that prints one line: the packages, the CPU time of
//! a clean release build, and the size of the stripped program.
//!
//! Each arm is a package of its own, written and built by Cargo in a folder of its own. The program
//! uses its dependency as its documentation shows first, so that the linker keeps what a user needs.
//! `ours_NAME` is the default with one feature more, and `ours_enabled` the profiler without the
//! other default features. `ours_hint` has the profile that gekkota's README suggests.
//!
//! The CPU time is user and system time of Cargo, the compiler and the linker. It grows if the
//! machine is busy, so compare it within one run. Each round builds all programs in turn.
//!
//! `…_packages` is the number of packages that Cargo builds in addition to the program. `…_bytes`
//! is how much larger the stripped program is than one without a dependency.

use std::fs;
use std::path::Path;

use crate::built::{PACKAGE, cargo, folder, run};
use crate::prelude::*;

pub(crate) const MEASUREMENT: Measurement = Measurement {
    name: "weight",
    unit: "CPU seconds of a clean release build of a program that prints one line",
    goal: "ours <= 35 packages, 45 CPU seconds, 1.2 MB",
    peers: &["pprof"],
    is_met: |study| is_met(study, "ours"),
    measure: |study| {
        // A round takes as long as it takes; a first look leaves out the features.
        let programs = programs();
        let chosen = study.pick(4, programs.len());
        let folder = folder("weight")?;
        study.rounds(
            study.pick(1, 3),
            "each program built from scratch",
            |study, _| {
                let mut empty = 0.0;
                for program in &programs[..chosen] {
                    let [seconds, packages, bytes] = program.weigh(&folder)?;
                    if program.name == "hello" {
                        empty = bytes;
                        continue;
                    }
                    study.push(program.name, seconds);
                    study.push(&format!("{}_packages", program.name), packages);
                    study.push(&format!("{}_bytes", program.name), bytes - empty);
                }
                Ok(())
            },
        )?;
        let verdict = if is_met(study, "ours_hint") {
            "met"
        } else {
            "not met"
        };
        study.note(format!("with the suggested profile: {verdict}"));
        Ok(())
    },
    ..Measurement::NEW
};

fn is_met(study: &Study, program: &str) -> bool {
    let goals = [("", 45.0), ("_packages", 35.0), ("_bytes", 1.2e6)];
    goals
        .iter()
        .all(|(figure, goal)| study.at_most(&[&format!("{program}{figure}")], *goal))
}

/// A program, by its dependency.
struct Program {
    name: &'static str,
    /// Lines of the manifest.
    dependencies: String,
    /// Body of `main`.
    main: &'static str,
    profile: &'static str,
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

impl Program {
    /// Builds the program from scratch. Returns the CPU seconds, the number of packages that Cargo
    /// builds in addition to the program, and the bytes.
    fn weigh(&self, folder: &Path) -> Fallible<[f64; 3]> {
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
        run(cargo(&package, "fetch --quiet"))?;
        let tree = "tree --edges normal,build --prefix none --no-dedupe";
        let (tree, _) = run(cargo(&package, tree))?;
        let build = "build --release --quiet --offline --target-dir target";
        let (_, cpu_seconds) = run(cargo(&package, build))?;
        let bytes = fs::metadata(target.join("release/hello"))?.len();
        fs::remove_dir_all(&target)?;
        Ok([cpu_seconds, packages(&tree) as f64 - 1.0, bytes as f64])
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
    fn first_program_has_no_dependency_and_the_second_is_ours() {
        let programs = programs();
        assert_eq!(programs[0].dependencies, "");
        assert!(programs[1].name == "ours" && programs[1].dependencies.contains("gekkota"));
    }
}
