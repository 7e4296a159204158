//! Checks rules of the sources that neither rustc nor clippy checks: layers, import cycles, where
//! `unsafe` and the operating system may appear, and what the signal handler may call.
//!
//! The tables come first. Sources are read as tokens, so paths in macros count, too.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::LazyLock;

use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};

/// The folders of `src`, lowest layer first. A file imports from its own folder and from lower
/// layers.
const LAYERS: &[&[&str]] = &[
    &["util"],
    &["types"],
    &["platform", "json", "buffer", "model"],
    &[
        "labels",
        "unwind",
        "markers",
        "counters",
        "allocations",
        "export",
    ],
    &["capture", "symbols", "waiting_tasks"],
    &["threads"],
    &["backtrace", "event_loop", "state"],
    &["sampler", "stream"],
    &["session"],
    &["record", "disabled", "family", "http", "pushing"],
    &["fuzzing"],
    &["api"],
    &["integrations"],
];

/// Folders that may import only from the listed ones, not from all lower layers.
const NARROW_FOLDERS: &[(&str, &[&str])] = &[("disabled", &["types", "util", "markers"])];

/// Forbidden imports, although they go to a lower layer.
const FORBIDDEN: &[(&str, &str)] = &[
    ("sampler", "json"),
    ("export", "platform"),
    ("export", "buffer"),
];

/// What a lower folder calls and an upper one fills, which is not an import: statics for a function,
/// structs of functions (`…Hooks`), and traits. Each with the reason.
const SLOTS: &[(&str, &str)] = &[
    (
        "CAPTURE",
        "`platform` installs the signal handler, which captures for `sampler`",
    ),
    (
        "CLOSED_STACK_HOOK",
        "a thread that pushes its first label in `labels` registers itself",
    ),
    (
        "Family",
        "`session` starts, stops and saves, and `family` passes that on to other processes",
    ),
    (
        "ForkHooks",
        "`platform` sees a fork, and `session` knows what its child must forget",
    ),
    (
        "FrozenChildren",
        "a profile of `stream` has those of child processes, which `family` asks for",
    ),
    ("Gathering", "as `FrozenChildren`"),
    (
        "HOOK",
        "`platform` sees the call of `exit`, and `session` saves the last profile",
    ),
    (
        "Mapping",
        "`util` shares memory that `platform` maps and unmaps",
    ),
    (
        "NEW_CATEGORY_HOOK",
        "a crash file has each category of `types` once it is used",
    ),
    (
        "NEW_CODE_HOOK",
        "a crash file has the generated code that `unwind` knows",
    ),
    (
        "NEW_TYPE_HOOK",
        "a crash file has each type of `markers` once it is used",
    ),
    (
        "PropertySink",
        "a payload of `markers` writes its fields to the text or the model of `stream`",
    ),
    (
        "RegistrationHooks",
        "the session of `state` follows the threads of `threads`",
    ),
    (
        "RunningSampler",
        "the end of a session in `state` waits for the thread of `sampler`",
    ),
];

/// The file that registers threads, and what it must not need, by itself or through others.
const REGISTRATION: &str = "src/session/life_cycle/registration.rs";
const NOT_FOR_REGISTRATION: &[&str] = &[
    "src/session/ends/fork.rs",
    "src/session/dumps/",
    "src/export/",
];

/// Files outside of the folders. They may import anything.
const TOP_FILES: &[&str] = &["src/gecko_profiler.rs", "src/lib.rs", "src/macros.rs"];

/// The folder of a separate package in `src`.
const PACKAGE: &str = "src/attributes";

/// The only folder that may name `libc`, `nix` and `std::os`. A port to another system rewrites
/// this folder and nothing else.
const SYSTEM_FOLDER: &str = "src/platform/";

/// Files that may hold `unsafe`, by folder of `src`.
const UNSAFE_FILES: &[&str] = &[
    "api: allocator early_start",
    "backtrace: copy pending pool",
    "buffer/chunks: chunk slab take_cell writing_cell",
    "capture: capture_slot captured_view found_stack remote_capture slot_model slot_pool",
    "labels: growing_array profiling_stack profiling_stack_frame profiling_stack_tests thread_labels",
    "platform: fork identity perf_event pinned_library sandbox standard_streams test_library variables",
    "platform/arch: registers_aarch64 registers_tests registers_x86_64",
    "platform/clock: fast_clock system_clock",
    "platform/memory: barrier file_mapping guarded_memory mapping memory_pipe shared_mapping",
    "platform/modules: headers image loader row",
    "platform/process_end: exit gate signals",
    "platform/signal: control_pipe fault_handlers handler pipe_end task_clock",
    "platform/socket: calls copies_in_child",
    "platform/thread: other_threads_activity own_descriptors profiler_thread signal_stack stack_bounds task_list thread_exit",
    "util: polled_with shared_memory",
    "util/lock: fork_safe ps_lock",
];

/// What the head comment of a file says if the signal handler runs functions of that file.
const HANDLER_NOTICE: &str = "runs in the signal handler";

/// Code, without white space, that allocates, locks, panics or initializes a thread-local.
const NOT_IN_HANDLER: &str = "Arc:: Box:: Mutex Rc:: RwLock String Vec thread_local .lock( .with( expect( unwrap( \
    assert! assert_eq! assert_ne! print! println! format! panic! unreachable! vec!";

/// The shipping lines that each folder of `src` may have: code without comments, blank lines, tests and
/// models. A number only falls. A commit that raises one says why.
const MOST_LINES: &[(&str, usize)] = &[
    ("", 1375),
    ("allocations", 720),
    ("api", 3298),
    ("backtrace", 476),
    ("buffer", 3444),
    ("capture", 1384),
    ("counters", 560),
    ("disabled", 379),
    ("export", 11061),
    ("family", 3469),
    ("http", 769),
    ("integrations", 2025),
    ("json", 560),
    ("labels", 895),
    ("markers", 4245),
    ("model", 985),
    ("platform", 7699),
    ("pushing", 1852),
    ("record", 221),
    ("sampler", 6054),
    ("session", 6000),
    ("state", 2548),
    ("stream", 5730),
    ("symbols", 1685),
    ("threads", 860),
    ("types", 3339),
    ("unwind", 2124),
    ("util", 1111),
    ("waiting_tasks", 823),
];

/// How far below its number a folder may be. From there on, the number must fall, too.
const MOST_UNUSED_LINES: usize = 40;

/// The path of a module or an item from the crate's root.
type ItemPath = Vec<String>;

/// A path in the code, or one name of a `use` statement.
#[derive(Clone, Default)]
struct PathUse {
    module: ItemPath,
    segments: Vec<String>,
    /// The name that a `use` imports it as: the last segment, the name after `as`, or `*`.
    imported_as: Option<String>,
    is_reexport: bool,
    is_test: bool,
    line: usize,
}

impl PathUse {
    fn describe(&self, source: &Source) -> String {
        let (file, line, path) = (&source.path, self.line, self.segments.join("::"));
        format!("{file}:{line} `{path}`")
    }
}

/// A function or method that is not only for tests.
struct Function {
    /// Its module and name.
    path: ItemPath,
    body: String,
    lines: RangeInclusive<usize>,
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
    /// The files that `#[path]` names, with their modules.
    named_files: Vec<(String, ItemPath)>,
    has_unsafe: bool,
    functions: Vec<Function>,
    /// The names of its traits, of those that it implements, and of those behind a `dyn`.
    traits: BTreeSet<String>,
    implemented: BTreeSet<String>,
    dynamic: BTreeSet<String>,
    /// The names of its statics for a function, and of its structs of functions.
    function_slots: BTreeSet<String>,
    /// The numbers of the lines with code that is not only for tests.
    shipping_lines: BTreeSet<usize>,
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

fn braces(token: &TokenTree) -> Option<&Group> {
    match token {
        TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => Some(group),
        _ => None,
    }
}

/// Returns the parts of a list that commas separate.
fn parts_of(list: &Group) -> Vec<Vec<TokenTree>> {
    let tokens: Vec<_> = list.stream().into_iter().collect();
    let parts = tokens.split(|token| sign(std::slice::from_ref(token), 0) == ',');
    let parts = parts.filter(|part| !part.is_empty());
    parts.map(<[_]>::to_vec).collect()
}

/// Returns whether `cfg(…)`, or a predicate in it, holds only in tests, fuzzing or models.
fn is_test_only(predicate: &[TokenTree]) -> bool {
    let parts = match predicate.get(1) {
        Some(TokenTree::Group(list)) => parts_of(list),
        _ => Vec::new(),
    };
    match word(predicate, 0).as_str() {
        "test" | "loom" | "fuzzing" => true,
        "cfg" | "all" => parts.iter().any(|part| is_test_only(part)),
        "any" => parts.iter().all(|part| is_test_only(part)),
        _ => false,
    }
}

/// Returns the file that an attribute names as the module's.
fn named_file(attribute: &[TokenTree]) -> Option<String> {
    let name = word(attribute, 0);
    match (name.as_str(), attribute.get(1), attribute.get(2)) {
        ("cfg_attr", Some(TokenTree::Group(list)), _) => {
            parts_of(list).iter().find_map(|part| named_file(part))
        }
        ("path", _, Some(name)) => Some(name.to_string().trim_matches('"').to_owned()),
        _ => None,
    }
}

/// Returns the trait of `impl … for …`.
fn implemented_trait(tokens: &[TokenTree]) -> Option<String> {
    let (mut depth, mut last) = (0, None);
    for (at, token) in tokens.iter().enumerate() {
        match sign(tokens, at) {
            '<' => depth += 1,
            '>' if at > 0 && sign(tokens, at - 1) != '-' => depth -= 1,
            _ if depth > 0 => {}
            _ if word(tokens, at) == "for" => return last,
            _ if braces(token).is_some() => return None,
            _ => {
                last = Some(word(tokens, at))
                    .filter(|name| !name.is_empty())
                    .or(last)
            }
        }
    }
    None
}

/// Returns whether this is a struct of functions, or a static that is filled later, with a function.
fn is_function_slot(item: &[TokenTree]) -> bool {
    let is_end = |at: &usize| matches!(sign(item, *at), '=' | ';');
    let end = (0..item.len()).find(is_end).unwrap_or(item.len());
    let has = |names: &[&str]| (0..end).any(|at| names.contains(&&*word(item, at)));
    let is_empty =
        |token: &TokenTree| matches!(token, TokenTree::Group(group) if group.stream().is_empty());
    let is_static = word(item, 0) == "static" && sign(item, 2) == ':';
    let is_pointer = || has(&["AtomicPtr"]) && item[..end].iter().any(is_empty);
    word(item, 0) == "struct" && word(item, 1).ends_with("Hooks")
        || is_static && (has(&["OnceBox", "OnceLock"]) && has(&["fn"]) || is_pointer())
}

/// Adds the numbers of the lines with code that is not only for tests.
fn add_shipping_lines(tokens: TokenStream, lines: &mut BTreeSet<usize>) {
    let tokens: &[TokenTree] = &tokens.into_iter().collect::<Vec<_>>();
    // The lines of the item that begins here.
    let (mut of_item, mut is_test) = (BTreeSet::new(), false);
    for (at, token) in tokens.iter().enumerate() {
        let (start, end) = (token.span().start().line, token.span().end().line);
        let is_attribute = matches!(at.checked_sub(1).map(|at| sign(tokens, at)), Some('#'))
            || at > 1 && sign(tokens, at - 2) == '#' && sign(tokens, at - 1) == '!';
        match token {
            TokenTree::Group(group) if is_attribute => {
                let attribute: Vec<_> = group.stream().into_iter().collect();
                is_test |= is_test_only(&attribute);
                // A comment is such an attribute, too.
                if word(&attribute, 0) != "doc" || sign(&attribute, 1) != '=' {
                    of_item.extend(start..=end);
                }
            }
            TokenTree::Group(group) => {
                of_item.extend([start, end]);
                add_shipping_lines(group.stream(), &mut of_item);
            }
            TokenTree::Punct(punct) if punct.as_char() == '#' || is_attribute => {}
            _ => of_item.extend(start..=end),
        }
        if braces(token).is_some() || matches!(sign(tokens, at), ';' | ',') {
            let ended = std::mem::take(&mut of_item);
            if !std::mem::take(&mut is_test) {
                lines.extend(ended);
            }
        }
    }
    if !is_test {
        lines.extend(of_item);
    }
}

impl Source {
    fn new(path: &str, text: &str) -> Self {
        let inside = path.trim_start_matches("src/").trim_end_matches(".rs");
        let mut module: ItemPath = inside.split('/').map(str::to_owned).collect();
        module.pop_if(|name| *name == "mod" || *name == "lib");
        Self::in_module(path, text, module)
    }

    fn in_module(path: &str, text: &str, mut module: ItemPath) -> Self {
        let tokens: TokenStream = text
            .parse()
            .unwrap_or_else(|error| panic!("{path}: {error}"));
        let (path, text) = (path.to_owned(), text.to_owned());
        let mut source = Self {
            path,
            text,
            module: module.clone(),
            ..Self::default()
        };
        add_shipping_lines(tokens.clone(), &mut source.shipping_lines);
        source.read(tokens, &mut module, false);
        source
    }

    fn read(&mut self, tokens: TokenStream, module: &mut ItemPath, is_test: bool) {
        let tokens: &[TokenTree] = &tokens.into_iter().collect::<Vec<_>>();
        let mut at = 0;
        // Whether the item that begins here is only for tests.
        let mut of_test = is_test;
        let mut files = Vec::new();
        while let Some(token) = tokens.get(at) {
            let of_item = of_test;
            match token {
                TokenTree::Group(group) if at > 0 && sign(tokens, at - 1) == '#' => {
                    let attribute: Vec<_> = group.stream().into_iter().collect();
                    of_test |= is_test_only(&attribute);
                    self.has_unsafe |= word(&attribute, 0) == "unsafe";
                    files.extend(named_file(&attribute));
                }
                TokenTree::Group(group) => self.read(group.stream(), module, of_item),
                TokenTree::Ident(name) if name == "mod" && !files.is_empty() => {
                    let folder = self.path.rsplit_once('/').map_or("", |(folder, _)| folder);
                    let module = [&module[..], &[word(tokens, at + 1)]].concat();
                    let named = |file| (format!("{folder}/{file}"), module.clone());
                    self.named_files.extend(files.drain(..).map(named));
                    continue;
                }
                TokenTree::Ident(_) => at = self.read_from_word(tokens, at, module, of_item),
                _ => {}
            }
            // The item ends after its `;` or body.
            if tokens.get(at).is_some_and(|token| braces(token).is_some())
                || matches!(sign(tokens, at), ';' | ',')
            {
                of_test = is_test;
                files.clear();
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
                    Some(body) => self.read(body.stream(), module, is_test),
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
                let is_pub = |before| word(tokens, at.wrapping_sub(before)) == "pub";
                let start = PathUse {
                    module: module.clone(),
                    is_reexport: is_pub(1) || is_pub(2),
                    is_test,
                    ..PathUse::default()
                };
                self.read_use(&tokens[at + 1..end], &start);
                return end;
            }
            "unsafe" => {
                let after = if next == "extern" { at + 3 } else { at + 1 };
                // `unsafe fn` as a pointer type is harmless.
                self.has_unsafe |=
                    word(tokens, after) != "fn" || !word(tokens, after + 1).is_empty();
            }
            "impl" if !is_test => {
                self.implemented
                    .extend(implemented_trait(&tokens[at + 1..]));
            }
            "dyn" if !is_test => {
                let is_of_path =
                    |at: &usize| !word(tokens, *at).is_empty() || sign(tokens, *at) == ':';
                let path = (at + 1..tokens.len()).take_while(is_of_path);
                let names = path.map(|at| word(tokens, at));
                self.dynamic
                    .extend(names.filter(|name| !name.is_empty()).last());
            }
            "fn" | "struct" | "enum" | "union" | "trait" | "type" | "const" | "static" => {
                if word(tokens, at) == "trait" && !is_test {
                    self.traits.insert(next.clone());
                } else if !is_test && is_function_slot(&tokens[at..]) {
                    self.function_slots.insert(next.clone());
                }
                let path = [&module[..], std::slice::from_ref(&next)].concat();
                let head = tokens[at..].split(|token| sign(std::slice::from_ref(token), 0) == ';');
                let body = head.take(1).flatten().find_map(braces);
                let is_function = word(tokens, at) == "fn" && !is_test && !next.is_empty();
                if let Some(body) = body.filter(|_| is_function) {
                    self.functions.push(Function {
                        path: path.clone(),
                        body: body.to_string().split_whitespace().collect(),
                        lines: tokens[at].span().start().line..=body.span_close().end().line,
                    });
                }
                self.items.insert(path);
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
                self.paths.push(PathUse {
                    module: module.clone(),
                    segments,
                    is_test,
                    line: tokens[at].span().start().line,
                    ..PathUse::default()
                });
                return last;
            }
        }
        at
    }

    /// Reads the tree after `use`, or one part of a group in it.
    fn read_use(&mut self, tokens: &[TokenTree], start: &PathUse) {
        let mut path = start.clone();
        for (at, token) in tokens.iter().enumerate() {
            match token {
                TokenTree::Ident(name) if at > 0 && word(tokens, at - 1) == "as" => {
                    path.imported_as = Some(name.to_string())
                }
                TokenTree::Ident(name)
                    if name == "as" || (name == "self" && !path.segments.is_empty()) => {}
                TokenTree::Ident(name) if at > 0 && sign(tokens, at - 1) == '$' => {
                    path.segments.push(format!("${name}"))
                }
                TokenTree::Ident(name) => path.segments.push(name.to_string()),
                TokenTree::Punct(sign) if sign.as_char() == '*' => {
                    path.imported_as = Some("*".to_owned())
                }
                TokenTree::Group(group) => {
                    parts_of(group)
                        .iter()
                        .for_each(|part| self.read_use(part, &path));
                    return;
                }
                _ => {}
            }
        }
        if let Some(token) = tokens.first() {
            let last = path.segments.last().cloned();
            path.imported_as = path.imported_as.or(last);
            path.line = token.span().start().line;
            self.paths.push(path);
        }
    }
}

/// The crate's sources, with their modules, items and imports.
#[derive(Default)]
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
            let name = path.strip_prefix(root).expect("below the root");
            let name = name.to_str().expect("UTF-8");
            if path.is_dir() && name != PACKAGE {
                folders.push(path);
            } else if name.ends_with(".rs") {
                let text = std::fs::read_to_string(&path).expect("a source");
                sources.push(Source::new(name, &text));
            }
        }
    }
    assert!(sources.len() > 200, "the sources were not found");
    sources.sort_by(|one, other| one.path.cmp(&other.path));
    Tree::new(sources)
});

impl Tree {
    fn new(mut sources: Vec<Source>) -> Self {
        let named_files: BTreeMap<_, _> = sources
            .iter_mut()
            .flat_map(|source| std::mem::take(&mut source.named_files))
            .collect();
        for source in &mut sources {
            if let Some(module) = named_files.get(&source.path) {
                *source = Source::in_module(&source.path, &source.text, module.clone());
            }
        }
        let mut tree = Self::default();
        for source in &mut sources {
            tree.modules.insert(source.module.clone());
            tree.items.append(&mut source.items);
            tree.test_modules.append(&mut source.test_modules);
        }
        for path in sources.iter().flat_map(|source| &source.paths) {
            if let (Some(name), Some(target)) = (&path.imported_as, tree.path_from_root(path)) {
                let imported = [&path.module[..], std::slice::from_ref(name)].concat();
                tree.imports.insert(imported, target);
            }
        }
        tree.sources = sources;
        tree
    }

    /// Returns the path from the crate's root, if the path leads into the crate.
    fn path_from_root(&self, path: &PathUse) -> Option<ItemPath> {
        let (module, segments) = (&path.module[..], &path.segments[..]);
        let is_super = |segment: &&String| *segment == "super";
        let supers = segments.iter().take_while(is_super).count();
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
        let target = self.imports.get(&path[..end]);
        match target.filter(|target| !target.starts_with(&path[..end])) {
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
            let mut test_modules = self.test_modules.iter();
            let is_test = test_modules.any(|module| source.module.starts_with(module));
            let Some(from) = child(&source.module).filter(|_| !is_test) else {
                continue;
            };
            // A re-export of the `mod.rs` is resolved where it is used.
            let counts = |path: &&PathUse| !path.is_test && (from != "mod.rs" || !path.is_reexport);
            for path in source.paths.iter().filter(counts) {
                let home = self.path_from_root(path).map(|path| self.home_of(&path));
                let Some(to) = home.and_then(|home| child(&home)).filter(|to| *to != from) else {
                    continue;
                };
                let place: &mut String = found.entry((from.clone(), to)).or_default();
                *place += &format!(" {}", path.describe(source));
            }
        }
        found
    }

    /// Returns the module and name of the item that a path leads to, also by an imported name.
    fn target_of(&self, path: &PathUse) -> ItemPath {
        let from_root = self.path_from_root(path);
        let target = from_root.unwrap_or_else(|| [&path.module[..], &path.segments].concat());
        let last = target.last().cloned();
        self.home_of(&target).into_iter().chain(last).collect()
    }

    /// Returns the files that a file needs, by itself or through others.
    fn files_needed_by(&self, file: &str) -> BTreeSet<&str> {
        let file_of = |module: &ItemPath| {
            let holds = |source: &&Source| {
                module.starts_with(&source.module) && !TOP_FILES.contains(&&*source.path)
            };
            let sources = self.sources.iter().filter(holds);
            sources.max_by_key(|source| source.module.len())
        };
        let first = self.sources.iter().find(|source| source.path == file);
        let (mut needed, mut next) = (BTreeSet::new(), Vec::from_iter(first));
        while let Some(source) = next.pop() {
            let paths = source.paths.iter();
            // A re-export of a `mod.rs` is resolved where it is used.
            let is_door = source.path.ends_with("/mod.rs");
            let paths = paths.filter(|path| !(path.is_test || is_door && path.is_reexport));
            let targets = paths.filter_map(|path| self.path_from_root(path));
            let homes: Vec<_> = targets.map(|target| self.home_of(&target)).collect();
            let files = homes.iter().filter_map(file_of);
            next.extend(files.filter(|file| needed.insert(&*file.path)));
        }
        needed
    }

    /// Returns the functions that run in the signal handler: those whose names say so, and those
    /// that these call. A method of a type of another file is found only by its name.
    fn handler_functions(&self) -> Vec<(&Source, &Function)> {
        let is_named = |function: &Function| function.path.join(" ").ends_with("_in_handler");
        let mut others: BTreeMap<_, Vec<_>> = BTreeMap::new();
        let mut found = Vec::new();
        for source in &self.sources {
            for function in &source.functions {
                let list = if is_named(function) {
                    &mut found
                } else {
                    others.entry(&function.path).or_default()
                };
                list.push((source, function));
            }
        }
        let mut at = 0;
        while let Some((source, function)) = found.get(at) {
            let paths = source.paths.iter();
            let paths = paths.filter(|path| function.lines.contains(&path.line));
            let called = paths.filter_map(|path| others.remove(&self.target_of(path)));
            found.extend(called.flatten());
            at += 1;
        }
        found
    }

    /// Returns the groups of children of a folder that import each other, with their imports.
    fn cycles_in(&self, folder: &[String]) -> BTreeMap<Vec<String>, String> {
        let imports = self.imports_in(folder);
        let reached_from = |from| {
            let (mut reached, mut next) = (BTreeSet::new(), vec![from]);
            while let Some(from) = next.pop() {
                let direct = imports.keys().filter(|(one, _)| one == from);
                next.extend(direct.filter_map(|(_, to)| reached.insert(to).then_some(to)));
            }
            reached
        };
        let mut groups: BTreeMap<Vec<String>, String> = BTreeMap::new();
        for ((from, to), places) in &imports {
            let mut group = reached_from(from);
            group.retain(|other| reached_from(other).contains(from));
            if group.contains(to) {
                let group = group.into_iter().cloned().collect();
                *groups.entry(group).or_default() += &format!("  {from} -> {to}:{places}\n");
            }
        }
        groups
    }
}

#[track_caller]
fn assert_none(findings: &[String]) {
    assert!(findings.is_empty(), "\n{}", findings.join("\n"));
}

fn layer(folder: &str) -> Option<usize> {
    LAYERS.iter().position(|layer| layer.contains(&folder))
}

fn layer_findings(tree: &Tree) -> Vec<String> {
    let mut findings = Vec::new();
    let in_folder = |source: &&Source| !TOP_FILES.contains(&source.path.as_str());
    for source in tree.sources.iter().filter(in_folder) {
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
            let from_root = tree.path_from_root(path);
            let Some(target) = from_root.and_then(|path| path.first().cloned()) else {
                continue;
            };
            // A macro may have to name public items.
            let is_of_macro = path.segments[0] == "$crate" && layer(&target).is_none();
            if !may_import(&target) && !is_of_macro {
                findings.push(path.describe(source));
            }
        }
    }
    findings
}

#[test]
fn imports_only_go_down() {
    assert_none(&layer_findings(&TREE));
}

/// Returns the names of the slots that a lower folder calls and an upper one fills.
fn slots(tree: &Tree) -> BTreeSet<&str> {
    let sources = || tree.sources.iter();
    let layer_of = |source: &Source| layer(source.module.first()?);
    let mut found = BTreeSet::new();
    for source in sources() {
        let functions = source.function_slots.iter();
        let traits = source.traits.iter().filter(|name| {
            let fillers = sources().filter(|other| other.implemented.contains(*name));
            let highest = fillers.filter_map(layer_of).max();
            let callers = sources().filter(|other| other.dynamic.contains(*name));
            let lowest = callers.filter_map(layer_of).min();
            highest > layer_of(source) && lowest.is_some() && lowest < highest
        });
        found.extend(functions.chain(traits).map(String::as_str));
    }
    found
}

#[test]
fn slots_that_upper_folders_fill_are_listed() {
    let listed: BTreeSet<_> = SLOTS.iter().map(|(name, _)| *name).collect();
    let found = slots(&TREE);
    let differences: Vec<_> = found.symmetric_difference(&listed).collect();
    assert!(
        differences.is_empty(),
        "only listed in `SLOTS`, or only in the code: {differences:?}"
    );
}

#[test]
fn registration_of_a_thread_needs_no_fork_no_dumps_and_no_formats() {
    let needed = TREE.files_needed_by(REGISTRATION);
    assert!(
        needed.iter().any(|file| file.starts_with("src/threads/")),
        "{needed:?}"
    );
    let is_forbidden = |file: &&&str| NOT_FOR_REGISTRATION.iter().any(|no| file.starts_with(no));
    let found: Vec<_> = needed.iter().filter(is_forbidden).collect();
    assert!(found.is_empty(), "{found:?}");
}

#[test]
fn folders_have_no_import_cycles() {
    let modules = TREE.modules.iter();
    let folders = modules.filter_map(|module| Some(module.split_last()?.1));
    let folders: BTreeSet<_> = folders.filter(|folder| !folder.is_empty()).collect();
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
    let is_outside = |source: &&Source| !source.path.starts_with(SYSTEM_FOLDER);
    for source in TREE.sources.iter().filter(is_outside) {
        for path in &source.paths {
            let segments: Vec<_> = path.segments.iter().map(String::as_str).collect();
            let names_system = match segments[..] {
                ["libc" | "nix", _, ..] | ["std", "os", ..] => true,
                ["libc" | "nix"] => path.imported_as.is_some(),
                _ => false,
            };
            if names_system {
                findings.push(path.describe(source));
            }
        }
    }
    assert_none(&findings);
}

#[test]
fn unsafe_code_is_only_in_listed_files() {
    let sources = TREE.sources.iter().filter(|source| source.has_unsafe);
    let found: BTreeSet<_> = sources.map(|source| source.path.clone()).collect();
    let listed = UNSAFE_FILES.iter().flat_map(|files| {
        let (folder, names) = files.split_once(": ").expect("a folder and its files");
        names
            .split(' ')
            .map(move |name| format!("src/{folder}/{name}.rs"))
    });
    let listed = listed.collect();
    let differences: Vec<_> = found.symmetric_difference(&listed).collect();
    assert!(
        differences.is_empty(),
        "only listed in `UNSAFE_FILES`, or only with `unsafe`: {differences:?}"
    );
}

fn handler_findings(tree: &Tree) -> Vec<String> {
    let functions = tree.handler_functions();
    let mut findings = Vec::new();
    for (source, function) in &functions {
        let dangers = NOT_IN_HANDLER.split_whitespace();
        for danger in dangers.filter(|danger| function.body.contains(danger)) {
            let (file, name) = (&source.path, function.path.join("::"));
            findings.push(format!("{file}: `{danger}` in `{name}`"));
        }
    }
    let is_file = |source: &&Source| !source.path.ends_with("/mod.rs");
    for source in tree.sources.iter().filter(is_file) {
        let lines = source.text.lines();
        let head: String = lines.map_while(|line| line.strip_prefix("//!")).collect();
        let says_so = head.to_lowercase().contains(HANDLER_NOTICE);
        let of_file = |(other, _): &&(&Source, &Function)| other.path == source.path;
        match (says_so, functions.iter().find(of_file)) {
            (false, Some((_, function))) => {
                let (file, name) = (&source.path, function.path.join("::"));
                findings.push(format!(
                    "{file}: the head must say that `{name}` {HANDLER_NOTICE}"
                ));
            }
            (true, None) => findings.push(format!("{}: nothing {HANDLER_NOTICE}", source.path)),
            _ => {}
        }
    }
    findings
}

#[test]
fn signal_handler_calls_nothing_forbidden() {
    assert_none(&handler_findings(&TREE));
}

fn lines_by_folder(tree: &Tree) -> BTreeMap<&str, usize> {
    let mut lines: BTreeMap<&str, usize> = BTreeMap::new();
    for source in &tree.sources {
        let mut test_modules = tree.test_modules.iter();
        if !test_modules.any(|module| source.module.starts_with(module)) {
            let path = source.path.trim_start_matches("src/");
            let folder = path.split_once('/').map_or("", |(folder, _)| folder);
            *lines.entry(folder).or_default() += source.shipping_lines.len();
        }
    }
    lines
}

#[test]
fn folders_do_not_grow() {
    let lines = lines_by_folder(&TREE);
    println!("{lines:#?}, in all {}", lines.values().sum::<usize>());
    let most: BTreeMap<_, _> = MOST_LINES.iter().copied().collect();
    let mut findings = Vec::new();
    for folder in lines.keys().chain(most.keys()).collect::<BTreeSet<_>>() {
        let (lines, most) = (lines.get(folder).copied(), most.get(folder).copied());
        let is_right = matches!((lines, most), (Some(lines), Some(most))
            if (most.saturating_sub(MOST_UNUSED_LINES)..=most).contains(&lines));
        if !is_right {
            findings.push(format!(
                "src/{folder}: got {lines:?} lines, expected at most {most:?} of `MOST_LINES`, and at most {MOST_UNUSED_LINES} fewer"
            ));
        }
    }
    assert_none(&findings);
}

/// Tests of the rules, on small trees.
mod snippets {
    use super::*;

    fn tree(files: &[(&str, &str)]) -> Tree {
        let sources = files.iter().map(|(path, text)| Source::new(path, text));
        Tree::new(sources.collect())
    }

    fn cycles(folder: &str, files: &[(&str, &str)]) -> Vec<Vec<String>> {
        let folder: ItemPath = folder.split('/').map(str::to_owned).collect();
        tree(files).cycles_in(&folder).into_keys().collect()
    }

    #[test]
    fn imports_up_and_sideways_are_found() {
        let lower = "use crate::{types::{A, B}, platform as p}; fn f() { crate::json::g() }";
        let sideways = "use crate::{types::A, markers::{B, C as D}};";
        let nested = "mod t { use super::super::super::stream; use super::super::b; }";
        let words = "//! crate::api\nconst A: &str = \"crate::api\";";
        for (path, text, findings) in [
            ("src/state/a.rs", lower, 0),
            ("src/unwind/a.rs", sideways, 2),
            (
                "src/types/a.rs",
                "fn f() { assert_eq!(crate::json::A, 1) }",
                1,
            ),
            ("src/state/a.rs", nested, 1),
            ("src/sampler/a.rs", "use crate::json;", 1),
            ("src/disabled/a.rs", "use crate::{types, platform};", 1),
            ("src/types/a.rs", words, 0),
            ("src/attic/a.rs", "", 1),
            ("src/attic.rs", "", 1),
        ] {
            let found = layer_findings(&tree(&[(path, text)]));
            assert_eq!(found.len(), findings, "{path}: {text}: {found:?}");
        }
    }

    #[test]
    fn cycle_through_re_exports_is_found() {
        let cycles_with = |d: &str| {
            let door = "mod b; mod c; mod d; pub use b::B; pub use {c::C as Renamed, d::D};";
            let b = "use super::Renamed; pub struct B;";
            let c = "pub struct C; fn f() { g!(crate::a::D) }";
            let files = [("src/a/mod.rs", door), ("src/a/b.rs", b), ("src/a/c.rs", c)];
            cycles("a", &[&files[..], &[("src/a/d.rs", d)]].concat())
        };
        let cycle = [["b", "c", "d"]];
        assert_eq!(cycles_with("pub struct D; fn f(_: crate::a::B) {}"), cycle);
        let tests = "pub struct D; #[cfg(test)] mod t { use crate::a::B; }";
        assert_eq!(cycles_with(tests), [[""; 0]; 0]);
        for (predicate, is_for_tests) in [
            ("any(x, test)", false),
            ("not(test)", false),
            ("x", false),
            ("all(x, any(test, fuzzing))", true),
        ] {
            let found = cycles_with(&tests.replace("test", predicate));
            assert_eq!(found.is_empty(), is_for_tests, "{predicate}");
        }
    }

    #[test]
    fn cycle_through_a_named_file_is_found() {
        let d = "#[cfg_attr(x, path = \"c_x.rs\")] #[cfg_attr(y, path = \"c_y.rs\")] mod c; mod b;";
        let b = "use super::c::C; pub struct B; #[cfg(test)] #[path = \"b_tests.rs\"] mod tests;";
        let files = [
            ("src/a/mod.rs", d),
            ("src/a/b.rs", b),
            ("src/a/c_x.rs", "pub struct C;"),
        ];
        let with = |file| cycles("a", &[&files[..], &[file]].concat());
        assert_eq!(with(("src/a/c_y.rs", "use crate::a::b::B;")), [["b", "c"]]);
        assert_eq!(
            with(("src/a/b_tests.rs", "use super::super::mod_item;")),
            [[""; 0]; 0]
        );
    }

    #[test]
    fn cycle_through_the_items_of_a_folder_is_found() {
        let door = "mod b; use b::B; pub use b::C; pub struct A(B);";
        let b = "use super::A; pub struct B; pub struct C;";
        let with = |door| cycles("a", &[("src/a/mod.rs", door), ("src/a/b.rs", b)]);
        assert_eq!(with(door), [["b", "mod.rs"]]);
        assert_eq!(with("mod b; pub use b::B; pub struct A;"), [[""; 0]; 0]);
    }

    #[test]
    fn folder_counts_as_one_child_and_may_contain_cycles() {
        let files = [
            ("src/a/mod.rs", "mod b; mod c;"),
            ("src/a/b/mod.rs", "mod d; mod e;"),
            ("src/a/b/d.rs", "use super::e::E; use crate::a::c::C;"),
            ("src/a/b/e.rs", "use super::d; pub struct E;"),
            ("src/a/c.rs", "pub struct C;"),
        ];
        assert!(cycles("a", &files).is_empty());
        assert_eq!(cycles("a/b", &files), [["d", "e"]]);
    }

    #[test]
    fn forbidden_code_is_found_in_all_functions_of_the_handler() {
        let head = "//! It runs in\n//! the signal handler.\n";
        let text =
            "use super::c as x; fn f_in_handler() { x::g(); h() }\nfn h() {}\nfn i() { panic!() }";
        let findings = |head: &str, c| {
            let b = format!("{head}{text}");
            let door = ("src/a/mod.rs", "");
            handler_findings(&tree(&[door, ("src/a/b.rs", &b), ("src/a/c.rs", c)]))
        };
        let c = format!("{head}pub fn g() {{ let a = 1; }}");
        assert_eq!(findings(head, &c), [""; 0]);
        assert_eq!(findings("", &c).len(), 1);
        assert_eq!(findings(head, "pub fn g() {}").len(), 1);
        assert_eq!(findings(head, &c.replace("1", "x . lock()")).len(), 1);
        assert_eq!(handler_findings(&tree(&[("src/a/d.rs", head)])).len(), 1);
    }

    #[test]
    fn lines_of_code_that_ships_are_counted() {
        let text = "//! A.\n\nuse a::b; // C.\n/// D.\n#[e]\nfn f() {\n    // G.\n    g()\n}\n\
            #[cfg(test)]\nmod tests {\n    fn h() {}\n}\nconst I: &str = \"\nj\";\n";
        let (one, model) = (("src/a/b.rs", text), ("src/a/model.rs", "fn k() {}"));
        let door = ("src/a/mod.rs", "mod b; #[cfg(all(test, x))] mod model;");
        let tree = tree(&[one, model, door]);
        assert_eq!(lines_by_folder(&tree), BTreeMap::from([("a", 8)]));
    }

    #[test]
    fn slots_for_functions_and_traits_are_found() {
        let lower = "static A: OnceBox<fn(u8)> = x; static B: AtomicPtr<()> = x; static C: [fn(); 1] = x; \
            struct DHooks { e: fn() } pub(crate) trait F {} trait G {} trait H {} \
            fn i(_: &dyn F, _: &dyn crate::a::H) {}";
        let upper = "impl<T: Into<u8>> F for X<T> { fn f() {} } impl crate::a::G for X {} impl X {} \
            #[cfg(test)] impl H for X {}";
        let tree = tree(&[("src/types/a.rs", lower), ("src/state/b.rs", upper)]);
        assert_eq!(slots(&tree), BTreeSet::from(["A", "B", "DHooks", "F"]));
    }

    #[test]
    fn files_that_a_file_needs_are_found_through_re_exports() {
        let door = "mod b; mod c; pub use b::B; pub use c::C;";
        let (b, c) = ("use crate::d::D; pub struct B;", "pub struct C;");
        let files = [
            ("src/a/mod.rs", door),
            ("src/a/b.rs", b),
            ("src/a/c.rs", c),
            ("src/d.rs", "pub struct D;"),
            ("src/e.rs", "use crate::a::B; #[cfg(test)] use crate::a::C;"),
        ];
        let tree = tree(&files);
        let needed = tree.files_needed_by("src/e.rs");
        assert_eq!(needed, BTreeSet::from(["src/a/b.rs", "src/d.rs"]));
    }

    #[test]
    fn unsafe_code_is_found() {
        let has_unsafe = |text| Source::new("src/a/b.rs", text).has_unsafe;
        assert!(!has_unsafe("type F = unsafe extern \"C\" fn();"));
        assert!(has_unsafe("unsafe fn g() {}"));
    }
}
