//! Which module is the program's, and which functions and sources belong to its own crates.

use crate::model::{Function, FunctionKind, ModuleId, ProfileModel};

/// Beginnings of the paths of sources that belong to Rust or to the system.
const FOREIGN_ROOTS: [&str; 7] = [
    "/rust/deps/",
    "/rustc/",
    "/usr/include/",
    "/usr/lib/",
    "/usr/local/cargo/",
    "/usr/share/",
    "/nix/store/",
];
/// Folders that hold the sources of Rust, and those in which Cargo keeps packages of others.
const FOREIGN_FOLDERS: [&str; 3] = ["/rustlib/src/", "/registry/src/", "/git/checkouts/"];

/// Name of this crate. A program may keep its source in a folder next to its own crates.
const PROFILER: &str = env!("CARGO_PKG_NAME");

/// Returns whether a file belongs to the program's own crates, by its path.
pub(crate) fn is_own_source(path: &str) -> bool {
    path.starts_with('/')
        && !FOREIGN_ROOTS.iter().any(|root| path.starts_with(root))
        && !FOREIGN_FOLDERS.iter().any(|folder| path.contains(folder))
}

/// The program's own crates.
pub(crate) struct OwnCrates<'a> {
    profile: &'a ProfileModel,
    /// The module of the program; `None` in a profile without modules.
    module: Option<ModuleId>,
    /// The name of the crate that the program is made of.
    name: String,
}

impl<'a> OwnCrates<'a> {
    pub(crate) fn of(profile: &'a ProfileModel) -> Self {
        let module = main_module(profile).map(|index| ModuleId(index as u32));
        let name = module.map_or_else(String::new, |module| {
            profile.module(module).name.replace('-', "_")
        });
        Self {
            profile,
            module,
            name,
        }
    }

    /// Returns whether a function belongs to them: by its file, or, in a profile without files, by
    /// the crate in its name.
    pub(crate) fn contain(&self, function: &Function) -> bool {
        let profile = self.profile;
        if function.kind != FunctionKind::Native
            || function.module.is_none()
            || function.module != self.module
        {
            return false;
        }
        let name = crate_of(profile.text(function.name));
        if name == Some(PROFILER) && self.name != PROFILER {
            return false;
        }
        match function.file {
            Some(file) => is_own_source(profile.text(file)),
            None => name == Some(&self.name),
        }
    }
}

/// Returns the module of the program: the one of the first process that is named like the product
/// or the process, otherwise its first one.
pub(crate) fn main_module(profile: &ProfileModel) -> Option<usize> {
    let modules = || {
        let modules = profile.modules.iter().enumerate();
        modules.filter(|(_, module)| module.process == 0)
    };
    let process = profile.processes.first().map(|process| &process.name);
    let names = [Some(&profile.meta.product), process];
    let named = names.into_iter().flatten().find_map(|name| {
        let mut modules = modules();
        modules.find(|(_, module)| !name.is_empty() && module.name == *name)
    });
    named.or_else(|| modules().next()).map(|(index, _)| index)
}

/// Returns the crate in the name of a Rust function: `app` of `<app::Tree as Debug>::fmt`.
fn crate_of(name: &str) -> Option<&str> {
    let path = name.trim_start_matches(['<', '&', '*']);
    let path = ["mut ", "const ", "dyn "]
        .iter()
        .fold(path, |path, word| path.strip_prefix(word).unwrap_or(path));
    path.split_once("::").map(|(first, _)| first)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::test_profile::TestProfile;

    #[test]
    fn functions_of_this_crate_are_the_profilers_in_another_program() {
        let contains = |program: &str, name: &str| {
            let profile = &mut TestProfile::new(1_000_000).profile;
            profile.modules[0].name = program.to_owned();
            let name = profile.intern(name);
            let function = Function {
                module: Some(ModuleId(0)),
                file: Some(profile.intern("/home/me/gekkota/src/lib.rs")),
                ..Function::new(name, FunctionKind::Native)
            };
            OwnCrates::of(profile).contain(&function)
        };
        assert!(contains("app", "app::main") && contains("gekkota", "gekkota::record"));
        assert!(!contains("app", "gekkota::record"));
    }

    #[test]
    fn own_sources_are_told_by_their_paths() {
        for own in [
            "/home/me/program/src/main.rs",
            "/usr/src/app/src/main.rs",
            "/build/registry/main.c",
        ] {
            assert!(is_own_source(own), "{own}");
        }
        for foreign in [
            "/rustc/0123/library/core/src/iter/range.rs",
            "/root/.rustup/toolchains/stable/lib/rustlib/src/rust/library/std/src/rt.rs",
            "/home/me/.cargo/registry/src/index.crates.io-6f17d22bba15001f/regex-1.0.0/src/lib.rs",
            "/cargo-home/git/checkouts/crate-0123/0123/src/lib.rs",
            "/rust/deps/hashbrown-0.16.1/src/map.rs",
            "/usr/include/c++/12/bits/stl_vector.h",
            "src/main.rs",
            "",
        ] {
            assert!(!is_own_source(foreign), "{foreign}");
        }
    }

    #[test]
    fn crate_is_the_first_part_of_a_path() {
        for (name, expected) in [
            ("app::main", Some("app")),
            ("app::main::{{closure}}", Some("app")),
            ("<app::Tree as std::fmt::Debug>::fmt", Some("app")),
            ("<&mut app::Tree>::grow", Some("app")),
            ("<&mut dyn app::Walk>::walk", Some("app")),
            ("main", None),
            ("read", None),
        ] {
            assert_eq!(crate_of(name), expected, "{name}");
        }
    }
}
