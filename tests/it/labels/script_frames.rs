//! Script functions are placed where their interpreter runs them, with the current line, in every
//! kind of stack. Misuse of a guard corrupts nothing.

use std::collections::BTreeMap;

use crate::common::sampled::{WORKING, start_counter, wait_for_samples, work_until_sampled};
use crate::common::{
    LONGEST_WAIT, Read, generated_call, isolated, registered_threads_only, wait_until,
};
use gekkota::label::{
    auto_profiler_label_dynamic_relevant_for_js, auto_profiler_label_relevant_for_js,
};
use gekkota::script::{
    AutoProfilerScriptFrame, ScriptFunction, ScriptImplementation,
    profiler_register_script_code_range, profiler_register_script_function,
    profiler_run_interpreter,
};
use gekkota::stack::{
    StackFeatures, StackFrame, profiler_capture_backtrace, profiler_suspend_and_sample_thread,
};
use gekkota::thread::{ThreadId, profiler_current_thread_id};
use gekkota::{
    AutoProfilerLabel, Features, MarkerOptions, MarkerStack, ProfilerSession, StartParams,
    add_untyped_marker, auto_profiler_label, gecko_profiler_category,
};
use serde_json::{Value, json};

/// Number of samples that each part of the script waits for.
const WANTED_SAMPLES: usize = 40;

/// A sample's frames, oldest first: the location, and the row of the frame table.
type SampleRows = Vec<(String, Value)>;

fn function(name: &str, line: u32) -> ScriptFunction {
    profiler_register_script_function(name, "rules/test.lua", line, 0)
}

/// What a line of a script does.
enum Line<'a> {
    Works,
    Calls(&'a Script<'a>),
    CallsNative(fn()),
}

struct Script<'a> {
    function: ScriptFunction,
    lines: &'a [(u32, Line<'a>)],
}

/// An interpreter that recurses when the script calls a function, as tree walkers do.
#[inline(never)]
fn interpret(script: &Script<'_>) {
    let frame = AutoProfilerScriptFrame::new(script.function);
    for (number, line) in script.lines {
        frame.set_position(*number, 5);
        match line {
            Line::Works => work_in_interpreter(),
            Line::Calls(callee) => interpret(callee),
            Line::CallsNative(function) => function(),
        }
    }
    std::hint::black_box(());
}

#[inline(never)]
fn work_in_interpreter() {
    work_until_sampled(WANTED_SAMPLES);
    std::hint::black_box(file!());
}

#[inline(never)]
fn native_function() {
    auto_profiler_label_relevant_for_js!("native call", Network);
    auto_profiler_label_dynamic_relevant_for_js!("with", "argument", DOM);
    auto_profiler_label!("inside of the call", Other);
    work_until_sampled(WANTED_SAMPLES);
    // The compiler merges functions with equal bodies, so this one differs from the interpreter's.
    std::hint::black_box((file!(), 1));
}

/// An interpreter that runs calls of scripts in a loop, without recursion, and reports them in
/// hooks.
#[inline(never)]
fn interpret_in_a_loop() {
    let local = 0u8;
    let address = (&raw const local).addr();
    let outer = in_a_hook(function("loop_outer", 40), address);
    let inner = in_a_hook(function("loop_inner", 50), address);
    work_in_interpreter();
    drop(inner);
    drop(outer);
    std::hint::black_box(&local);
}

/// Runs an interpreter through a function that the compiler inlines into this one.
#[inline(never)]
fn runs_inlined_interpreter() {
    run_inlined(function("hooked", 90));
    std::hint::black_box((file!(), 3));
}

#[inline(always)]
fn run_inlined(hooked: ScriptFunction) {
    profiler_run_interpreter(|address| {
        let frame = in_a_hook(hooked, address);
        work_in_interpreter();
        drop(frame);
    });
}

/// Enters a script frame from far below the interpreter's stack frame.
#[inline(never)]
fn in_a_hook(function: ScriptFunction, address: usize) -> AutoProfilerScriptFrame {
    let depth = [0u8; 4096];
    std::hint::black_box(&depth);
    AutoProfilerScriptFrame::with_stack_address(function, address)
}

#[inline(never)]
fn misuse_guards() {
    {
        auto_profiler_label!("scope of the forgotten", Other);
        std::mem::forget(AutoProfilerScriptFrame::new(function("forgotten", 1)));
    }
    let first = AutoProfilerScriptFrame::new(function("first", 2));
    let second = AutoProfilerScriptFrame::new(function("second", 3));
    drop(first);
    second.set_line(77);
    let label = AutoProfilerLabel::new("label after", gekkota::gecko_profiler_category!(Other));
    let outlives = AutoProfilerScriptFrame::new(function("outlives its registration", 4));
    second.set_line(78);
    work_until_sampled(WANTED_SAMPLES);
    drop(second);
    drop(label);
    gekkota::unregister_thread();
    outlives.set_line(5);
    drop(outlives);
    gekkota::register_thread("second life");
    let moved = Box::new(AutoProfilerScriptFrame::new(function("moved", 6)));
    moved.set_line(u32::MAX);
    drop(moved);
    std::hint::black_box(());
}

/// Enters more script frames than fit into a sample.
#[inline(never)]
fn recurse_deeply() {
    let outermost = AutoProfilerScriptFrame::new(function("deep", 60));
    let recursive = function("recursive", 61);
    for line in 0..5000 {
        let frame = AutoProfilerScriptFrame::new(recursive);
        frame.set_line(line % 3 + 1);
        std::mem::forget(frame);
    }
    work_until_sampled(WANTED_SAMPLES);
    drop(outermost);
    std::hint::black_box(2);
}

fn run_all() {
    let unregistered = AutoProfilerScriptFrame::new(function("unregistered", 1));
    gekkota::register_thread("scripts");
    let callee = Script {
        function: function("callee", 20),
        lines: &[
            (21, Line::Works),
            (22, Line::CallsNative(native_function)),
            (23, Line::CallsNative(interpret_in_a_loop)),
        ],
    };
    interpret(&Script {
        function: profiler_register_script_function("", "rules/test.lua", 1, 1),
        lines: &[
            (2, Line::Works),
            (3, Line::Calls(&callee)),
            (4, Line::Works),
        ],
    });
    runs_inlined_interpreter();
    recurse_deeply();
    unregistered.set_line(1);
    misuse_guards();
    drop(unregistered);
}

/// Returns the samples of a thread.
fn samples_with_rows(thread: &Value) -> Vec<SampleRows> {
    let table = |name: &str| thread[name]["data"].as_array().expect("a table");
    let (stacks, frames, strings) = (
        table("stackTable"),
        table("frameTable"),
        &thread["stringTable"],
    );
    let stack_of = |sample: &Value| {
        let mut stack = Vec::new();
        let mut next = sample[0].as_u64();
        while let Some(at) = next {
            let row = &stacks[at as usize];
            let frame = &frames[row[1].as_u64().expect("a frame") as usize];
            let location = strings[frame[0].as_u64().expect("a location") as usize].as_str();
            stack.push((location.expect("a string").to_owned(), frame.clone()));
            next = row[0].as_u64();
        }
        stack.reverse();
        stack
    };
    table("samples").iter().map(stack_of).collect()
}

/// Returns the number of samples with a frame at this location, by the frame's line.
fn lines_of(samples: &[&SampleRows], location: &str) -> BTreeMap<u64, usize> {
    let mut lines = BTreeMap::new();
    for row in samples
        .iter()
        .copied()
        .flatten()
        .filter(|(name, _)| name == location)
        .map(|(_, row)| row)
    {
        *lines
            .entry(row[4].as_u64().unwrap_or_default())
            .or_default() += 1;
    }
    lines
}

/// Returns the parts that the stack's frames contain, in the order of the frames.
fn order<'a>(stack: &[(String, Value)], parts: &[&'a str]) -> Vec<&'a str> {
    let part_of =
        |(name, _): &(String, Value)| parts.iter().find(|part| name.contains(**part)).copied();
    stack.iter().filter_map(part_of).collect()
}

#[test]
fn script_frames_are_merged_by_their_position_on_the_stack() {
    isolated(|| {
        start_counter();
        // All samples of the sleeper contain all its frames, since it enters them before the
        // session.
        let (wake, sleeper) = wait_in_a_script("sleeps in a script", 3000);
        let session = ProfilerSession::start(registered_threads_only()).expect("start");
        std::thread::spawn(run_all).join().expect("thread");
        wait_for_samples(sleeper, 110);
        // The sampler reads the stack of a sleeper itself. If it finds the sleeper still running,
        // it sends a signal instead, so this may take some wakes.
        wait_until("the sampler has read a sleeping stack", || {
            wake.send(()).expect("the sleeper waits");
            Read::of_running().count("remote_samples") > 0
        });
        let profile = session.finish().expect("profile");
        drop(wake);
        let read = Read::from_profile(&profile);
        let thread = read.thread("scripts");
        let samples = samples_with_rows(thread);
        let with = |part: &str| -> Vec<&SampleRows> {
            samples
                .iter()
                .filter(|stack| stack.iter().any(|(name, _)| name.contains(part)))
                .collect()
        };
        // Between two pieces of work, some frames may be missing.
        let at_work = with(WORKING);
        let with_work = |part: &str| -> Vec<&SampleRows> {
            let mut stacks = at_work.clone();
            stacks.retain(|stack| stack.iter().any(|(name, _)| name.contains(part)));
            stacks
        };

        // Each function is just above the part of the interpreter that runs it, with recursion and
        // without.
        let [top, callee] = ["rules/test.lua:1:1", "callee (rules/test.lua:20)"];
        let (run_all, interpret, work) = (
            "::run_all (in",
            "::interpret (in",
            "::work_in_interpreter (in",
        );
        let [native, argument, inside] = ["native call", "with argument", "inside of the call"];
        let [outer, inner, in_a_loop] =
            ["loop_outer (", "loop_inner (", "::interpret_in_a_loop (in"];
        for (innermost, wanted) in [
            (
                native,
                &[
                    run_all,
                    top,
                    interpret,
                    callee,
                    interpret,
                    native,
                    argument,
                    inside,
                    "::native_function (in",
                ][..],
            ),
            (
                inner,
                &[
                    run_all, top, interpret, callee, interpret, outer, inner, in_a_loop, work,
                ],
            ),
            (
                "hooked (",
                &[
                    run_all,
                    "::runs_inlined_interpreter (in",
                    "hooked (",
                    "::profiler_run_interpreter",
                    work,
                ],
            ),
        ] {
            let stacks = with_work(innermost);
            assert!(stacks.len() > 30, "{} samples of {innermost}", stacks.len());
            for stack in stacks {
                assert_eq!(order(stack, wanted), wanted, "{stack:#?}");
            }
        }

        // The lines are those that ran.
        let lines = |location: &str| lines_of(&at_work, location);
        for (location, wanted) in [(top, &[2, 3, 4][..]), (callee, &[21, 22, 23])] {
            let lines = lines(location);
            assert!(
                wanted.iter().all(|line| lines.get(line) > Some(&30)),
                "{location}: {lines:?}"
            );
            assert_eq!(lines.len(), wanted.len(), "{location}: {lines:?}");
        }

        // Location, relevant for JS, window, implementation, line, column, category, subcategory.
        let row_of = |name: &str| {
            let named = |(location, _): &&(String, Value)| location == name;
            samples
                .iter()
                .flatten()
                .find(named)
                .unwrap_or_else(|| panic!("no frame {name}"))
                .1
                .clone()
        };
        let after_location = |name: &str| row_of(name).as_array().expect("a row")[1..].to_vec();
        let at_line_2 = samples
            .iter()
            .flatten()
            .find(|(name, row)| name == top && row[4] == 2)
            .expect("line 2");
        assert_eq!(
            json!(at_line_2.1.as_array().expect("a row")[1..]),
            json!([true, 0, null, 2, 5, 4, 4])
        );
        assert_eq!(
            json!(after_location(native)),
            json!([true, 0, null, null, null, 6, 0])
        );
        assert_eq!(
            json!(after_location(argument)),
            json!([true, 0, null, null, null, 8, 0])
        );
        assert_eq!(
            json!(after_location(inside)),
            json!([false, 0, null, null, null, 1, 0])
        );

        // With more frames than fit into a capture, the sample contains the oldest of them.
        let counts = with("deep (").into_iter().map(|stack| {
            let recursive = |(name, row): &&(String, Value)| {
                name == "recursive (rules/test.lua:61)"
                    && row[4].as_u64().is_some_and(|line| line <= 3)
            };
            stack.iter().filter(recursive).count()
        });
        let full = counts.filter(|&count| count >= 1000).count();
        assert!(full > 30, "{full} samples with as many frames as fit");
        assert!(samples.iter().all(|stack| {
            stack
                .last()
                .is_none_or(|(name, _)| !name.starts_with("recursive ("))
        }));

        // After misuse, no popped frame is left, and a line is set where that is harmless.
        let misused = with_work("label after");
        assert!(misused.len() > 30, "{}", misused.len());
        let parts = [
            "unregistered (",
            "forgotten (",
            "first (",
            "second (",
            "deep (",
            "label after",
            "outlives its",
        ];
        for stack in misused {
            let found = order(stack, &parts);
            assert_eq!(found, ["label after", "outlives its"], "{stack:#?}");
        }
        assert!(with("unregistered (").is_empty());
        assert!(lines("outlives its registration (rules/test.lua:4)").get(&78) > Some(&30));

        // The sampler reads the stack of a sleeping thread itself.
        let asleep = samples_with_rows(read.thread("sleeps in a script"));
        let waits = |(name, row): &(String, Value)| {
            name == "waits (rules/test.lua:70)" && (&row[4], &row[5]) == (&json!(71), &json!(3))
        };
        assert!(read.count("remote_samples") > 0);
        let below = |stack: &[(String, Value)]| order(stack, &["waits_below ("]).len();
        let waiting = asleep
            .iter()
            .filter(|stack| stack.iter().any(waits) && below(stack) > 1000)
            .count();
        assert!(
            waiting > 100 && waiting == asleep.len(),
            "{waiting} of {}",
            asleep.len()
        );

        // The summary attributes the interpreter's work to the script function.
        let summary = profile.summarize();
        let scripts = &summary
            .iter()
            .find(|thread| thread.name == "scripts")
            .expect("the thread")
            .script_functions;
        let summary_of = |name: &str| {
            scripts
                .iter()
                .find(|function| function.name == name)
                .expect("the function")
        };
        let (top, callee) = (summary_of(top), summary_of(callee));
        // Lines 2 and 4 of the top level work, as do lines 21 and 22 of the callee, and the loop
        // that its line 23 calls.
        assert!(
            top.self_samples > 2 * 30 && top.total_samples > 5 * 30,
            "{scripts:?}"
        );
        assert!(
            callee.self_samples > 2 * 30 && callee.total_samples > 3 * 30,
            "{scripts:?}"
        );
        for function in [top, callee] {
            assert!(!function.self_time.is_zero() && function.self_time < function.total_time);
            assert!(function.self_samples < function.total_samples && function.library.is_none());
        }
        assert!(callee.total_time < top.total_time, "{scripts:?}");
        assert!(
            scripts
                .windows(2)
                .all(|pair| pair[0].self_time >= pair[1].self_time)
        );
    });
}

/// Starts a thread that runs a script and waits in it, `calls` calls below its outermost function,
/// until the sender is dropped. Each message wakes the thread for a moment.
fn wait_in_a_script(name: &'static str, calls: usize) -> (std::sync::mpsc::Sender<()>, ThreadId) {
    let (wake, wakes) = std::sync::mpsc::channel::<()>();
    let (send_id, id) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        gekkota::register_thread(name);
        let frame = AutoProfilerScriptFrame::new(function("waits", 70));
        frame.set_position(71, 3);
        let below = function("waits_below", 72);
        (0..calls).for_each(|_| std::mem::forget(AutoProfilerScriptFrame::new(below)));
        send_id
            .send(profiler_current_thread_id())
            .expect("the test waits for the id");
        wakes.iter().for_each(drop);
        gekkota::unregister_thread();
    });
    (wake, id.recv().expect("the thread's id"))
}

extern "C" fn mark_with_stack() {
    add_untyped_marker(
        "here",
        gecko_profiler_category!(Other),
        MarkerOptions::default().with_stack(MarkerStack::Full),
    );
    std::hint::black_box(());
}

/// Returns the rows of the frame table, by location, of a session in which the thread "scripts"
/// runs `body`. In the rows, the implementation is a name instead of an index.
fn frames_of(features: Features, body: impl FnOnce()) -> BTreeMap<String, Value> {
    let session = ProfilerSession::start(StartParams::default().features(features).filters(["*"]))
        .expect("start");
    gekkota::register_thread("scripts");
    body();
    gekkota::unregister_thread();
    let read = Read::from_profile(&session.finish().expect("profile"));
    let thread = read.thread("scripts");
    let string = |index: &Value| {
        index.as_u64().map(|index| {
            let string = thread["stringTable"][index as usize].as_str();
            string.expect("a string").to_owned()
        })
    };
    let rows = thread["frameTable"]["data"].as_array().expect("frames");
    let by_location = rows.iter().map(|row| {
        let mut row = row.as_array().expect("a row").clone();
        if let Some(implementation) = row.get_mut(3) {
            *implementation = json!(string(implementation));
        }
        let location = string(&row.remove(0)).expect("a location");
        (location, Value::from(row))
    });
    by_location.collect()
}

fn mark_in_functions_of_all_kinds() {
    let _page = AutoProfilerScriptFrame::new(function("on_a_page", 1).with_inner_window_id(7));
    let baseline =
        function("baseline", 2).with_implementation(ScriptImplementation::BaselineInterpreter);
    let _baseline = AutoProfilerScriptFrame::new(baseline);
    let optimized = function("optimized", 3).with_implementation(ScriptImplementation::Optimized);
    let _optimized = AutoProfilerScriptFrame::new(optimized);
    let category = gecko_profiler_category!(Network);
    let _other = AutoProfilerScriptFrame::new(optimized.with_category(category));
    auto_profiler_label!("a label", Other);
    mark_with_stack();
    let plain = function("optimized", 3);
    assert_ne!(optimized, plain);
    assert_eq!(
        optimized.with_implementation(ScriptImplementation::Interpreter),
        plain
    );
}

#[test]
fn script_frames_have_implementation_category_and_page() {
    isolated(|| {
        let frames = frames_of(Features::default_set(), mark_in_functions_of_all_kinds);
        let row = |location: &str| frames.get(location).unwrap_or_else(|| panic!("{frames:?}"));
        // Relevant for JS, window, implementation, line, column, category, subcategory.
        assert_eq!(
            *row("on_a_page (rules/test.lua:1)"),
            json!([true, 7, null, 1, null, 4, 4])
        );
        assert_eq!(
            *row("baseline (rules/test.lua:2)"),
            json!([true, 0, "blinterp", 2, null, 4, 5])
        );
        // The rows of the two functions with this location differ in their category.
        assert_eq!(
            *row("optimized (rules/test.lua:3)"),
            json!([true, 0, "ion", 3, null, 6, 0])
        );
    });
}

#[test]
fn session_without_js_feature_records_no_script_frames() {
    isolated(|| {
        let frames = frames_of(Features::STACK_WALK, mark_in_functions_of_all_kinds);
        assert!(frames.contains_key("a label"), "{frames:?}");
        assert!(
            !frames.keys().any(|name| name.contains("rules/test.lua")),
            "{frames:?}"
        );
        // The same holds for samples.
        for (features, expected) in [(Features::JS, true), (Features::NONE, false)] {
            let params = StartParams::default().features(features).filters(["*"]);
            let session = ProfilerSession::start(params).expect("start");
            let (wake, sleeper) = wait_in_a_script("sleeps", 0);
            wait_for_samples(sleeper, 3);
            let read = Read::from_profile(&session.finish().expect("profile"));
            drop(wake);
            let has_script = read.samples("sleeps").iter().any(|sample| {
                sample
                    .stack
                    .iter()
                    .any(|frame| frame.contains("rules/test.lua"))
            });
            assert_eq!(has_script, expected, "{features:?}");
        }
    });
}

#[test]
fn code_compiled_from_a_script_is_shown_as_script_frame() {
    isolated(|| {
        let (memory, call) = generated_call();
        let function = profiler_register_script_function("compiled", "rules/test.lua", 90, 4)
            .with_implementation(ScriptImplementation::Optimized);
        let _range = profiler_register_script_code_range(memory.as_ptr(), memory.len(), function);
        let location = "compiled (rules/test.lua:90:4)";
        let frames = frames_of(Features::default_set(), || call(mark_with_stack));
        assert_eq!(
            frames.get(location),
            Some(&json!([true, 0, "ion", 90, 4, 4, 7])),
            "{frames:?}"
        );
        let frames = frames_of(Features::STACK_WALK, || call(mark_with_stack));
        assert!(
            frames.contains_key("compiled (in [jit])") && !frames.contains_key(location),
            "{frames:?}"
        );
    });
}

#[test]
fn stacks_on_demand_contain_script_frames() {
    isolated(|| {
        let script = |function: &str, line, column| StackFrame::Script {
            function: function.to_owned(),
            file: "rules/test.lua".to_owned(),
            line: Some(line),
            column,
        };
        let (wake, sleeper) = wait_in_a_script("sleeps without a session", 0);
        let other =
            profiler_suspend_and_sample_thread(sleeper, StackFeatures::LABELS, LONGEST_WAIT)
                .expect("a stack");
        assert_eq!(other.frames(), [script("waits", 71, Some(3))]);
        drop(wake);

        gekkota::register_thread("asks");
        let frame = AutoProfilerScriptFrame::new(function("asks", 80));
        let at_beginning = profiler_capture_backtrace().expect("memory");
        frame.set_line(81);
        auto_profiler_label!("inside", Other);
        let own = profiler_capture_backtrace().expect("memory").resolve();
        drop(frame);
        gekkota::unregister_thread();
        assert_eq!(
            at_beginning.resolve_with(StackFeatures::LABELS).frames(),
            [script("asks", 80, None)]
        );
        let position = |wanted: &StackFrame| own.frames().iter().position(|frame| frame == wanted);
        let label = StackFrame::Label {
            text: "inside".to_owned(),
            is_sensitive: false,
        };
        assert!(
            position(&label).expect("the label")
                < position(&script("asks", 81, None)).expect("the frame")
        );
        assert!(matches!(own.frames()[0], StackFrame::Native { .. }));
        assert!(
            own.to_string().contains(": asks at rules/test.lua:81\n"),
            "{own}"
        );
    });
}

#[test]
fn code_outside_of_functions_is_named_root_scope() {
    isolated(|| {
        gekkota::register_thread("runs a file");
        let frame = AutoProfilerScriptFrame::new(profiler_register_script_function(
            "",
            "rules/top.lua",
            0,
            0,
        ));
        frame.set_line(3);
        let stack = profiler_capture_backtrace()
            .expect("memory")
            .resolve_with(StackFeatures::LABELS);
        drop(frame);
        gekkota::unregister_thread();
        assert!(
            matches!(&stack.frames()[0], StackFrame::Script { function, .. } if function.is_empty())
        );
        assert_eq!(stack.names()[0][0].name, "(root scope)");
        assert_eq!(stack.to_string(), "   0: (root scope) at rules/top.lua:3\n");
    });
}

#[test]
fn names_are_cut_at_a_character_and_equal_functions_are_one() {
    isolated(|| {
        let long = format!("x{}", "é".repeat(400));
        let cut = &long[..511];
        let function = profiler_register_script_function(&long, &long, 7, 8);
        assert_eq!(
            (
                function.name(),
                function.file(),
                function.line(),
                function.column()
            ),
            (cut, cut, 7, 8)
        );
        assert_eq!(profiler_register_script_function(cut, cut, 7, 8), function);
        assert_ne!(profiler_register_script_function(cut, cut, 7, 9), function);
        assert_eq!(
            format!("{:?}", self::function("f", 3)),
            "ScriptFunction(\"f\" at rules/test.lua:3:0)"
        );
    });
}
