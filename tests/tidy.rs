//! The house's rules, kept true by reading its text.
//!
//! The tables that change with the house are in this file. The rules that read them are in `tidy/`, one file for each
//! concern, and each rule is tried there on snippets that it has to refuse.

#[path = "tidy/essays.rs"]
mod essays;
#[path = "tidy/imports.rs"]
mod imports;
#[path = "tidy/safety.rs"]
mod safety;
#[path = "tidy/scan.rs"]
mod scan;
#[path = "tidy/source.rs"]
mod source;
#[path = "tidy/words.rs"]
mod words;

use std::sync::LazyLock;

use imports::Imports::{Below, BelowBut, Only};
use imports::{Imports, Room};
use source::{Finding, Source, read_house};

const fn room(folder: &'static str, layer: u8, imports: Imports) -> Room {
    Room {
        folder,
        layer,
        imports,
    }
}

/// The folders of `src`. Imports go to lower layers alone.
const ROOMS: &[Room] = &[
    room("base", 0, Below),
    room("platform", 1, Below),
    room("json", 1, Below),
    room("buffer", 1, BelowBut(&["json", "markers"])),
    room("threads", 2, Below),
    room("unwind", 2, Below),
    room("markers", 2, Below),
    room("counters", 2, Below),
    room("symbols", 3, Below),
    room("state", 3, BelowBut(&["sampler", "stream"])),
    room("sampler", 4, BelowBut(&["json", "stream"])),
    room("stream", 4, Below),
    room("export", 5, BelowBut(&["buffer"])),
    room("control", 5, Below),
    room("processes", 6, Below),
    room("fuzzing", 6, Below),
    room("disabled", 6, Only(&["base", "export", "markers"])),
    room("api", 7, Below),
    room("interop", 8, Below),
];

/// The files of `src` that lie in no folder; they may import anything.
const TOP_FILES: &[&str] = &["src/gecko_profiler.rs", "src/lib.rs", "src/macros.rs"];

/// The folders of `src` that are packages of their own: they know nothing of the others, and have no layer.
const PACKAGES: &[&str] = &["src/attributes/"];

/// Where `libc`, `nix` and `std::os` may be named.
const SYSTEM_PLACES: &[&str] = &[
    "src/platform/",
    "src/processes/transport.rs",
    "src/interop/c_api.rs",
];

/// The files that may hold `unsafe`.
const UNSAFE_FILES: &[&str] = &[
    "src/base/polled_with.rs",
    "src/base/ps_lock.rs",
    "src/platform/signal.rs",
    "src/platform/registers.rs",
    "src/platform/registers_x86_64.rs",
    "src/platform/registers_aarch64.rs",
    "src/platform/stack_bounds.rs",
    "src/platform/barrier.rs",
    "src/platform/clock.rs",
    "src/platform/control_pipe.rs",
    "src/platform/fast_clock.rs",
    "src/platform/modules.rs",
    "src/platform/other_threads_activity.rs",
    "src/platform/pipe_end.rs",
    "src/platform/profiler_thread.rs",
    "src/platform/fork.rs",
    "src/platform/guarded_memory.rs",
    "src/platform/memory.rs",
    "src/platform/test_library.rs",
    "src/platform/thread_timer.rs",
    "src/platform/identity.rs",
    "src/buffer/chunk.rs",
    "src/buffer/slab.rs",
    "src/buffer/take_cell.rs",
    "src/buffer/writing_cell.rs",
    "src/threads/backtrace.rs",
    "src/threads/backtrace_pool.rs",
    "src/threads/pending_stacks.rs",
    "src/threads/profiling_stack.rs",
    "src/threads/profiling_stack_frame.rs",
    "src/threads/profiling_stack_tests.rs",
    "src/threads/capture_slot.rs",
    "src/threads/captured_view.rs",
    "src/threads/outside_capture.rs",
    "src/threads/growing_array.rs",
    "src/threads/slot_model.rs",
    "src/threads/slot_pool.rs",
    "src/threads/thread_labels.rs",
];

/// The files whose functions named `*_in_handler` are the signal handler.
const HANDLER_FILES: &[&str] = &[
    "src/platform/control_pipe.rs",
    "src/platform/pipe_end.rs",
    "src/sampler/handler.rs",
    "src/threads/capture_slot.rs",
    "src/threads/event_delay.rs",
    "src/threads/profiling_stack.rs",
    "src/threads/profiling_stack_frame.rs",
    "src/threads/slot_state.rs",
];

/// The files of `src` that may print; it is of tests. What the profiler itself says goes by `write_to_standard`.
const PRINTING_FILES: &[&str] = &["src/unwind/comparison.rs"];

const MOST_LINES: usize = 700;
const MOST_COLUMNS: usize = 140;
const STOPS: usize = 12;

/// What a rule lets pass, and why. One that nothing needs is itself against the rule.
const EXCEPTIONS: &[Exception] = &[];

struct Exception {
    rule: Rule,
    path: &'static str,
    /// A part of what the rule says it found.
    found: &'static str,
    why: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rule {
    Layers,
    System,
    Length,
    Width,
    SafetyComments,
    UnsafePlaces,
    Essays,
    ModFiles,
    Stops,
    Leftovers,
    Ignored,
    Printing,
    Handler,
}

impl Rule {
    fn why(self) -> &'static str {
        match self {
            Self::Layers => {
                "imports go down only, so that a room is understood with what lies below it"
            }
            Self::System => "a port to another system writes `platform` anew and nothing else",
            Self::Length => "a file is read in one sitting",
            Self::Width => "a line is read without scrolling",
            Self::SafetyComments => "whoever reads `unsafe` can check it on the spot",
            Self::UnsafePlaces => {
                "what can break memory is known by name, and the compiler refuses it elsewhere"
            }
            Self::Essays => "each room introduces itself in the same words",
            Self::ModFiles => "a `mod.rs` is a room's door, and nobody looks for logic in it",
            Self::Stops => "the way of a sample can be walked by searching for its stops",
            Self::Leftovers => "what is here is done",
            Self::Ignored => "a test that is not run says why",
            Self::Printing => "a library does not write to its host's terminal",
            Self::Handler => {
                "what waits, allocates or panics in a signal handler deadlocks the host"
            }
        }
    }
}

/// Fails with all that a rule found and no exception covers.
#[track_caller]
fn judge(rule: Rule, findings: Vec<Finding>) {
    let findings = without_exceptions(rule, findings, EXCEPTIONS);
    let lines: String = findings
        .iter()
        .map(|finding| format!("{finding}\n"))
        .collect();
    assert!(findings.is_empty(), "{rule:?}: {}.\n{lines}", rule.why());
}

fn without_exceptions(
    rule: Rule,
    findings: Vec<Finding>,
    exceptions: &[Exception],
) -> Vec<Finding> {
    let covers = |exception: &Exception, finding: &Finding| {
        exception.path == finding.path && finding.found.contains(exception.found)
    };
    let ours = || exceptions.iter().filter(|exception| exception.rule == rule);
    let unused =
        ours().filter(|exception| !findings.iter().any(|finding| covers(exception, finding)));
    let as_finding = |exception: &Exception| {
        let found = format!(
            "nothing like \"{}\", though it is excepted since {}",
            exception.found, exception.why
        );
        Finding::new(
            exception.path,
            1,
            found,
            "remove it from `EXCEPTIONS` in tests/tidy.rs",
        )
    };
    let unused: Vec<Finding> = unused.map(as_finding).collect();
    let mut left = findings;
    left.retain(|finding| !ours().any(|exception| covers(exception, finding)));
    left.extend(unused);
    left
}

fn house() -> &'static [Source] {
    static HOUSE: LazyLock<Vec<Source>> = LazyLock::new(read_house);
    &HOUSE
}

/// The house without the packages in it.
fn library() -> &'static [Source] {
    static LIBRARY: LazyLock<Vec<Source>> = LazyLock::new(|| {
        let is_ours = |source: &Source| {
            !PACKAGES
                .iter()
                .any(|package| source.path.starts_with(package))
        };
        read_house().into_iter().filter(is_ours).collect()
    });
    &LIBRARY
}

#[test]
fn the_whole_house_is_read() {
    let sources = house();
    for path in ["src/lib.rs", "tests/tidy.rs"] {
        assert!(
            sources.iter().any(|source| source.path == path),
            "{path} was not read"
        );
    }
    for Source { path, brackets, .. } in sources {
        let line = brackets.unbalanced;
        assert_eq!(
            line, None,
            "{path}: a bracket without partner: it does not compile, or scan.rs misreads it"
        );
    }
}

#[test]
fn imports_go_down_only() {
    judge(
        Rule::Layers,
        imports::check_layers(library(), ROOMS, TOP_FILES),
    );
}

#[test]
fn the_operating_system_is_named_in_its_places_alone() {
    judge(Rule::System, imports::check_system(house(), SYSTEM_PLACES));
}

#[test]
fn no_file_is_too_long() {
    judge(Rule::Length, words::check_length(house(), MOST_LINES));
}

#[test]
fn no_line_is_too_wide() {
    judge(Rule::Width, words::check_width(house(), MOST_COLUMNS));
}

#[test]
fn unsafe_code_gives_its_reasons() {
    judge(Rule::SafetyComments, safety::check_comments(house()));
}

#[test]
fn unsafe_code_is_in_its_files_alone() {
    judge(
        Rule::UnsafePlaces,
        safety::check_places(house(), UNSAFE_FILES),
    );
}

#[test]
fn each_folder_has_its_essay() {
    judge(Rule::Essays, essays::check_essays(library(), ROOMS));
}

#[test]
fn mod_files_hold_no_logic() {
    judge(Rule::ModFiles, essays::check_logic(house()));
}

#[test]
fn each_stop_of_a_sample_has_its_file() {
    judge(Rule::Stops, essays::check_stops(house(), STOPS));
}

#[test]
fn nothing_is_left_undone() {
    judge(Rule::Leftovers, words::check_leftovers(house()));
}

#[test]
fn tests_that_are_not_run_say_why() {
    judge(Rule::Ignored, words::check_ignored(house()));
}

#[test]
fn only_listed_files_print() {
    judge(
        Rule::Printing,
        words::check_printing(house(), PRINTING_FILES),
    );
}

#[test]
fn the_signal_handler_does_nothing_dangerous() {
    judge(Rule::Handler, words::check_handler(house(), HANDLER_FILES));
}

#[test]
fn an_exception_lets_its_finding_pass_and_no_other() {
    let exception = |path| Exception {
        rule: Rule::Length,
        path,
        found: "lines",
        why: "of a table",
    };
    let finding = |path| Finding::new(path, 7, "600 lines", "500");
    let left = |rule, exceptions: &[Exception]| {
        let left = without_exceptions(rule, vec![finding("a"), finding("b")], exceptions);
        left.iter()
            .map(|finding| format!("{} {}", finding.path, finding.line))
            .collect::<Vec<_>>()
    };
    assert_eq!(left(Rule::Length, &[]), ["a 7", "b 7"]);
    assert_eq!(left(Rule::Length, &[exception("a")]), ["b 7"]);
    assert_eq!(
        left(Rule::Length, &[exception("a"), exception("c")]),
        ["b 7", "c 1"]
    );
    assert_eq!(left(Rule::Stops, &[exception("a")]), ["a 7", "b 7"]);
}
