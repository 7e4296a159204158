//! Words and lengths: what may not stand in the code, and where.

use crate::source::{Finding, Source};

pub(crate) fn check_length(sources: &[Source], most: usize) -> Vec<Finding> {
    let mut findings = Vec::new();
    for source in sources {
        let lines = source.text.lines().count();
        if lines > most {
            let accepted = format!("{most} at most; cut the file where its job divides");
            findings.push(source.finding(lines, format!("{lines} lines"), accepted));
        }
    }
    findings
}

/// Neither a row of a table can be broken, nor, always, a literal.
pub(crate) fn check_width(sources: &[Source], most: usize) -> Vec<Finding> {
    let mut findings = Vec::new();
    for source in sources {
        for (index, text) in source.text.lines().enumerate() {
            let (line, columns) = (index + 1, text.chars().count());
            let is_row = || {
                ["//! |", "/// |"]
                    .iter()
                    .any(|row| text.trim_start().starts_with(row))
            };
            if columns > most && !is_row() && !source.has_literal(line) {
                let accepted = format!("{most} at most, but of tables and literals");
                findings.push(source.finding(line, format!("{columns} columns"), accepted));
            }
        }
    }
    findings
}

/// This test names the words that it looks for.
fn is_tidy_itself(source: &Source) -> bool {
    source.path == "tests/tidy.rs" || source.path.starts_with("tests/tidy/")
}

/// What says that work is left, in code, comments and strings alike.
const LEFT_WORDS: [&str; 3] = ["TODO", "FIXME", "XXX"];
const LEFT_MACROS: [&str; 3] = ["todo!", "unimplemented!", "dbg!"];

pub(crate) fn check_leftovers(sources: &[Source]) -> Vec<Finding> {
    let accepted = "code that is done; what is left is said in an issue";
    let mut findings = Vec::new();
    for source in sources.iter().filter(|source| !is_tidy_itself(source)) {
        for (index, line) in source.text.lines().enumerate() {
            let is_word = |letter: char| letter.is_alphanumeric() || letter == '_';
            let words = line
                .split(|letter| !is_word(letter))
                .filter(|word| LEFT_WORDS.contains(word));
            findings
                .extend(words.map(|word| source.finding(index + 1, format!("`{word}`"), accepted)));
        }
        findings.extend(find_code(source, &LEFT_MACROS, accepted));
    }
    findings
}

fn find_code(source: &Source, patterns: &[&str], accepted: &str) -> Vec<Finding> {
    find_code_in(source, 0..source.tokens.len(), patterns, accepted)
}

/// The places, among the tokens of `range`, of code that starts like one of `patterns`.
fn find_code_in(
    source: &Source,
    range: std::ops::Range<usize>,
    patterns: &[&str],
    accepted: &str,
) -> Vec<Finding> {
    let finding_at = |at: usize| {
        let pattern = patterns
            .iter()
            .find(|pattern| source.matches(at, pattern))?;
        Some(source.finding(source.tokens[at].line, format!("`{pattern}`"), accepted))
    };
    range.filter_map(finding_at).collect()
}

/// A test that is not run says why.
pub(crate) fn check_ignored(sources: &[Source]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for source in sources {
        for at in (2..source.tokens.len()).filter(|at| source.word(*at) == "ignore") {
            let group = source.brackets.around[at].unwrap_or(0);
            let direct = source.matches(at - 2, "#[");
            let conditional = group >= 3 && source.matches(group - 3, "#[cfg_attr");
            if (direct || conditional) && source.word(at + 1) != "=" {
                let accepted = "`#[ignore = \"why\"]`";
                findings.push(source.finding(
                    source.tokens[at].line,
                    "`#[ignore]` without a reason",
                    accepted,
                ));
            }
        }
    }
    findings
}

const PRINTS: &[&str] = &[
    "println!",
    "eprintln!",
    "print!",
    "eprint!",
    "stdout(",
    "stderr(",
];

/// Nothing in `src` prints, but the `listed` files.
pub(crate) fn check_printing(sources: &[Source], listed: &[&str]) -> Vec<Finding> {
    let accepted =
        "printing in the files of `PRINTING_FILES` in tests/tidy.rs alone; an error is returned";
    let prints = |source: &Source| find_code(source, PRINTS, accepted);
    let mut findings = Vec::new();
    for source in sources
        .iter()
        .filter(|source| source.is_in_src() && !listed.contains(&source.path.as_str()))
    {
        findings.extend(prints(source));
    }
    for path in listed {
        if !sources
            .iter()
            .any(|source| source.path == **path && !prints(source).is_empty())
        {
            let found = "no file that prints, though it is in `PRINTING_FILES`";
            findings.push(Finding::new(
                path,
                1,
                found,
                "remove it from the list in tests/tidy.rs",
            ));
        }
    }
    findings
}

pub(crate) const HANDLER_WORDS: &str = "Runs in the signal handler";

/// What may allocate, lock, panic or make a thread-local.
const NOT_IN_HANDLER: &[&str] = &[
    "Arc",
    "Box",
    "Mutex",
    "Rc",
    "RwLock",
    "String",
    "Vec",
    "thread_local",
    ".lock(",
    ".with(",
    "expect(",
    "unwrap(",
    "assert!",
    "assert_eq!",
    "assert_ne!",
    "debug_assert!",
    "debug_assert_eq!",
    "debug_assert_ne!",
    "eprintln!",
    "format!",
    "panic!",
    "println!",
    "unreachable!",
    "vec!",
];

/// The `listed` files say that they run in the handler, and functions that are named so hold nothing dangerous there.
pub(crate) fn check_handler(sources: &[Source], listed: &[&str]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for source in sources.iter().filter(|source| source.is_in_src()) {
        for body in handler_bodies(source) {
            let accepted =
                "code that allocates nothing, locks nothing and cannot panic, in a `*_in_handler`";
            findings.extend(find_code_in(source, body, NOT_IN_HANDLER, accepted));
        }
    }
    for path in listed {
        let Some(source) = sources.iter().find(|source| source.path == **path) else {
            let accepted = "remove it from the list in tests/tidy.rs";
            findings.push(Finding::new(
                path,
                1,
                "no such file, though it is in `HANDLER_FILES`",
                accepted,
            ));
            continue;
        };
        if !source
            .head_docs()
            .any(|(_, text)| text.contains(HANDLER_WORDS))
        {
            let accepted = format!("a `//!` line with \"{HANDLER_WORDS}\"");
            findings.push(source.finding(1, "a head comment that does not warn", accepted));
        }
        if handler_bodies(source).is_empty() {
            let accepted = "names that end so for the functions that run in the handler";
            findings.push(source.finding(1, "no `*_in_handler` function", accepted));
        }
    }
    findings
}

/// The tokens of the bodies of the functions named `*_in_handler`.
fn handler_bodies(source: &Source) -> Vec<std::ops::Range<usize>> {
    let body = |at: usize| {
        let named = source.word(at) == "fn" && source.word(at + 1).ends_with("_in_handler");
        let same_level =
            |other: &usize| source.brackets.around[*other] == source.brackets.around[at];
        let ends_head =
            |other: &usize| same_level(other) && matches!(source.word(*other), "{" | ";");
        let open = (at..source.tokens.len())
            .find(ends_head)
            .filter(|_| named)?;
        (source.word(open) == "{")
            .then(|| open..source.brackets.partner[open].unwrap_or(source.tokens.len()))
    };
    (0..source.tokens.len()).filter_map(body).collect()
}

mod snippets {
    use super::*;

    fn found(findings: &[Finding]) -> Vec<String> {
        findings
            .iter()
            .map(|finding| format!("{} {}", finding.line, finding.found))
            .collect()
    }

    #[test]
    fn a_long_file_is_found() {
        assert_eq!(
            found(&check_length(&[Source::new("src/a.rs", "1\n2\n3\n")], 3)),
            [""; 0]
        );
        assert_eq!(
            found(&check_length(&[Source::new("src/a.rs", "1\n2\n3\n4")], 3)),
            ["4 4 lines"]
        );
    }

    #[test]
    fn a_wide_line_is_found_that_is_neither_a_table_nor_a_literal() {
        let wide = |text: &str| found(&check_width(&[Source::new("src/a.rs", text)], 9));
        assert_eq!(wide("// 4567 9"), [""; 0]);
        assert_eq!(wide("a\n// äöü 78 0"), ["2 11 columns"]);
        assert_eq!(wide("let b = cdef;"), ["1 13 columns"]);
        assert_eq!(wide("//! | a | b |\n    /// | c | d |"), [""; 0]);
        assert_eq!(wide("// | a | b |"), ["1 12 columns"]);
        assert_eq!(wide("let b = \"c\";\n\"d\n efghijklmn\""), [""; 0]);
        assert_eq!(wide("// \"in a comment\""), ["1 17 columns"]);
    }

    #[test]
    fn work_that_is_left_is_found() {
        let text = "// TODO: a\nlet b = \"FIXME\";\ntodo!();\ndbg!(c);\nunimplemented!()";
        let all = [
            "1 `TODO`",
            "2 `FIXME`",
            "3 `todo!`",
            "4 `dbg!`",
            "5 `unimplemented!`",
        ];
        assert_eq!(
            found(&check_leftovers(&[Source::new("src/a.rs", text)])),
            all
        );
        let innocent = "// mkstemp: XXXXXX, todo\nlet todo = \"dbg!\"; METHODOLOGY";
        assert_eq!(
            found(&check_leftovers(&[Source::new("src/a.rs", innocent)])),
            [""; 0]
        );
        assert_eq!(
            found(&check_leftovers(&[Source::new("tests/tidy/a.rs", text)])),
            [""; 0]
        );
    }

    #[test]
    fn a_test_that_is_ignored_without_a_reason_is_found() {
        let ignored = |text: &str| check_ignored(&[Source::new("tests/a.rs", text)]).len();
        assert_eq!(ignored("#[test]\n#[ignore]\nfn a() {}"), 1);
        assert_eq!(ignored("#[cfg_attr(miri, ignore)] fn a() {}"), 1);
        assert_eq!(
            ignored("#[cfg_attr(miri, ignore = \"slow\")] fn a() { ignore(b) }"),
            0
        );
        assert_eq!(
            ignored("#[ignore = \"needs two cores\"] fn a() {} // #[ignore]"),
            0
        );
    }

    #[test]
    fn printing_outside_of_its_files_is_found() {
        let source = || Source::new("src/a.rs", "/// println!()\nfn a() {\n eprintln!(); }");
        assert_eq!(found(&check_printing(&[source()], &[])), ["3 `eprintln!`"]);
        let directly = Source::new("src/a.rs", "let _ = io::stderr().write_all(b);");
        assert_eq!(found(&check_printing(&[directly], &[])), ["1 `stderr(`"]);
        assert_eq!(found(&check_printing(&[source()], &["src/a.rs"])), [""; 0]);
        assert_eq!(
            check_printing(&[Source::new("src/b.rs", "")], &["src/b.rs"]).len(),
            1
        );
        assert_eq!(
            check_printing(&[Source::new("tests/b.rs", "println!()")], &[]).len(),
            0
        );
    }

    const HANDLER: &str = "//! Runs in the signal handler: no waiting.\nfn a_in_handler() -> [u8; 2] { b[0]; c }\n\
        fn d() { vec![Box::new(e.unwrap())]; }";

    #[test]
    fn a_quiet_handler_is_accepted() {
        assert_eq!(
            found(&check_handler(
                &[Source::new("src/a.rs", HANDLER)],
                &["src/a.rs"]
            )),
            [""; 0]
        );
    }

    #[test]
    fn what_a_handler_may_not_do_is_found() {
        let bodies = [
            "format!(\"a\")",
            "a.lock()",
            "A.with(|b| b)",
            "x.unwrap()",
            "debug_assert!(a)",
            "Vec::new()",
        ];
        for body in bodies {
            let text = HANDLER.replace("b[0]", body);
            assert_eq!(
                check_handler(&[Source::new("src/a.rs", &text)], &["src/a.rs"]).len(),
                1,
                "{body}"
            );
        }
        let innocent =
            HANDLER.replace("b[0]", "a.try_with(b); c.lock_in_handler(); d.unwrap_or(e)");
        assert_eq!(
            found(&check_handler(
                &[Source::new("src/a.rs", &innocent)],
                &["src/a.rs"]
            )),
            [""; 0]
        );
    }

    #[test]
    fn a_handler_file_warns_and_names_its_functions() {
        let silent = HANDLER.replace("Runs", "Walks");
        let warns = found(&check_handler(
            &[Source::new("src/a.rs", &silent)],
            &["src/a.rs"],
        ));
        assert_eq!(warns, ["1 a head comment that does not warn"]);
        let unnamed = HANDLER.replace("a_in_handler", "a");
        let names = found(&check_handler(
            &[Source::new("src/a.rs", &unnamed)],
            &["src/a.rs"],
        ));
        assert_eq!(names, ["1 no `*_in_handler` function"]);
        assert_eq!(check_handler(&[], &["src/a.rs"]).len(), 1);
    }
}
