//! Which folder may import what.

use std::collections::BTreeSet;

use crate::source::{Finding, Source};

/// A row of the table of layers.
pub(crate) struct Room {
    pub(crate) folder: &'static str,
    pub(crate) layer: u8,
    pub(crate) imports: Imports,
}

/// What a room may import of the layers below its own.
pub(crate) enum Imports {
    Below,
    BelowBut(&'static [&'static str]),
    Only(&'static [&'static str]),
}

impl Room {
    fn may_import(&self, other: &Room) -> bool {
        let wanted = match self.imports {
            Imports::Below => true,
            Imports::BelowBut(banned) => !banned.contains(&other.folder),
            Imports::Only(allowed) => allowed.contains(&other.folder),
        };
        wanted && other.layer < self.layer
    }
}

/// A path as the code spells it out, each name of a `use` group by itself.
struct CodePath {
    segments: Vec<String>,
    /// The token of its first segment, or of its own first segment inside of a group.
    at: usize,
}

/// Words that stand before a path with a leading `::` and are no part of it.
const BEFORE_PATHS: &[&str] = &[
    "as", "dyn", "extern", "for", "impl", "in", "mut", "return", "use",
];

fn paths(source: &Source) -> Vec<CodePath> {
    let mut found = Vec::new();
    let mut at = 0;
    while at < source.tokens.len() {
        let starts = source.tokens[at].is_word() && !BEFORE_PATHS.contains(&source.word(at));
        at = if starts {
            read_path(source, at, &[], &mut found)
        } else {
            at + 1
        };
    }
    found
}

/// Reads a path from its first segment on; gives the token after it.
fn read_path(source: &Source, start: usize, prefix: &[String], found: &mut Vec<CodePath>) -> usize {
    let mut segments = prefix.to_vec();
    let mut at = start;
    if at > 0 && source.matches(at - 1, "$crate") {
        segments.push("$".to_owned());
    }
    loop {
        segments.push(source.word(at).to_owned());
        let goes_on = source.word(at + 1) == "::";
        match source.tokens.get(at + 2) {
            Some(next) if goes_on && (next.is_word() || next.text == "*") => at += 2,
            Some(next) if goes_on && next.text == "{" => {
                return read_group(source, at + 3, &segments, found);
            }
            _ => break,
        }
    }
    found.push(CodePath {
        segments,
        at: start,
    });
    at + 1
}

fn read_group(
    source: &Source,
    start: usize,
    prefix: &[String],
    found: &mut Vec<CodePath>,
) -> usize {
    let mut at = start;
    while at < source.tokens.len() && source.word(at) != "}" {
        at = match source.word(at) {
            "{" => read_group(source, at + 1, prefix, found),
            "as" => at + 2,
            "," => at + 1,
            _ => read_path(source, at, prefix, found),
        };
    }
    at + 1
}

/// A path into the crate, from its root.
struct CratePath {
    /// The first name below the root.
    target: String,
    line: usize,
    /// Spelt `$crate`, in a macro, where it may have to name what a host can reach.
    in_macro: bool,
}

fn crate_paths(source: &Source) -> Vec<CratePath> {
    let from_root = |path: CodePath| {
        let supers = path
            .segments
            .iter()
            .take_while(|segment| *segment == "super")
            .count();
        let names = match path.segments[0].as_str() {
            "crate" => 1,
            "$" => 2,
            _ if supers > 0 && supers >= module_depth(source, path.at) => supers,
            _ => return None,
        };
        let target = path.segments.get(names)?.clone();
        Some(CratePath {
            target,
            line: source.tokens[path.at].line,
            in_macro: names == 2 && supers == 0,
        })
    };
    let mut found: Vec<CratePath> = paths(source).into_iter().filter_map(from_root).collect();
    // A group of ten names from one folder is one import.
    found.dedup_by(|later, earlier| (later.line, &later.target) == (earlier.line, &earlier.target));
    found
}

/// How many modules a token lies in, so many `super` lead to the root.
fn module_depth(source: &Source, at: usize) -> usize {
    let opens_module = |open: &usize| *open >= 2 && source.word(open - 2) == "mod";
    source.module().len() + source.braces_around(at).filter(opens_module).count()
}

/// The folders, other than its own, that a file imports from.
pub(crate) fn imported_folders(source: &Source, rooms: &[Room]) -> BTreeSet<String> {
    let is_folder = |name: &String| rooms.iter().any(|room| room.folder == name);
    let targets = crate_paths(source).into_iter().map(|path| path.target);
    targets
        .filter(|target| is_folder(target) && source.folder() != Some(target))
        .collect()
}

pub(crate) fn check_layers(sources: &[Source], rooms: &[Room], top_files: &[&str]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for source in sources.iter().filter(|source| source.is_in_src()) {
        let Some(folder) = source.folder() else {
            if !top_files.contains(&source.path.as_str()) {
                let accepted = format!(
                    "{}, or a file in a folder of the table",
                    top_files.join(", ")
                );
                findings.push(source.finding(1, "a file at the top of `src`", accepted));
            }
            continue;
        };
        let Some(room) = rooms.iter().find(|room| room.folder == folder) else {
            let found = format!("the folder `{folder}`, which has no layer");
            findings.push(source.finding(
                1,
                found,
                "a folder of the table; add it there with its layer",
            ));
            continue;
        };
        for path in crate_paths(source)
            .into_iter()
            .filter(|path| path.target != folder)
        {
            findings.extend(check_path(source, room, rooms, &path));
        }
    }
    findings
}

fn check_path(source: &Source, room: &Room, rooms: &[Room], path: &CratePath) -> Option<Finding> {
    let Room { folder, layer, .. } = room;
    let Some(other) = rooms.iter().find(|other| other.folder == path.target) else {
        let found = format!(
            "`crate::{}`, which is no folder, in `{folder}`",
            path.target
        );
        let finding = source.finding(
            path.line,
            found,
            "a path by way of the folder that owns the name",
        );
        return (!path.in_macro).then_some(finding);
    };
    if room.may_import(other) {
        return None;
    }
    let found = format!(
        "`crate::{}` (layer {}) in `{folder}` (layer {layer})",
        other.folder, other.layer
    );
    let allowed = rooms
        .iter()
        .filter(|other| room.may_import(other))
        .map(|other| other.folder);
    let allowed = allowed.collect::<Vec<_>>().join(", ");
    let accepted = if allowed.is_empty() {
        "nothing of ours".to_owned()
    } else {
        format!("only {allowed}")
    };
    Some(source.finding(path.line, found, accepted))
}

/// The ways to the operating system: `libc`, `nix` and `std::os`, outside of the `places` for them.
pub(crate) fn check_system(sources: &[Source], places: &[&str]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let stays_in = |source: &Source| places.iter().any(|place| source.path.starts_with(place));
    for source in sources
        .iter()
        .filter(|source| source.is_in_src() && !stays_in(source))
    {
        for path in paths(source) {
            let imported = path.at > 0 && matches!(source.word(path.at - 1), "use" | "crate");
            let name = match path.segments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
                [name @ ("libc" | "nix"), _, ..] => name,
                [name @ ("libc" | "nix")] if imported => name,
                ["std", "os", ..] => "std::os",
                _ => continue,
            };
            let accepted = format!("only in {}", places.join(", "));
            findings.push(source.finding(
                source.tokens[path.at].line,
                format!("`{name}`"),
                accepted,
            ));
        }
    }
    findings
}

mod snippets {
    use super::*;
    use crate::{ROOMS, SYSTEM_PLACES, TOP_FILES};

    fn layers(path: &str, text: &str) -> Vec<String> {
        let findings = check_layers(&[Source::new(path, text)], ROOMS, TOP_FILES);
        findings
            .iter()
            .map(|finding| format!("{} {}", finding.line, finding.found))
            .collect()
    }

    fn lines(path: &str, text: &str) -> Vec<usize> {
        let findings = check_layers(&[Source::new(path, text)], ROOMS, TOP_FILES);
        findings.iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn imports_down_are_accepted() {
        let text = "use crate::{base::{A, B}, platform as p};\nuse crate::state::x;\nfn f() { crate::json::g() }";
        assert_eq!(lines("src/state/a.rs", text), []);
        assert_eq!(
            lines("src/lib.rs", "use crate::api::A; mod x { use super::api; }"),
            []
        );
        assert_eq!(lines("tests/a.rs", "use crate::sampler;"), []);
    }

    #[test]
    fn imports_up_and_sideways_are_found() {
        let found = ["2 `crate::sampler` (layer 4) in `state` (layer 3)"];
        assert_eq!(layers("src/state/a.rs", "\nuse crate::sampler::A;"), found);
        assert_eq!(
            lines(
                "src/threads/a.rs",
                "use crate::{\n base::A,\n markers::{B, C as D},\n};"
            ),
            [3]
        );
        assert_eq!(
            lines("src/threads/a.rs", "pub(crate) use\n crate::markers::A;"),
            [2]
        );
        assert_eq!(
            lines("src/base/a.rs", "fn f() -> crate::platform::A {}"),
            [1]
        );
        assert_eq!(
            lines("src/base/a.rs", "x as crate::json::A; $crate::api::B"),
            [1, 1]
        );
    }

    #[test]
    fn paths_that_climb_to_the_root_are_found() {
        assert_eq!(lines("src/state/mod.rs", "use super::sampler;"), [1]);
        assert_eq!(
            lines(
                "src/state/a.rs",
                "use super::b; use super::{super::stream};"
            ),
            [1]
        );
        assert_eq!(
            lines(
                "src/state/a.rs",
                "mod t { use super::*; use super::super::b; }"
            ),
            []
        );
        assert_eq!(
            lines(
                "src/state/a.rs",
                "mod t { use super::super::super::stream; }"
            ),
            [1]
        );
        let no_folder = ["1 `crate::Thing`, which is no folder, in `state`"];
        assert_eq!(
            layers("src/state/a.rs", "use crate::Thing; $crate::Thing"),
            no_folder
        );
        assert_eq!(
            lines("src/state/a.rs", "use crate::{self as c}; use crate::*;"),
            [1, 1]
        );
    }

    #[test]
    fn what_is_banned_by_name_is_found() {
        assert_eq!(
            lines("src/sampler/a.rs", "use crate::json;\nuse crate::stream;"),
            [1, 2]
        );
        assert_eq!(
            lines("src/export/a.rs", "use crate::buffer;\nuse crate::stream;"),
            [1]
        );
        assert_eq!(
            lines("src/buffer/a.rs", "use crate::json;\nuse crate::markers;"),
            [1, 2]
        );
        assert_eq!(
            lines(
                "src/disabled/a.rs",
                "use crate::{base, markers};\nuse crate::platform;"
            ),
            [2]
        );
    }

    #[test]
    fn comments_and_strings_import_nothing() {
        let text =
            "//! crate::api\n/// [`crate::api`]\n/* crate::api */ const A: &str = \"crate::api\";";
        assert_eq!(lines("src/base/a.rs", text), []);
    }

    #[test]
    fn unknown_folders_and_files_are_found() {
        assert_eq!(
            layers("src/attic/a.rs", ""),
            ["1 the folder `attic`, which has no layer"]
        );
        assert_eq!(layers("src/attic.rs", ""), ["1 a file at the top of `src`"]);
    }

    #[test]
    fn the_system_is_named_in_its_places_alone() {
        let system =
            |path: &str, text: &str| check_system(&[Source::new(path, text)], SYSTEM_PLACES).len();
        assert_eq!(system("src/base/a.rs", "use std::{io, os::fd::X};"), 1);
        assert_eq!(
            system(
                "src/base/a.rs",
                "use libc; use nix as n; use ::libc::c_int; x: libc::A"
            ),
            4
        );
        assert_eq!(
            system(
                "src/base/a.rs",
                "// libc::a\nlet libc = \"libc::b\"; std::io::a()"
            ),
            0
        );
        assert_eq!(
            system("src/platform/a.rs", "use libc::c_int; use std::os::fd;"),
            0
        );
        assert_eq!(system("src/processes/transport.rs", "use nix::a;"), 0);
    }
}
