//! The house's files as the rules see them, and what a rule has to say about them.

use std::fmt;
use std::fs;
use std::path::Path;

use crate::scan::{self, Brackets, Token};

/// A file, taken apart.
pub(crate) struct Source {
    /// From the root of the repository, with `/`.
    pub(crate) path: String,
    pub(crate) text: String,
    pub(crate) tokens: Vec<Token>,
    pub(crate) brackets: Brackets,
    code: String,
    comments: String,
}

impl Source {
    pub(crate) fn new(path: &str, text: &str) -> Self {
        let views = scan::split(text);
        let tokens = scan::tokens(&views.code);
        let brackets = scan::brackets(&tokens);
        let (code, comments) = (views.code, views.comments);
        Self {
            path: path.to_owned(),
            text: text.to_owned(),
            tokens,
            brackets,
            code,
            comments,
        }
    }

    /// The `FOLDER` of `src/FOLDER/…`.
    pub(crate) fn folder(&self) -> Option<&str> {
        self.path
            .strip_prefix("src/")?
            .split_once('/')
            .map(|(folder, _)| folder)
    }

    pub(crate) fn is_in_src(&self) -> bool {
        self.path.starts_with("src/")
    }

    /// The modules from the root to this file, which is a module itself; none for `src/lib.rs`.
    pub(crate) fn module(&self) -> Vec<&str> {
        module_of(&self.path)
    }

    /// The text of a token, or nothing past the end.
    pub(crate) fn word(&self, at: usize) -> &str {
        self.tokens.get(at).map_or("", |token| &token.text)
    }

    /// Whether the tokens from `at` on are those of `pattern`, which is code.
    pub(crate) fn matches(&self, at: usize, pattern: &str) -> bool {
        let pattern = scan::tokens(pattern);
        pattern
            .iter()
            .enumerate()
            .all(|(index, token)| self.word(at + index) == token.text)
    }

    /// The comment on a line; `None` when there is none.
    pub(crate) fn comment(&self, line: usize) -> Option<&str> {
        line_of(&self.comments, line)
    }

    /// Whether a line holds a part of a string or of a character's literal.
    pub(crate) fn has_literal(&self, line: usize) -> bool {
        let letters = |view: &str| -> usize {
            view.lines()
                .nth(line - 1)
                .unwrap_or_default()
                .split_whitespace()
                .map(str::len)
                .sum()
        };
        letters(&self.text) > letters(&self.code) + letters(&self.comments)
    }

    /// The line numbers of the comments right above a line, nearest first.
    pub(crate) fn comment_lines_above(&self, line: usize) -> impl Iterator<Item = usize> {
        let is_comment =
            |line: &usize| line_of(&self.code, *line).is_none() && self.comment(*line).is_some();
        (1..line).rev().take_while(is_comment)
    }

    /// The `//!` lines, each with its number.
    pub(crate) fn head_docs(&self) -> impl Iterator<Item = (usize, &str)> {
        let lines = self.comments.lines().enumerate();
        lines.filter_map(|(index, line)| Some((index + 1, line.trim().strip_prefix("//!")?.trim())))
    }

    /// The first token of the statement, item, field or match arm that holds a token; attributes belong to it.
    pub(crate) fn statement_start(&self, at: usize) -> usize {
        let group = self.brackets.around[at];
        let in_braces = group.is_none_or(|group| self.word(group) == "{");
        let mut first = at;
        while first > group.map_or(0, |group| group + 1) {
            let before = first - 1;
            if in_braces && matches!(self.word(before), ";" | "," | "}") {
                break;
            }
            first = self.brackets.partner[before].unwrap_or(before);
        }
        match group {
            Some(group) if !in_braces => self.statement_start(group),
            _ => first,
        }
    }

    /// The open braces around a token, innermost first.
    pub(crate) fn braces_around(&self, at: usize) -> impl Iterator<Item = usize> {
        let brackets =
            std::iter::successors(self.brackets.around[at], |open| self.brackets.around[*open]);
        brackets.filter(|open| self.word(*open) == "{")
    }

    pub(crate) fn finding(
        &self,
        line: usize,
        found: impl Into<String>,
        accepted: impl Into<String>,
    ) -> Finding {
        Finding::new(&self.path, line, found, accepted)
    }
}

pub(crate) fn module_of(path: &str) -> Vec<&str> {
    let path = path.strip_prefix("src/").unwrap_or(path);
    let mut module: Vec<&str> = path
        .strip_suffix(".rs")
        .unwrap_or(path)
        .split('/')
        .collect();
    if matches!(module.last(), Some(&("mod" | "lib"))) {
        module.pop();
    }
    module
}

fn line_of(view: &str, line: usize) -> Option<&str> {
    view.lines()
        .nth(line - 1)
        .map(str::trim)
        .filter(|text| !text.is_empty())
}

/// A place where a rule is not kept.
#[derive(Debug)]
pub(crate) struct Finding {
    pub(crate) path: String,
    pub(crate) line: usize,
    pub(crate) found: String,
    pub(crate) accepted: String,
}

impl Finding {
    pub(crate) fn new(
        path: &str,
        line: usize,
        found: impl Into<String>,
        accepted: impl Into<String>,
    ) -> Self {
        Self {
            path: path.to_owned(),
            line,
            found: found.into(),
            accepted: accepted.into(),
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}:{}: found {}; accepted: {}",
            self.path, self.line, self.found, self.accepted
        )
    }
}

/// Every Rust file below `src`, `tests`, `examples` and `benches`, in the order of their names.
pub(crate) fn read_house() -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut paths = Vec::new();
    for folder in ["src", "tests", "examples", "benches"] {
        list_rust_files(root, folder, &mut paths);
    }
    paths.sort();
    let read = |path: &String| match fs::read_to_string(root.join(path)) {
        Ok(text) => Source::new(path, &text),
        Err(error) => panic!("{path}: {error}"),
    };
    paths.iter().map(read).collect()
}

fn list_rust_files(root: &Path, folder: &str, paths: &mut Vec<String>) {
    for entry in fs::read_dir(root.join(folder)).into_iter().flatten() {
        let entry = entry.unwrap_or_else(|error| panic!("{folder}: {error}"));
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = format!("{folder}/{name}");
        if entry.path().is_dir() {
            // A package of its own below `benches` has its own build outputs.
            if name != "target" && !name.starts_with('.') {
                list_rust_files(root, &path, paths);
            }
        } else if name.ends_with(".rs") {
            paths.push(path);
        }
    }
}

mod snippets {
    use super::*;

    #[test]
    fn the_start_of_a_statement_is_found_through_calls_and_attributes() {
        let start = |text: &str| {
            let source = Source::new("src/a.rs", text);
            let here = source
                .tokens
                .iter()
                .position(|token| token.text == "here")
                .expect("`here`");
            source.word(source.statement_start(here)).to_owned()
        };
        assert_eq!(start("a; let b = c(d, [e, here]);"), "let");
        assert_eq!(start("fn a() { b(); if c(d) == here {} }"), "if");
        assert_eq!(start("S { a: 1, b: f(x, here) }"), "b");
        assert_eq!(start("match a { B => {} C(d) => here }"), "C");
        assert_eq!(start("mod a {} #[cfg(b)] impl here {}"), "#");
    }

    #[test]
    fn modules_are_named_by_their_files() {
        assert_eq!(module_of("src/lib.rs"), [""; 0]);
        assert_eq!(module_of("src/base/mod.rs"), ["base"]);
        assert_eq!(module_of("src/base/time.rs"), ["base", "time"]);
        assert_eq!(module_of("src/package/lib.rs"), ["package"]);
    }
}
