//! Functions that count as one, whatever their file, their module's number and their address; and
//! functions that belong to the program's own crates.

use std::borrow::Cow;

use crate::export::function_names::{comparable_library, comparable_name, one_line};
use crate::model::{Function, FunctionId, FunctionKind, ModuleId, ProfileModel, is_whole_stack};
use crate::util::UniqueList;

/// Which functions count as one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Grouping {
    /// Those with the same name in the same library.
    ByName,
    /// Those that two builds of a program share: see [`comparable_name`]. All addresses of a
    /// library without a name are one.
    AcrossBuilds,
}

/// Functions of the same name.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct FunctionGroup<'a> {
    /// `Native` also for a placeholder that replaces all functions of a stack.
    pub(crate) kind: FunctionKind,
    /// The name; for a script function, with the place where the function begins.
    pub(crate) name: Cow<'a, str>,
    pub(crate) library: Option<&'a str>,
    /// Whether the name is known, rather than an address.
    pub(crate) is_named: bool,
}

/// The groups of the functions of one or several profiles.
#[derive(Debug, Default)]
pub(crate) struct FunctionGroups<'a>(UniqueList<FunctionGroup<'a>>);

/// The number of each function's group, in the order of a profile's functions.
#[derive(Debug)]
pub(crate) struct GroupNumbers(Vec<u32>);

impl GroupNumbers {
    pub(crate) fn of(&self, function: FunctionId) -> u32 {
        self.0[function.0 as usize]
    }
}

impl<'a> FunctionGroups<'a> {
    /// Adds the functions of a profile, and returns the numbers of their groups.
    pub(crate) fn add(&mut self, profile: &'a ProfileModel, grouping: Grouping) -> GroupNumbers {
        let functions = profile.functions().iter();
        let groups = functions.map(|function| group(profile, function, grouping));
        GroupNumbers(groups.map(|group| self.0.index(&group)).collect())
    }

    pub(crate) fn get(&self, number: u32) -> &FunctionGroup<'a> {
        &self.0.elements[number as usize]
    }

    pub(crate) fn len(&self) -> usize {
        self.0.elements.len()
    }
}

fn group<'a>(
    profile: &'a ProfileModel,
    function: &Function,
    grouping: Grouping,
) -> FunctionGroup<'a> {
    let name = profile.text(function.name);
    let is_named = function.kind != FunctionKind::Native || !is_address(name);
    let module = function.module.map(|module| profile.module(module));
    let library = module.map(|module| module.name.as_str());
    let library = library.filter(|name| !name.is_empty());
    let across = grouping == Grouping::AcrossBuilds;
    let name = match function.kind {
        FunctionKind::Script => script_name(profile, function, !across),
        _ if across && !is_named => Cow::Borrowed("(unnamed code)"),
        _ if across => comparable_name(name),
        _ => Cow::Borrowed(name),
    };
    FunctionGroup {
        kind: match is_whole_stack(profile.text(function.name)) {
            true => FunctionKind::Native,
            false => function.kind,
        },
        name,
        library: match across {
            true => library.map(comparable_library),
            false => library,
        },
        is_named,
    }
}

/// Returns whether this is the text in the place of an unknown name.
fn is_address(name: &str) -> bool {
    let digits = name.strip_prefix("0x").unwrap_or_default();
    !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Returns a script function's name as the viewer shows it.
fn script_name<'a>(
    profile: &'a ProfileModel,
    function: &Function,
    has_position: bool,
) -> Cow<'a, str> {
    let name = one_line(profile.text(function.name));
    let file = function.file.map(|file| profile.text(file));
    if file.is_none() && function.line.is_none() {
        return name;
    }
    let file = one_line(file.filter(|file| !file.is_empty()).unwrap_or("<script>"));
    let line = function.line.unwrap_or(0);
    let place = match function.column {
        _ if !has_position => file.into_owned(),
        None => format!("{file}:{line}"),
        Some(column) => format!("{file}:{line}:{column}"),
    };
    match name.is_empty() {
        true => Cow::Owned(place),
        false => Cow::Owned(format!("{name} ({place})")),
    }
}

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
    fn functions_of_one_name_are_one_group() {
        let mut test = TestProfile::new(1_000_000);
        let app = test.library("app");
        let other = test.library("other");
        let in_file = |test: &mut TestProfile, name, module, file| {
            let name = test.profile.intern(name);
            let file = test.profile.intern(file);
            test.profile.intern_function(Function {
                module: Some(module),
                file: Some(file),
                ..Function::new(name, FunctionKind::Native)
            })
        };
        let one = in_file(&mut test, "f::{closure#1}", app, "a.rs");
        let same = in_file(&mut test, "f::{closure#1}", app, "b.rs");
        let next = in_file(&mut test, "f::{closure#2}", app, "a.rs");
        let elsewhere = in_file(&mut test, "f::{closure#1}", other, "a.rs");
        let address = in_file(&mut test, "0x1f40", app, "");
        let other_address = in_file(&mut test, "0x1f44", app, "");
        let mut groups = FunctionGroups::default();
        let by_name = groups.add(&test.profile, Grouping::ByName);
        assert_eq!(by_name.of(one), by_name.of(same));
        assert_ne!(by_name.of(one), by_name.of(next));
        assert_ne!(by_name.of(one), by_name.of(elsewhere));
        assert_ne!(by_name.of(address), by_name.of(other_address));
        assert!(!groups.get(by_name.of(address)).is_named);
        let mut groups = FunctionGroups::default();
        let across = groups.add(&test.profile, Grouping::AcrossBuilds);
        assert_eq!(across.of(one), across.of(next));
        assert_ne!(across.of(one), across.of(elsewhere));
        assert_eq!(across.of(address), across.of(other_address));
        // And the two names of time that belongs to no sample.
        assert_eq!(groups.len(), 3 + 2);
    }

    #[test]
    fn script_function_has_name_file_and_position() {
        let mut test = TestProfile::new(1_000_000);
        let (name, file) = (test.profile.intern("f"), test.profile.intern("a/b.lua"));
        let function = Function {
            file: Some(file),
            line: Some(3),
            column: Some(7),
            ..Function::new(name, FunctionKind::Script)
        };
        let id = test.profile.intern_function(function);
        for (grouping, text) in [
            (Grouping::ByName, "f (a/b.lua:3:7)"),
            (Grouping::AcrossBuilds, "f (a/b.lua)"),
        ] {
            let mut groups = FunctionGroups::default();
            let numbers = groups.add(&test.profile, grouping);
            assert_eq!(groups.get(numbers.of(id)).name, text);
        }
    }

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
