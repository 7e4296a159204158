//! The public names. Each item has one name, at the crate's root or in one of its modules. Only
//! `gekkota::gecko_profiler` repeats items, under the names of Mozilla's crate.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// The public names of `lib.rs`, by module. `*` stands for the subcategory enums of Gecko's list.
const NAMES: &[(&str, &str)] = &[
    (
        "",
        "AutoProfilerInit AutoProfilerInitBuilder AutoProfilerLabel AutoProfilerMarker \
         AutoProfilerTextMarker AutoProfilerThreadSleep AutoProfilerThreadWake BufferInfo ControlSignals Features \
         FlowId MarkerOptions MarkerStack MarkerTiming Profile ProfilerLayer ProfilerLogger \
         ProfilerMarker ProfilerRecorder ProfilerSession ProfilerTime ProfilingCategoryPair ReadError RescueError \
         SaveError StartError StartParams Started StreamError ThreadGuard UnknownFeature \
         add_marker add_text_marker add_untyped_marker auto_profiler_label \
         auto_profiler_label_dynamic auto_profiler_marker auto_profiler_marker_text callback \
         category context counter dump early_start endpoints event_delay file_io gecko_profiler gecko_profiler_category \
         gecko_profiler_fn_label jit label labeled_future labeled_future_with_dynamic \
         lazy_add_marker marker marker! marker_type memory process profile push profiler_categories profiler_context profiler_control_by_signals \
         profiler_ensure_started profiler_feature_active profiler_features_if_active \
         profiler_features_if_active_and_unpaused profiler_get_available_features \
         profiler_get_buffer_info profiler_get_profile profiler_get_start_params profiler_init \
         profiler_is_active profiler_is_active_and_unpaused profiler_is_paused \
         profiler_is_sampling_paused profiler_pause profiler_pause_sampling profiler_resume \
         profiler_resume_sampling profiler_save_at_exit profiler_save_profile_to_file \
         profiler_shutdown profiler_start profiler_stop profiler_stream_json profiler_thread_sleep \
         profiler_thread_wake register_thread schema script stack thread unregister_thread",
    ),
    (
        "callback",
        "ProfilingState ProfilingStates SamplingState profiler_add_state_change_callback \
         profiler_callback_after_sampling profiler_remove_state_change_callback",
    ),
    ("category", "* HostCategory ProfilingCategory"),
    ("context", "AutoProfilerContext ProfilerContext in_context"),
    (
        "counter",
        "CounterUnit OwnedProfilerCounter OwnedProfilerCounterTotal ProfilerCounter \
         ProfilerCounterTotal profiler_count_bandwidth_bytes",
    ),
    (
        "dump",
        "DumpError DumpSettings ProfilerDump profiler_dump profiler_set_dumps",
    ),
    (
        "event_delay",
        "AutoProfilerEvent EventDelayProbe EventLoopWatch profiler_watch_event_loop",
    ),
    (
        "file_io",
        "AutoProfilerFileIO ProfiledFile add_file_io_marker",
    ),
    ("jit", "CodeRange profiler_register_code_range"),
    (
        "label",
        "IntoLabel Label LabelFlags auto_profiler_label_category_pair \
         auto_profiler_label_category_pair_relevant_for_js \
         auto_profiler_label_dynamic_nonsensitive auto_profiler_label_dynamic_relevant_for_js \
         auto_profiler_label_dynamic_utf16 auto_profiler_label_getter auto_profiler_label_hot \
         auto_profiler_label_method auto_profiler_label_relevant_for_js \
         auto_profiler_label_setter",
    ),
    (
        "endpoints",
        "AskFuture Endpoint EndpointAnswer EndpointError EndpointLimits Question answer \
         answer_async flamegraph_svg gecko pprof_cpu pprof_heap pprof_wall set_endpoint_limits \
         summary_text threads_text",
    ),
    (
        "marker",
        "AutoProfilerFlowMarker MarkerBacktrace add_text_marker_fmt auto_profiler_flow_marker \
         built_in lazy_add_text_marker lazy_add_untyped_marker profiler_marker_flow_only",
    ),
    ("memory", "ProfilerAllocator profiler_heap_snapshot"),
    (
        "process",
        "ExecHandover ExitProfileError Page ProcessId profiler_clear_all_pages profiler_command profiler_current_process_id \
         profiler_env_vars_for_child_process profiler_prepare_exec profiler_received_exit_profile \
         profiler_register_page profiler_set_process_name profiler_set_process_type \
         profiler_set_version profiler_unregister_page profiler_wait_for_children
         profiler_wait_for_sampling_of_children",
    ),
    (
        "profile",
        "DiffOptions ExplainedPart ExplainedStack Explanation Format HotFunction ProfileDiff \
         ProfilerStats SampleWeight SharedProgress SlowRequest SnapshotOptions Symbolicate \
         ThreadSummary TimeKind ViewerRange",
    ),
    ("push", "PushCounts PushError PushSettings Pusher profiler_push"),
    (
        "schema",
        "Deserialize Format GraphColor GraphType JSONWriter Location MarkerField MarkerSchema \
         PayloadFlags Searchable Serialize",
    ),
    (
        "script",
        "AutoProfilerScriptFrame ScriptFunction ScriptImplementation \
         profiler_register_script_code_range profiler_register_script_function \
         profiler_run_interpreter",
    ),
    (
        "stack",
        "CodeAddress FunctionName ProfilerBacktrace StackFeatures StackFrame StackSample \
         SuspendError profiler_capture_backtrace profiler_suspend_and_sample_thread",
    ),
    (
        "thread",
        "AutoSignalStack RegisteredSpawn ThreadId ThreadProfilingFeatures profiler_current_thread_id \
         profiler_is_active_and_thread_is_registered profiler_is_locked_on_current_thread \
         profiler_is_main_thread profiler_main_thread_id \
         profiler_other_thread_is_being_profiled profiler_thread_is_being_profiled \
         profiler_thread_is_sleeping register_thread_once start_hook",
    ),
];

/// Names of two different items: one of a profile, one of a marker's field.
const NAMED_ALIKE: &[&str] = &["Format"];

/// A public name and its item.
#[derive(Debug)]
struct Export {
    module: String,
    name: String,
    item: String,
}

fn source(path: impl AsRef<Path>) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src").join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The code without comments and attributes.
fn code(text: &str) -> String {
    let is_code = |line: &&str| !line.starts_with("//") && !line.starts_with('#');
    let lines = text.lines().map(str::trim).filter(is_code);
    lines.collect::<Vec<_>>().join(" ")
}

/// Splits a list at the commas that are outside of braces.
fn split(list: &str) -> Vec<String> {
    let (mut depth, mut parts) = (0, vec![String::new()]);
    for char in list.chars() {
        match char {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(String::new());
                continue;
            }
            _ => {}
        }
        parts.last_mut().expect("never empty").push(char);
    }
    let trimmed = parts.iter().map(|part| part.trim().to_owned());
    trimmed.filter(|part| !part.is_empty()).collect()
}

/// The exports of a `use` tree.
fn exports(module: &str, prefix: &str, tree: &str, found: &mut Vec<Export>) {
    if let Some((path, list)) = tree.strip_suffix('}').and_then(|tree| tree.split_once('{')) {
        for part in split(list) {
            exports(module, &format!("{prefix}{path}"), &part, found);
        }
        return;
    }
    let (path, name) = match tree.split_once(" as ") {
        Some((path, name)) => (path, name),
        None => (tree, tree.rsplit("::").next().expect("a name")),
    };
    let item = format!("{prefix}{path}");
    found.push(Export {
        module: module.to_owned(),
        name: name.to_owned(),
        item: item.strip_prefix("crate::").unwrap_or(&item).to_owned(),
    });
}

/// The exports of `lib.rs` with its inline modules.
fn exports_of_root() -> Vec<Export> {
    let code = code(&source("lib.rs"));
    let (mut found, mut rest, mut module) = (Vec::new(), code.as_str(), "");
    loop {
        let next = ["pub use ", "pub mod ", "} "].map(|word| rest.find(word).unwrap_or(usize::MAX));
        let at = *next.iter().min().expect("three");
        if at == usize::MAX {
            return found;
        }
        rest = &rest[at..];
        if let Some(after) = rest.strip_prefix("pub use ") {
            let (tree, after) = after.split_once(';').expect("a semicolon");
            exports(module, "", tree, &mut found);
            rest = after;
        } else if let Some(after) = rest.strip_prefix("pub mod ") {
            let end = after.find([' ', ';']).expect("an end");
            let name = &after[..end];
            found.push(Export {
                module: module.to_owned(),
                name: name.to_owned(),
                item: name.to_owned(),
            });
            if after[end..].starts_with(" {") {
                assert_eq!(module, "", "modules of lib.rs do not nest");
                module = name;
            }
            rest = &after[end..];
        } else {
            module = "";
            rest = &rest[1..];
        }
    }
}

fn rust_files(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            rust_files(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}

/// The macros that `macro_export` puts at the root.
fn exported_macros() -> Vec<Export> {
    let mut files = Vec::new();
    rust_files(
        &Path::new(env!("CARGO_MANIFEST_DIR")).join("src"),
        &mut files,
    );
    let mut found = Vec::new();
    for file in files {
        let text = source(file);
        for part in text.split("#[macro_export]").skip(1) {
            let (_, after) = part.split_once("macro_rules! ").expect("a macro");
            let mut name = after.split(' ').next().expect("a name").to_owned();
            // The module `marker` and the macro `marker!` have the same name.
            if name == "marker" {
                name.push('!');
            }
            found.push(Export {
                module: String::new(),
                item: name.clone(),
                name,
            });
        }
    }
    found
}

fn public_exports() -> Vec<Export> {
    let all = exports_of_root().into_iter().chain(exported_macros());
    all.filter(|export| !export.name.starts_with("__") && export.module != "__private")
        .filter(|export| !matches!(export.name.as_str(), "readme" | "fuzzing"))
        .collect()
}

#[test]
fn public_names_match_the_table() {
    let mut names: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for export in public_exports() {
        let of_module = names.entry(export.module.clone()).or_default();
        assert!(of_module.insert(export.name.clone()), "twice: {export:?}");
    }
    let expected = NAMES.iter().map(|(module, names)| {
        let names = names.split_whitespace().map(str::to_owned);
        ((*module).to_owned(), names.collect())
    });
    assert_eq!(names, expected.collect::<BTreeMap<String, BTreeSet<_>>>());
}

#[test]
fn public_items_have_one_name_each() {
    let (mut items, mut leaves) = (BTreeMap::new(), BTreeMap::new());
    for export in public_exports() {
        let own = export.item.rsplit("::").next().expect("a name").to_owned();
        assert_eq!(
            own.trim_start_matches("__"),
            export.name,
            "renamed: {export:?}"
        );
        if let Some(other) = items.insert(export.item.clone(), export.module.clone()) {
            panic!("{export:?} is also in `{other}`");
        }
        let is_checked = own != "*" && !NAMED_ALIKE.contains(&own.as_str());
        if is_checked && let Some(other) = leaves.insert(export.name.clone(), export.module.clone())
        {
            panic!("{export:?} has the name of an item in `{other}`");
        }
    }
}
