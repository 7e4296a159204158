//! What the head comments have to say, and what a folder's `mod.rs` may hold.

use std::collections::BTreeSet;

use crate::imports::{Room, imported_folders};
use crate::source::{Finding, Source};

const HEADS: [&str; 5] = [
    "# Purpose",
    "# Threads and locks",
    "# Imports",
    "# Invariants",
    "# Read next",
];
const NO_IMPORTS: &str = "Nothing of ours";

/// A part of an essay: the line of its head, the head, and what stands below it.
struct Section<'a> {
    line: usize,
    head: &'a str,
    body: String,
}

fn sections(source: &Source) -> Vec<Section<'_>> {
    let mut found: Vec<Section<'_>> = Vec::new();
    for (line, text) in source.head_docs() {
        if text.starts_with("# ") {
            found.push(Section {
                line,
                head: text,
                body: String::new(),
            });
        } else if let Some(section) = found.last_mut() {
            section.body.push_str(text);
            section.body.push(' ');
        }
    }
    found
}

/// The folders of `src` that hold anything.
fn folders(sources: &[Source]) -> BTreeSet<&str> {
    sources.iter().filter_map(Source::folder).collect()
}

/// Each folder's `mod.rs` has the five heads, and says truly what the folder imports.
pub(crate) fn check_essays(sources: &[Source], rooms: &[Room]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for folder in folders(sources) {
        let path = format!("src/{folder}/mod.rs");
        let Some(source) = sources.iter().find(|source| source.path == path) else {
            findings.push(Finding::new(
                &path,
                1,
                "no such file",
                "a `mod.rs` with an essay in each folder",
            ));
            continue;
        };
        let sections = sections(source);
        let heads: Vec<&str> = sections.iter().map(|section| section.head).collect();
        if heads != HEADS {
            let accepted = format!("the five, in this order: {}", HEADS.join(", "));
            findings.push(source.finding(1, format!("the heads {heads:?}"), accepted));
        }
        for section in sections
            .iter()
            .filter(|section| section.body.trim().is_empty())
        {
            let found = format!("nothing below `{}`", section.head);
            findings.push(source.finding(section.line, found, "a sentence at least"));
        }
        if let Some(section) = sections.iter().find(|section| section.head == "# Imports") {
            let files = sources
                .iter()
                .filter(|source| source.folder() == Some(folder));
            let imported = files
                .flat_map(|source| imported_folders(source, rooms))
                .collect();
            findings.extend(check_named_imports(source, section, rooms, &imported));
        }
    }
    findings
}

fn check_named_imports(
    source: &Source,
    section: &Section<'_>,
    rooms: &[Room],
    imported: &BTreeSet<String>,
) -> Option<Finding> {
    let is_folder = |name: &&str| rooms.iter().any(|room| room.folder == *name);
    let named: BTreeSet<String> = section
        .body
        .split('`')
        .skip(1)
        .step_by(2)
        .filter(is_folder)
        .map(str::to_owned)
        .collect();
    if named == *imported && section.body.contains(NO_IMPORTS) == imported.is_empty() {
        return None;
    }
    let list = |names: &BTreeSet<String>| {
        names
            .iter()
            .map(|name| format!("`{name}`"))
            .collect::<Vec<_>>()
            .join(", ")
    };
    let accepted = if imported.is_empty() {
        format!("\"{NO_IMPORTS}.\"")
    } else {
        list(imported)
    };
    let found = format!("\"{}\" below `# Imports`", section.body.trim());
    Some(source.finding(
        section.line,
        found,
        format!("what the folder's code imports: {accepted}"),
    ))
}

/// Each folder's `mod.rs` holds `mod` and `use` items alone.
pub(crate) fn check_logic(sources: &[Source]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let is_folder_head = |source: &&Source| {
        source
            .folder()
            .is_some_and(|folder| source.path == format!("src/{folder}/mod.rs"))
    };
    for source in sources.iter().filter(is_folder_head) {
        let mut at = 0;
        while at < source.tokens.len() {
            let item = skip_attributes_and_visibility(source, at);
            let end = item_end(source, item);
            let declares = source.word(item) == "mod" && source.word(item + 2) == ";";
            if item < source.tokens.len() && !declares && source.word(item) != "use" {
                let found = format!(
                    "`{} {}` in a `mod.rs`",
                    source.word(item),
                    source.word(item + 1)
                );
                let accepted =
                    "doc, attributes, `mod name;` and `use`; move the rest to a file of its own";
                findings.push(source.finding(source.tokens[item].line, found, accepted));
            }
            at = end + 1;
        }
    }
    findings
}

fn skip_attributes_and_visibility(source: &Source, mut at: usize) -> usize {
    let past =
        |open: usize| source.brackets.partner[open].map_or(source.tokens.len(), |close| close + 1);
    loop {
        at = match source.word(at) {
            "#" if source.word(at + 1) == "[" => past(at + 1),
            "#" if source.matches(at + 1, "![") => past(at + 2),
            "pub" if source.word(at + 1) == "(" => past(at + 1),
            "pub" => at + 1,
            _ => return at,
        };
    }
}

/// The token that ends an item: its `;` or, of an item other than `use`, the brace that closes its body.
fn item_end(source: &Source, start: usize) -> usize {
    let mut at = start;
    while at < source.tokens.len() && source.word(at) != ";" {
        if let Some(close) = source.brackets.partner[at] {
            if source.word(at) == "{" && source.word(start) != "use" {
                return close;
            }
            at = at.max(close);
        }
        at += 1;
    }
    at
}

/// The way of a sample has `stops`, each told of in the head comment of one file.
pub(crate) fn check_stops(sources: &[Source], stops: usize) -> Vec<Finding> {
    let mut findings = Vec::new();
    for stop in 1..=stops {
        let words = format!("Stop {stop} of {stops}");
        let accepted = format!("`{words}` on a `//!` line of exactly one file in src");
        let line_in = |source: &Source| {
            source
                .head_docs()
                .find(|(_, text)| text.contains(&words))
                .map(|(line, _)| line)
        };
        let in_src = sources.iter().filter(|source| source.is_in_src());
        let places: Vec<_> = in_src
            .filter_map(|source| Some((source, line_in(source)?)))
            .collect();
        match places[..] {
            [_] => {}
            [] => findings.push(Finding::new(
                "src",
                1,
                format!("no file for stop {stop}"),
                accepted,
            )),
            [..] => {
                let found = |(source, line): &(&Source, usize)| {
                    source.finding(*line, format!("stop {stop}, again"), &accepted)
                };
                findings.extend(places.iter().map(found));
            }
        }
    }
    findings
}

mod snippets {
    use super::*;
    use crate::ROOMS;

    const ESSAY: &str = "//! State.\n//!\n//! # Purpose\n//! A.\n//! # Threads and locks\n//! B.\n//! # Imports\n\
        //! `base`, and `framehop`\n//! # Invariants\n//! C.\n//! # Read next\n//! D.\n";

    fn essays(head: &str, code: &str) -> Vec<String> {
        let sources = [
            Source::new("src/state/mod.rs", head),
            Source::new("src/state/a.rs", code),
        ];
        check_essays(&sources, ROOMS)
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    #[test]
    fn an_essay_with_five_heads_and_true_imports_is_accepted() {
        assert_eq!(
            essays(ESSAY, "use crate::base::A; use crate::state::B;"),
            [""; 0]
        );
        assert_eq!(
            essays(
                &ESSAY.replace("`base`, and `framehop`", "Nothing of ours."),
                ""
            ),
            [""; 0]
        );
    }

    #[test]
    fn a_head_that_is_missing_or_empty_is_found() {
        let code = "use crate::base::A;";
        assert_eq!(
            essays(&ESSAY.replace("# Purpose", "# Porpoise"), code).len(),
            1
        );
        assert_eq!(essays(&ESSAY.replace("//! B.\n", ""), code).len(), 1);
        assert_eq!(essays(&ESSAY.replace("//!", "//"), code).len(), 1);
        assert_eq!(
            check_essays(&[Source::new("src/state/a.rs", "")], ROOMS).len(),
            1
        );
    }

    #[test]
    fn imports_that_the_essay_tells_wrong_are_found() {
        let found = essays(ESSAY, "use crate::{base::A, threads::B};");
        let line = "src/state/mod.rs:7: found \"`base`, and `framehop`\" below `# Imports`; \
            accepted: what the folder's code imports: `base`, `threads`";
        assert_eq!(found, [line]);
        assert_eq!(essays(ESSAY, "").len(), 1);
        let nothing = ESSAY.replace("`base`, and `framehop`", "Nothing of ours.");
        assert_eq!(essays(&nothing, "use crate::base::A;").len(), 1);
        assert_eq!(
            essays(
                &ESSAY.replace(", and", ". Nothing of ours but"),
                "use crate::base::A;"
            )
            .len(),
            1
        );
    }

    #[test]
    fn logic_in_a_mod_file_is_found() {
        let logic = |text: &str| {
            let findings = check_logic(&[Source::new("src/state/mod.rs", text)]);
            findings
                .iter()
                .map(|finding| finding.line)
                .collect::<Vec<_>>()
        };
        assert_eq!(
            logic(
                "#![a]\n#[cfg(b)]\nmod c;\npub(crate) use c::{D, e::{F}};\npub mod g;\npub use h::I;"
            ),
            []
        );
        assert_eq!(
            logic("mod a;\npub(crate) fn b() { c; }\nmod d;\nimpl E {}\nstatic F: [u8; 1] = [0];"),
            [2, 4, 5]
        );
        assert_eq!(
            logic("mod tests {\n fn a() {}\n}\nmacro_rules! b { () => {} }\nconst C: u8 = 1;"),
            [1, 4, 5]
        );
        assert_eq!(
            check_logic(&[Source::new("src/state/a.rs", "fn a() {}")]).len(),
            0
        );
    }

    #[test]
    fn each_stop_is_told_once() {
        let stops = |texts: &[&str]| {
            let sources: Vec<_> = texts
                .iter()
                .map(|text| Source::new("src/a/b.rs", text))
                .collect();
            check_stops(&sources, 2)
                .iter()
                .map(|finding| finding.found.clone())
                .collect::<Vec<_>>()
        };
        assert_eq!(stops(&["//! Stop 1 of 2: a.\n//! Stop 2 of 2."]), [""; 0]);
        assert_eq!(
            stops(&["//! Stop 1 of 2", "/// Stop 2 of 2\nfn a() {}"]),
            ["no file for stop 2"]
        );
        assert_eq!(
            stops(&["//! Stop 1 of 2\n//! Stop 2 of 2", "//! Stop 2 of 2"]),
            ["stop 2, again", "stop 2, again"]
        );
    }
}
