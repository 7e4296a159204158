//! Which functions and sources belong to the program's own crates.

use crate::model::{Function, FunctionKind, ProfileModel};

/// Beginnings of the paths of sources that belong to Rust or to the system.
const FOREIGN_ROOTS: [&str; 6] = [
    "/rustc/",
    "/usr/include/",
    "/usr/lib/",
    "/usr/local/cargo/",
    "/usr/share/",
    "/nix/store/",
];
/// Folders that hold the sources of Rust, and those in which Cargo keeps packages of others.
const FOREIGN_FOLDERS: [&str; 3] = ["/rustlib/src/", "/registry/src/", "/git/checkouts/"];

/// Returns whether a file belongs to the program's own crates, by its path.
pub(crate) fn is_own_source(path: &str) -> bool {
    path.starts_with('/')
        && !FOREIGN_ROOTS.iter().any(|root| path.starts_with(root))
        && !FOREIGN_FOLDERS.iter().any(|folder| path.contains(folder))
}

/// Returns whether a function of the program's executable belongs to the program's own crates: by
/// its file, or, in a profile without files, by the crate in its name, which then has to be the
/// program's.
pub(crate) fn is_own_function(profile: &ProfileModel, function: &Function) -> bool {
    let product = profile.meta.product.as_str();
    let module = function.module.map(|module| profile.module(module));
    let is_in_program = module.is_some_and(|module| module.name == product);
    if function.kind != FunctionKind::Native || !is_in_program {
        return false;
    }
    match function.file {
        Some(file) => is_own_source(profile.text(file)),
        None => crate_of(profile.text(function.name)) == Some(&product.replace('-', "_")),
    }
}

/// Returns the crate in the name of a Rust function: `app` of `<app::Tree as std::fmt::Debug>::fmt`.
fn crate_of(name: &str) -> Option<&str> {
    let path = name.trim_start_matches(['<', '&', '*']);
    let path = ["dyn ", "mut ", "const "]
        .iter()
        .fold(path, |path, word| path.strip_prefix(word).unwrap_or(path));
    path.split_once("::").map(|(first, _)| first)
}

#[cfg(test)]
mod tests {
    use super::*;

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
            ("<dyn app::Walk>::walk", Some("app")),
            ("main", None),
            ("read", None),
        ] {
            assert_eq!(crate_of(name), expected, "{name}");
        }
    }
}
