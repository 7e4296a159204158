//! Where `unsafe` may stand, and what has to be said of it.

use std::collections::HashMap;

use crate::source::{Finding, Source, module_of};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum UnsafeUse {
    /// A block, an `impl`, an `extern` block or an attribute: somebody vouches for something.
    Claim,
    /// A function or a trait: somebody asks for something.
    Contract,
}

/// The uses of `unsafe`, by the token. The type of a pointer to a function is none.
fn unsafe_uses(source: &Source) -> Vec<(usize, UnsafeUse)> {
    let use_at = |at: usize| {
        if source.word(at) != "unsafe" {
            return None;
        }
        let after = if source.word(at + 1) == "extern" {
            at + 2
        } else {
            at + 1
        };
        match source.word(after) {
            "{" | "(" | "impl" => Some((at, UnsafeUse::Claim)),
            "fn" if source.word(after + 1) == "(" => None,
            "fn" | "trait" => Some((at, UnsafeUse::Contract)),
            _ => None,
        }
    };
    (0..source.tokens.len()).filter_map(use_at).collect()
}

/// Each claim has a `// SAFETY:` comment, each contract a `# Safety` heading with bullets.
pub(crate) fn check_comments(sources: &[Source]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for source in sources {
        for (at, kind) in unsafe_uses(source) {
            let line = source.tokens[at].line;
            let found = format!("`unsafe {}` without its reasons", source.word(at + 1));
            match kind {
                UnsafeUse::Claim if !has_safety_comment(source, at) => {
                    let accepted =
                        "`// SAFETY: why it is sound` on its line or right above its statement";
                    findings.push(source.finding(line, found, accepted));
                }
                UnsafeUse::Contract
                    if !is_in_trait_impl(source, at) && !has_safety_heading(source, at) =>
                {
                    let accepted = "a doc comment with `# Safety` and a bullet `- ` for each duty of the caller";
                    findings.push(source.finding(line, found, accepted));
                }
                _ => {}
            }
        }
    }
    findings
}

fn has_safety_comment(source: &Source, at: usize) -> bool {
    let says_why = |comment: &str| {
        comment
            .split_once("// SAFETY:")
            .is_some_and(|(_, why)| !why.trim().is_empty())
    };
    let line = source.tokens[at].line;
    let statement = source.tokens[source.statement_start(at)].line;
    let above = source
        .comment_lines_above(line)
        .chain(source.comment_lines_above(statement));
    above
        .chain([line])
        .filter_map(|line| source.comment(line))
        .any(says_why)
}

fn has_safety_heading(source: &Source, at: usize) -> bool {
    let start = source.tokens[source.statement_start(at)].line;
    let first = source.comment_lines_above(start).last().unwrap_or(start);
    let docs = (first..source.tokens[at].line)
        .filter_map(|line| source.comment(line)?.strip_prefix("///"));
    let after_heading = docs
        .map(str::trim)
        .skip_while(|text| *text != "# Safety")
        .skip(1);
    after_heading
        .take_while(|text| !text.starts_with("# "))
        .any(|text| text.starts_with("- "))
}

/// Such a function's contract stands with the trait.
fn is_in_trait_impl(source: &Source, at: usize) -> bool {
    let Some(open) = source.braces_around(at).next() else {
        return false;
    };
    let header = source.statement_start(open)..open;
    let names_trait = |at: usize| source.word(at) == "for" && source.word(at + 1) != "<";
    header.clone().any(|at| source.word(at) == "impl") && header.clone().any(names_trait)
}

/// `unsafe` stands in the `listed` files alone, and the compiler knows it.
pub(crate) fn check_places(sources: &[Source], listed: &[&str]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let modules: HashMap<Vec<&str>, &Source> = sources
        .iter()
        .map(|source| (source.module(), source))
        .collect();
    for source in sources
        .iter()
        .filter(|source| source.is_in_src() && !listed.contains(&source.path.as_str()))
    {
        if let Some((at, _)) = unsafe_uses(source).first() {
            let accepted = "`unsafe` in the files of `UNSAFE_FILES` in tests/tidy.rs alone";
            findings.push(source.finding(source.tokens[*at].line, "`unsafe`", accepted));
        }
        // A lint that is forbidden for a module is forbidden for those in it.
        let holds_listed = listed
            .iter()
            .any(|path| module_of(path).starts_with(&source.module()));
        if !holds_listed && !is_forbidden(source, &modules) {
            let accepted =
                "`#![forbid(unsafe_code)]` here or `#[forbid(unsafe_code)]` at the `mod` line";
            findings.push(source.finding(1, "a module where nothing forbids `unsafe`", accepted));
        }
    }
    for path in listed {
        let source = sources.iter().find(|source| source.path == **path);
        let found = match source.map(|source| unsafe_uses(source).is_empty()) {
            Some(false) => continue,
            Some(true) => "a file without `unsafe` in `UNSAFE_FILES`",
            None => "no such file, though it is in `UNSAFE_FILES`",
        };
        findings.push(Finding::new(
            path,
            1,
            found,
            "remove it from the list in tests/tidy.rs",
        ));
    }
    findings
}

fn is_forbidden(source: &Source, modules: &HashMap<Vec<&str>, &Source>) -> bool {
    let module = source.module();
    forbids_itself(source)
        || (0..module.len()).any(|depth| {
            let parent = modules.get(&module[..depth]);
            parent.is_some_and(|parent| {
                forbids_child(parent, module[depth]) || forbids_itself(parent)
            })
        })
}

fn forbids_itself(source: &Source) -> bool {
    let at_top = |at: usize| source.brackets.around[at].is_none();
    (0..source.tokens.len())
        .any(|at| at_top(at) && source.matches(at, "#![") && forbids(source, at + 3))
}

fn forbids_child(parent: &Source, child: &str) -> bool {
    let declaration = format!("mod {child};");
    let declares = |at: &usize| parent.matches(*at, &declaration);
    let has_attribute = |at: usize| {
        (parent.statement_start(at)..at)
            .any(|at| parent.matches(at, "#[") && forbids(parent, at + 2))
    };
    let mut declarations = (0..parent.tokens.len()).filter(declares).peekable();
    declarations.peek().is_some() && declarations.all(has_attribute)
}

/// Whether an attribute whose name is at `at` forbids `unsafe`.
fn forbids(source: &Source, at: usize) -> bool {
    let inside = || at + 2..source.brackets.partner[at + 1].unwrap_or(at + 2);
    source.matches(at, "forbid(") && inside().any(|at| source.word(at) == "unsafe_code")
}

mod snippets {
    use super::*;

    fn comments(text: &str) -> Vec<usize> {
        let findings = check_comments(&[Source::new("src/a/b.rs", text)]);
        findings.iter().map(|finding| finding.line).collect()
    }

    fn places(files: &[(&str, &str)], listed: &[&str]) -> Vec<String> {
        let sources: Vec<_> = files
            .iter()
            .map(|(path, text)| Source::new(path, text))
            .collect();
        check_places(&sources, listed)
            .iter()
            .map(|finding| format!("{} {}", finding.path, finding.found))
            .collect()
    }

    #[test]
    fn a_claim_with_its_comment_is_accepted() {
        assert_eq!(
            comments("// SAFETY: why\n// indeed\nlet a = b(\n    unsafe { c },\n);"),
            []
        );
        assert_eq!(
            comments("S {\n a: 1,\n // SAFETY: why\n b: unsafe { c },\n}"),
            []
        );
        assert_eq!(
            comments("if a {\n // SAFETY: why\n if b && unsafe { c } {}\n}"),
            []
        );
        assert_eq!(comments("unsafe { a } // SAFETY: why"), []);
        assert_eq!(
            comments("// SAFETY: why\n#[cfg(a)]\nunsafe impl Send for A {}"),
            []
        );
        assert_eq!(
            comments("// SAFETY: why\nunsafe extern \"C\" { safe fn a(); }"),
            []
        );
        assert_eq!(
            comments("// SAFETY: why\n#[unsafe(no_mangle)]\nextern fn a() {}"),
            []
        );
        assert_eq!(
            comments(
                "let a = b as unsafe extern \"C\" fn() -> i32; // unsafe { }\nlet c = \"unsafe {\";"
            ),
            []
        );
    }

    #[test]
    fn a_claim_without_its_comment_is_found() {
        assert_eq!(comments("let a = unsafe { b };"), [1]);
        assert_eq!(comments("// why\nlet a = unsafe { b };"), [2]);
        assert_eq!(comments("// SAFETY:\nlet a = unsafe { b };"), [2]);
        assert_eq!(comments("// SAFETY: why\n\nlet a = unsafe { b };"), [3]);
        assert_eq!(comments("// SAFETY: why\nlet a = 1;\nunsafe { b };"), [3]);
        assert_eq!(
            comments("match a {\n // SAFETY: why\n A => unsafe { b },\n C => unsafe { d },\n}"),
            [4]
        );
        assert_eq!(
            comments(
                "unsafe impl Send for A {}\nunsafe extern \"C\" {}\n#[unsafe(no_mangle)]\nfn a() {}"
            ),
            [1, 2, 3]
        );
        assert_eq!(
            comments("let a = \"\n// SAFETY: why\n\"; unsafe { b }"),
            [3]
        );
    }

    #[test]
    fn a_contract_is_written_in_bullets() {
        let good = "/// A.\n///\n/// # Safety\n/// - B.\n#[inline]\npub unsafe fn a() {}";
        assert_eq!(comments(good), []);
        assert_eq!(
            comments(&good.replace("pub unsafe", "pub(crate) const unsafe extern \"C\"")),
            []
        );
        assert_eq!(comments(&good.replace("- B", "B")), [6]);
        assert_eq!(comments(&good.replace("# Safety", "# Errors")), [6]);
        assert_eq!(
            comments(&good.replace("/// - B.", "/// # Errors\n/// - B.")),
            [7]
        );
        assert_eq!(comments("unsafe fn a() {}\nunsafe trait B {}"), [1, 2]);
        let method = "// SAFETY: why\nunsafe impl A for B {\n unsafe fn a() {}\n}";
        assert_eq!(comments(method), []);
        assert_eq!(comments("impl B {\n unsafe fn a() {}\n}"), [2]);
    }

    const FORBID: &str = "#![forbid(unsafe_code)]";

    #[test]
    fn unsafe_outside_of_its_files_is_found() {
        let unsafe_code = ("src/a/b.rs", "unsafe { c }");
        assert_eq!(places(&[unsafe_code], &["src/a/b.rs"]), [""; 0]);
        let found = [
            "src/a/b.rs `unsafe`",
            "src/a/b.rs a module where nothing forbids `unsafe`",
        ];
        assert_eq!(places(&[unsafe_code], &[]), found);
        let stale = places(
            &[("src/a/b.rs", "x: unsafe fn()")],
            &["src/a/b.rs", "src/a/c.rs"],
        );
        assert_eq!(
            stale,
            [
                "src/a/b.rs a file without `unsafe` in `UNSAFE_FILES`",
                "src/a/c.rs no such file, though it is in `UNSAFE_FILES`",
            ]
        );
    }

    #[test]
    fn a_module_that_forbids_nothing_is_found() {
        let found = |path: &str| vec![format!("{path} a module where nothing forbids `unsafe`")];
        assert_eq!(places(&[("src/a/b.rs", FORBID)], &[]), [""; 0]);
        assert_eq!(
            places(&[("src/a/b.rs", &format!("// {FORBID}"))], &[]),
            found("src/a/b.rs")
        );
        assert_eq!(
            places(&[("src/a/b.rs", &format!("mod c {{ {FORBID} }}"))], &[]),
            found("src/a/b.rs")
        );
        assert_eq!(
            places(&[("src/a/b.rs", "#![deny(unsafe_code)]")], &[]),
            found("src/a/b.rs")
        );
    }

    #[test]
    fn a_mod_line_or_a_parent_may_forbid_for_the_module() {
        let parent = "mod c;\n#[cfg(x)]\n#[forbid(unsafe_code)]\npub(crate) mod b;";
        let house = [
            ("src/a/mod.rs", parent),
            ("src/a/b.rs", ""),
            ("src/a/c.rs", "unsafe { d }"),
        ];
        assert_eq!(places(&house, &["src/a/c.rs"]), [""; 0]);
        let other = [
            ("src/a/mod.rs", parent),
            ("src/a/c.rs", ""),
            ("src/a/d.rs", "unsafe { d }"),
        ];
        assert_eq!(
            places(&other, &["src/a/d.rs"]),
            ["src/a/c.rs a module where nothing forbids `unsafe`"]
        );
        let root = [
            ("src/lib.rs", "#[forbid(unsafe_code)] mod a;"),
            ("src/a/mod.rs", ""),
            ("src/a/b/c.rs", ""),
        ];
        assert_eq!(
            places(&root, &["src/d.rs"]).len(),
            1,
            "only the missing file of the list"
        );
    }
}
