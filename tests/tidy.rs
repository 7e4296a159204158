//! Checks rules of the sources that neither rustc nor clippy checks: layers, import cycles, where
//! `unsafe` and the operating system may appear, and what the signal handler may call.
//!
//! The tables come first. Sources are read as tokens, so paths in macros count, too.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::LazyLock;

use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// The folders of `src`, lowest layer first. A file imports from its own folder and from lower
/// layers.
const LAYERS: &[&[&str]] = &[
    &["types", "util"],
    &["platform", "json", "buffer"],
    &["labels", "unwind", "markers", "counters"],
    &["capture", "symbols"],
    &["threads"],
    &["backtrace", "event_loop", "state"],
    &["sampler", "stream"],
    &["export", "session"],
    &["record", "disabled"],
    &["fuzzing"],
    &["api"],
    &["integrations"],
];

/// Folders that may import only from the listed ones, not from all lower layers.
const NARROW_FOLDERS: &[(&str, &[&str])] = &[("disabled", &["types", "util", "export", "markers"])];

/// Forbidden imports, although they go to a lower layer.
const FORBIDDEN: &[(&str, &str)] = &[("sampler", "json"), ("export", "buffer")];

/// Files outside of the folders. They may import anything.
const TOP_FILES: &[&str] = &["src/gecko_profiler.rs", "src/lib.rs", "src/macros.rs"];

/// The folder of a separate package in `src`.
const PACKAGE: &str = "src/attributes";

/// The only folder that may name `libc`, `nix` and `std::os`. A port to another system rewrites
/// this folder and nothing else.
const SYSTEM_FOLDER: &str = "src/platform/";

/// Files that may hold `unsafe`.
const UNSAFE_FILES: &[&str] = &[
    "src/util/polled_with.rs",
    "src/util/lock/fork_safe.rs",
    "src/util/lock/ps_lock.rs",
    "src/platform/signal/handler.rs",
    "src/platform/arch/registers.rs",
    "src/platform/arch/registers_x86_64.rs",
    "src/platform/arch/registers_aarch64.rs",
    "src/platform/thread/signal_stack.rs",
    "src/platform/thread/stack_bounds.rs",
    "src/platform/memory/barrier.rs",
    "src/platform/clock/system_clock.rs",
    "src/platform/signal/control_pipe.rs",
    "src/platform/clock/fast_clock.rs",
    "src/platform/modules/headers.rs",
    "src/platform/modules/image.rs",
    "src/platform/modules/loader.rs",
    "src/platform/modules/needed.rs",
    "src/platform/modules/row.rs",
    "src/platform/pinned_library.rs",
    "src/platform/thread/other_threads_activity.rs",
    "src/platform/signal/pipe_end.rs",
    "src/platform/thread/own_descriptors.rs",
    "src/platform/thread/profiler_thread.rs",
    "src/platform/fork.rs",
    "src/platform/memory/guarded_memory.rs",
    "src/platform/memory/file_mapping.rs",
    "src/platform/memory/mapping.rs",
    "src/platform/memory/memory_pipe.rs",
    "src/platform/sandbox.rs",
    "src/platform/test_library.rs",
    "src/platform/signal/thread_timer.rs",
    "src/platform/identity.rs",
    "src/platform/standard_streams.rs",
    "src/buffer/chunks/chunk.rs",
    "src/buffer/chunks/slab.rs",
    "src/buffer/chunks/take_cell.rs",
    "src/buffer/chunks/writing_cell.rs",
    "src/backtrace/copy.rs",
    "src/backtrace/pool.rs",
    "src/backtrace/pending.rs",
    "src/labels/profiling_stack.rs",
    "src/labels/profiling_stack_frame.rs",
    "src/labels/profiling_stack_tests.rs",
    "src/capture/capture_slot.rs",
    "src/capture/captured_view.rs",
    "src/capture/remote_capture.rs",
    "src/labels/growing_array.rs",
    "src/capture/slot_model.rs",
    "src/capture/slot_pool.rs",
    "src/labels/thread_labels.rs",
];

/// Files whose functions named `*_in_handler` run in the signal handler. Their head comments say
/// so.
const HANDLER_FILES: &[&str] = &[
    "src/platform/signal/control_pipe.rs",
    "src/platform/signal/pipe_end.rs",
    "src/platform/sandbox.rs",
    "src/sampler/handler.rs",
    "src/capture/capture_slot.rs",
    "src/capture/event_delay.rs",
    "src/labels/profiling_stack.rs",
    "src/labels/profiling_stack_frame.rs",
    "src/capture/slot_state.rs",
];
const HANDLER_NOTICE: &str = "Runs in the signal handler";

/// Code, without white space, that allocates, locks, panics or initializes a thread-local.
const NOT_IN_HANDLER: &str = "Arc:: Box:: Mutex Rc:: RwLock String Vec thread_local .lock( .with( expect( unwrap( \
    assert! assert_eq! assert_ne! print! println! format! panic! unreachable! vec!";

/// The path of a module or an item from the crate's root.
type ItemPath = Vec<String>;

/// A path in the code, or one name of a `use` statement.
struct PathUse {
    module: ItemPath,
    segments: Vec<String>,
    /// The name that a `use` imports it as: the last segment, the name after `as`, or `*`.
    imported_as: Option<String>,
    is_test: bool,
    line: usize,
}

#[derive(Default)]
struct Source {
    path: String,
    text: String,
    module: ItemPath,
    paths: Vec<PathUse>,
    items: BTreeSet<ItemPath>,
    /// Modules in files of their own that are built only for tests.
    test_modules: Vec<ItemPath>,
    has_unsafe: bool,
    /// Name and body of each function of the signal handler.
    handler_functions: Vec<(String, String)>,
}

fn word(tokens: &[TokenTree], at: usize) -> String {
    match tokens.get(at) {
        Some(TokenTree::Ident(ident)) => ident.to_string(),
        _ => String::new(),
    }
}

fn sign(tokens: &[TokenTree], at: usize) -> char {
    match tokens.get(at) {
        Some(TokenTree::Punct(punct)) => punct.as_char(),
        _ => ' ',
    }
}

fn braces(token: &TokenTree) -> Option<TokenStream> {
    match token {
        TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => Some(group.stream()),
        _ => None,
    }
}

/// Returns whether an attribute limits the item to tests, fuzzing or models.
fn is_test_only(attribute: &str) -> bool {
    let names = ["test", "loom", "fuzzing"];
    attribute.starts_with("cfg")
        && names.iter().any(|name| attribute.contains(name))
        && !attribute.contains("not")
}

impl Source {
    fn new(path: &str, text: &str) -> Self {
        let tokens = text
            .parse()
            .unwrap_or_else(|error| panic!("{path}: {error}"));
        let inside = path.trim_start_matches("src/").trim_end_matches(".rs");
        let mut module: ItemPath = inside.split('/').map(str::to_owned).collect();
        module.pop_if(|name| *name == "mod" || *name == "lib");
        let (path, text) = (path.to_owned(), text.to_owned());
        let mut source = Self {
            path,
            text,
            module: module.clone(),
            ..Self::default()
        };
        source.read(tokens, &mut module, false);
        source
    }

    fn read(&mut self, tokens: TokenStream, module: &mut ItemPath, is_test: bool) {
        let tokens: &[TokenTree] = &tokens.into_iter().collect::<Vec<_>>();
        let mut at = 0;
        // Whether the item that begins here is only for tests.
        let mut of_test = is_test;
        while let Some(token) = tokens.get(at) {
            let of_item = of_test;
            match token {
                TokenTree::Group(group) if at > 0 && sign(tokens, at - 1) == '#' => {
                    of_test |= is_test_only(&group.stream().to_string());
                }
                TokenTree::Group(group) => self.read(group.stream(), module, of_item),
                TokenTree::Ident(_) => at = self.read_from_word(tokens, at, module, of_item),
                _ => {}
            }
            // The item ends after its `;` or body.
            if tokens.get(at).is_some_and(|token| braces(token).is_some())
                || matches!(sign(tokens, at), ';' | ',')
            {
                of_test = is_test;
            }
            at += 1;
        }
    }

    /// Returns the last token that belongs to the word.
    fn read_from_word(
        &mut self,
        tokens: &[TokenTree],
        at: usize,
        module: &mut ItemPath,
        is_test: bool,
    ) -> usize {
        let next = word(tokens, at + 1);
        match word(tokens, at).as_str() {
            "mod" if !next.is_empty() => {
                module.push(next);
                match tokens.get(at + 2).and_then(braces) {
                    Some(body) => self.read(body, module, is_test),
                    None if is_test => self.test_modules.push(module.clone()),
                    None => {}
                }
                module.pop();
                return at + 2;
            }
            "use" if sign(tokens, at + 1) != '<' => {
                let end = (at..tokens.len())
                    .find(|at| sign(tokens, *at) == ';')
                    .unwrap_or(tokens.len());
                self.read_use(&tokens[at + 1..end], &[], module, is_test);
                return end;
            }
            "unsafe" => {
                let after = if next == "extern" { at + 3 } else { at + 1 };
                // `unsafe fn` as a pointer type is harmless.
                self.has_unsafe |=
                    word(tokens, after) != "fn" || !word(tokens, after + 1).is_empty();
            }
            "fn" | "struct" | "enum" | "union" | "trait" | "type" | "const" | "static" => {
                if next.ends_with("_in_handler") {
                    let head_ends = |at: &usize| sign(tokens, *at) != ';';
                    let body = (at..tokens.len())
                        .take_while(head_ends)
                        .find_map(|at| braces(&tokens[at]));
                    let body = body.map(|body| body.to_string()).unwrap_or_default();
                    self.handler_functions.push((next.clone(), body));
                }
                self.items.insert([&module[..], &[next]].concat());
            }
            first => {
                let mut segments = vec![first.to_owned()];
                if at > 0 && sign(tokens, at - 1) == '$' {
                    segments[0].insert(0, '$');
                }
                let mut last = at;
                while sign(tokens, last + 1) == ':'
                    && sign(tokens, last + 2) == ':'
                    && !word(tokens, last + 3).is_empty()
                {
                    last += 3;
                    segments.push(word(tokens, last));
                }
                let (module, line) = (module.clone(), tokens[at].span().start().line);
                self.paths.push(PathUse {
                    module,
                    segments,
                    imported_as: None,
                    is_test,
                    line,
                });
                return last;
            }
        }
        at
    }

    /// Reads the tree after `use`, or one part of a group in it.
    fn read_use(
        &mut self,
        tokens: &[TokenTree],
        prefix: &[String],
        module: &ItemPath,
        is_test: bool,
    ) {
        let mut segments = prefix.to_vec();
        let mut imported_as = None;
        for (at, token) in tokens.iter().enumerate() {
            match token {
                TokenTree::Ident(name) if at > 0 && word(tokens, at - 1) == "as" => {
                    imported_as = Some(name.to_string())
                }
                TokenTree::Ident(name)
                    if name == "as" || (name == "self" && !segments.is_empty()) => {}
                TokenTree::Ident(name) if at > 0 && sign(tokens, at - 1) == '$' => {
                    segments.push(format!("${name}"))
                }
                TokenTree::Ident(name) => segments.push(name.to_string()),
                TokenTree::Punct(sign) if sign.as_char() == '*' => {
                    imported_as = Some("*".to_owned())
                }
                TokenTree::Group(group) => {
                    let parts: Vec<TokenTree> = group.stream().into_iter().collect();
                    let parts = parts.split(
                        |token| matches!(token, TokenTree::Punct(sign) if sign.as_char() == ','),
                    );
                    return parts.for_each(|part| self.read_use(part, &segments, module, is_test));
                }
                _ => {}
            }
        }
        if let Some(token) = tokens.first() {
            let imported_as = imported_as.or_else(|| segments.last().cloned());
            let (module, line) = (module.clone(), token.span().start().line);
            self.paths.push(PathUse {
                module,
                segments,
                imported_as,
                is_test,
                line,
            });
        }
    }
}

/// The crate's sources, with their modules, items and imports.
struct Tree {
    sources: Vec<Source>,
    modules: BTreeSet<ItemPath>,
    items: BTreeSet<ItemPath>,
    test_modules: Vec<ItemPath>,
    /// The imports of each module, which it may re-export: the path of the import, and its target.
    imports: BTreeMap<ItemPath, ItemPath>,
}

static TREE: LazyLock<Tree> = LazyLock::new(|| {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (mut sources, mut folders) = (Vec::new(), vec![root.join("src")]);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("a folder of `src`") {
            let path = entry.expect("an entry").path();
            let name = path
                .strip_prefix(root)
                .expect("below the root")
                .to_str()
                .expect("UTF-8");
            if path.is_dir() && name != PACKAGE {
                folders.push(path);
            } else if name.ends_with(".rs") {
                sources.push(Source::new(
                    name,
                    &std::fs::read_to_string(&path).expect("a source"),
                ));
            }
        }
    }
    assert!(sources.len() > 200, "the sources were not found");
    sources.sort_by(|one, other| one.path.cmp(&other.path));
    Tree::new(sources)
});

impl Tree {
    fn new(mut sources: Vec<Source>) -> Self {
        let modules = sources.iter().map(|source| source.module.clone()).collect();
        let items = sources
            .iter_mut()
            .flat_map(|source| std::mem::take(&mut source.items))
            .collect();
        let test_modules = sources
            .iter_mut()
            .flat_map(|source| std::mem::take(&mut source.test_modules))
            .collect();
        let mut tree = Self {
            sources,
            modules,
            items,
            test_modules,
            imports: BTreeMap::new(),
        };
        for path in tree.sources.iter().flat_map(|source| &source.paths) {
            if let (Some(name), Some(target)) = (&path.imported_as, tree.path_from_root(path)) {
                tree.imports.insert(
                    [&path.module[..], std::slice::from_ref(name)].concat(),
                    target,
                );
            }
        }
        tree
    }

    /// Returns the path from the crate's root, if the path leads into the crate.
    fn path_from_root(&self, path: &PathUse) -> Option<ItemPath> {
        let (module, segments) = (&path.module[..], &path.segments[..]);
        let supers = segments
            .iter()
            .take_while(|segment| *segment == "super")
            .count();
        let (start, rest) = match segments.first()?.as_str() {
            "crate" | "$crate" => (&[][..], 1),
            "self" => (module, 1),
            "super" => (&module[..module.len().checked_sub(supers)?], supers),
            first => self
                .modules
                .contains(&[module, &[first.to_owned()]].concat())
                .then_some((module, 0))?,
        };
        Some([start, &segments[rest..]].concat())
    }

    /// Returns the module that defines the target of a path from the root, through re-exports.
    fn home_of(&self, path: &[String]) -> ItemPath {
        let known = (1..=path.len()).find(|end| !self.modules.contains(&path[..*end]));
        let Some(end) = known else {
            return path.to_vec();
        };
        match self
            .imports
            .get(&path[..end])
            .filter(|target| !target.starts_with(&path[..end]))
        {
            Some(target) if !self.items.contains(&path[..end]) => {
                self.home_of(&[&target[..], &path[end..]].concat())
            }
            _ => path[..end - 1].to_vec(),
        }
    }

    /// Returns the imports between the direct children of a folder, each with its first location.
    fn imports_in(&self, folder: &[String]) -> BTreeMap<(String, String), String> {
        // Items that the folder's `mod.rs` defines itself count as a child, too.
        let child = |path: &ItemPath| {
            let inside = path.strip_prefix(folder)?;
            Some(inside.first().map_or("mod.rs", String::as_str).to_owned())
        };
        let mut found = BTreeMap::new();
        for source in &self.sources {
            let Some(from) = child(&source.module) else {
                continue;
            };
            if self
                .test_modules
                .iter()
                .any(|test| source.module.starts_with(test))
            {
                continue;
            }
            // A re-export of the `mod.rs` is resolved where it is used.
            let counts =
                |path: &&PathUse| !path.is_test && (from != "mod.rs" || path.imported_as.is_none());
            for path in source.paths.iter().filter(counts) {
                let home = self.path_from_root(path).map(|path| self.home_of(&path));
                let Some(to) = home.and_then(|home| child(&home)).filter(|to| *to != from) else {
                    continue;
                };
                let place: &mut String = found.entry((from.clone(), to)).or_default();
                *place += &format!(
                    " {}:{} {}",
                    source.path,
                    path.line,
                    path.segments.join("::")
                );
            }
        }
        found
    }

    /// Returns the groups of children of a folder that import each other, with their imports.
    fn cycles_in(&self, folder: &[String]) -> BTreeMap<Vec<String>, String> {
        let imports = self.imports_in(folder);
        let children: BTreeSet<&String> =
            imports.keys().flat_map(|(from, to)| [from, to]).collect();
        let mut reached: BTreeSet<(&String, &String)> =
            imports.keys().map(|(from, to)| (from, to)).collect();
        for middle in &children {
            for from in &children {
                let beyond: Vec<_> = children
                    .iter()
                    .filter(|to| reached.contains(&(middle, **to)))
                    .collect();
                if reached.contains(&(from, middle)) {
                    reached.extend(beyond.into_iter().map(|to| (*from, *to)));
                }
            }
        }
        let is_mutual =
            |one, other| reached.contains(&(one, other)) && reached.contains(&(other, one));
        let mut groups: BTreeMap<Vec<String>, String> = BTreeMap::new();
        for ((from, to), places) in imports.iter().filter(|((from, to), _)| is_mutual(from, to)) {
            let group = children
                .iter()
                .filter(|other| is_mutual(from, **other))
                .map(|other| (*other).clone());
            *groups.entry(group.collect()).or_default() += &format!("  {from} -> {to}:{places}\n");
        }
        groups
    }
}

#[track_caller]
fn assert_none(findings: &[String]) {
    assert!(findings.is_empty(), "\n{}", findings.join("\n"));
}

fn layer_findings(tree: &Tree) -> Vec<String> {
    let layer = |folder: &str| LAYERS.iter().position(|layer| layer.contains(&folder));
    let mut findings = Vec::new();
    for source in tree
        .sources
        .iter()
        .filter(|source| !TOP_FILES.contains(&source.path.as_str()))
    {
        let folder = source.module[0].as_str();
        let Some(own) = layer(folder) else {
            findings.push(format!("{}: the folder is not in `LAYERS`", source.path));
            continue;
        };
        let may_import = |target: &str| {
            let narrow = NARROW_FOLDERS.iter().find(|(narrow, _)| *narrow == folder);
            let is_below = layer(target).is_some_and(|layer| layer < own)
                && !FORBIDDEN.contains(&(folder, target));
            target == folder
                || is_below && narrow.is_none_or(|(_, accepted)| accepted.contains(&target))
        };
        for path in &source.paths {
            let Some(target) = tree
                .path_from_root(path)
                .and_then(|path| path.first().cloned())
            else {
                continue;
            };
            // A macro may have to name public items.
            let is_of_macro = path.segments[0] == "$crate" && layer(&target).is_none();
            if !may_import(&target) && !is_of_macro {
                findings.push(format!(
                    "{}:{}: `{}` in `{folder}`",
                    source.path,
                    path.line,
                    path.segments.join("::")
                ));
            }
        }
    }
    findings
}

#[test]
fn imports_only_go_down() {
    assert_none(&layer_findings(&TREE));
}

#[test]
fn folders_have_no_import_cycles() {
    let folders = TREE.modules.iter().filter_map(|module| module.split_last());
    let folders: BTreeSet<_> = folders
        .map(|(_, folder)| folder)
        .filter(|folder| !folder.is_empty())
        .collect();
    let mut findings = Vec::new();
    for folder in folders {
        for (group, imports) in TREE.cycles_in(folder) {
            let path = folder.join("/");
            findings.push(format!("a cycle in src/{path}: {group:?}\n{imports}"));
        }
    }
    assert_none(&findings);
}

#[test]
fn operating_system_is_named_only_in_its_folder() {
    let mut findings = Vec::new();
    for source in TREE
        .sources
        .iter()
        .filter(|source| !source.path.starts_with(SYSTEM_FOLDER))
    {
        for path in &source.paths {
            let names_system = match path.segments.iter().map(String::as_str).collect::<Vec<_>>()[..]
            {
                ["libc" | "nix", _, ..] | ["std", "os", ..] => true,
                ["libc" | "nix"] => path.imported_as.is_some(),
                _ => false,
            };
            if names_system {
                findings.push(format!(
                    "{}:{}: `{}`",
                    source.path,
                    path.line,
                    path.segments.join("::")
                ));
            }
        }
    }
    assert_none(&findings);
}

#[test]
fn unsafe_code_is_only_in_listed_files() {
    let found: BTreeSet<_> = TREE
        .sources
        .iter()
        .filter(|source| source.has_unsafe)
        .map(|source| source.path.as_str())
        .collect();
    let listed: BTreeSet<_> = UNSAFE_FILES.iter().copied().collect();
    assert_eq!(
        found.difference(&listed).collect::<Vec<_>>(),
        [&""; 0],
        "not in `UNSAFE_FILES`"
    );
    assert_eq!(
        listed.difference(&found).collect::<Vec<_>>(),
        [&""; 0],
        "in `UNSAFE_FILES`, but without `unsafe`"
    );
}

#[test]
fn signal_handler_calls_nothing_forbidden() {
    let mut findings = Vec::new();
    for source in &TREE.sources {
        for (name, body) in &source.handler_functions {
            let code: String = body.split_whitespace().collect();
            let found = NOT_IN_HANDLER
                .split_whitespace()
                .filter(|danger| code.contains(danger));
            findings.extend(found.map(|danger| format!("{}: `{danger}` in `{name}`", source.path)));
        }
    }
    for path in HANDLER_FILES {
        let source = TREE
            .sources
            .iter()
            .find(|source| source.path == *path)
            .unwrap_or_else(|| panic!("no file {path}"));
        let says_so = source
            .text
            .lines()
            .any(|line| line.starts_with("//!") && line.contains(HANDLER_NOTICE));
        if !says_so || source.handler_functions.is_empty() {
            findings.push(format!(
                "{path}: needs \"{HANDLER_NOTICE}\" in its head and a function `*_in_handler`"
            ));
        }
    }
    assert_none(&findings);
}

/// Tests of the rules, on small trees.
mod snippets {
    use super::*;

    fn tree(files: &[(&str, &str)]) -> Tree {
        Tree::new(
            files
                .iter()
                .map(|(path, text)| Source::new(path, text))
                .collect(),
        )
    }

    #[test]
    fn imports_up_and_sideways_are_found() {
        let count = |path: &str, text: &str| layer_findings(&tree(&[(path, text)])).len();
        assert_eq!(
            count(
                "src/state/a.rs",
                "use crate::{types::{A, B}, platform as p}; fn f() { crate::json::g() }"
            ),
            0
        );
        assert_eq!(
            count(
                "src/unwind/a.rs",
                "use crate::{types::A, markers::{B, C as D}};"
            ),
            2
        );
        assert_eq!(
            count("src/types/a.rs", "fn f() { assert_eq!(crate::json::A, 1) }"),
            1
        );
        assert_eq!(
            count(
                "src/state/a.rs",
                "mod t { use super::super::super::stream; use super::super::b; }"
            ),
            1
        );
        assert_eq!(count("src/sampler/a.rs", "use crate::json;"), 1);
        assert_eq!(
            count("src/disabled/a.rs", "use crate::{types, platform};"),
            1
        );
        assert_eq!(
            count(
                "src/types/a.rs",
                "//! crate::api\nconst A: &str = \"crate::api\";"
            ),
            0
        );
        assert_eq!(
            (count("src/attic/a.rs", ""), count("src/attic.rs", "")),
            (1, 1)
        );
    }

    #[test]
    fn cycle_through_re_exports_is_found() {
        let cycles = |text| {
            let door = "mod b; mod c; mod d; pub use b::B; pub use {c::C as Renamed, d::D};";
            let (b, c) = (
                "use super::Renamed; pub struct B;",
                "pub struct C; fn f() { g!(crate::a::D) }",
            );
            let files = [
                ("src/a/mod.rs", door),
                ("src/a/b.rs", b),
                ("src/a/c.rs", c),
                ("src/a/d.rs", text),
            ];
            tree(&files)
                .cycles_in(&["a".to_owned()])
                .into_keys()
                .collect::<Vec<_>>()
        };
        assert_eq!(
            cycles("pub struct D; fn f(_: crate::a::B) {}"),
            [["b", "c", "d"]]
        );
        assert_eq!(
            cycles("pub struct D; #[cfg(test)] mod tests { use crate::a::B; }"),
            [[""; 0]; 0]
        );
    }

    #[test]
    fn folder_counts_as_one_child_and_may_contain_cycles() {
        let d = "use super::e::E; use crate::a::c::C;";
        let files = [
            ("src/a/mod.rs", "mod b; mod c;"),
            ("src/a/b/mod.rs", "mod d; mod e;"),
            ("src/a/b/d.rs", d),
            ("src/a/b/e.rs", "use super::d; pub struct E;"),
            ("src/a/c.rs", "pub struct C;"),
        ];
        let cycles = |folder: &[&str]| {
            tree(&files).cycles_in(
                &folder
                    .iter()
                    .map(|name| (*name).to_owned())
                    .collect::<Vec<_>>(),
            )
        };
        assert!(cycles(&["a"]).is_empty());
        assert_eq!(
            cycles(&["a", "b"]).into_keys().collect::<Vec<_>>(),
            [["d", "e"]]
        );
    }

    #[test]
    fn handler_functions_and_unsafe_code_are_found() {
        let source = Source::new(
            "src/a/b.rs",
            "type F = unsafe extern \"C\" fn(); fn f_in_handler() { x.lock() }",
        );
        assert!(!source.has_unsafe && source.handler_functions[0].0 == "f_in_handler");
        assert!(Source::new("src/a/b.rs", "unsafe fn g() {}").has_unsafe);
    }
}
