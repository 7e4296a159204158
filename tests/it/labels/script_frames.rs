//! Functions of scripts stand where their interpreter runs them, with the line that ran, in every kind of stack; and no
//! misuse of a guard corrupts anything.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::common::{Read, generated_call, isolated, one_loop, work_for_cpu};
use gekkota::label::{
    auto_profiler_label_dynamic_relevant_for_js, auto_profiler_label_relevant_for_js,
};
use gekkota::script::{
    AutoProfilerScriptFrame, ScriptFunction, ScriptImplementation,
    profiler_register_script_code_range, profiler_register_script_function,
};
use gekkota::stack::{
    StackFeatures, StackFrame, profiler_capture_backtrace, profiler_suspend_and_sample_thread,
};
use gekkota::thread::profiler_current_thread_id;
use gekkota::{
    AutoProfilerLabel, Features, MarkerOptions, MarkerStack, ProfilerSession, StartParams,
    add_untyped_marker, auto_profiler_label, gecko_profiler_category,
};
use serde_json::{Value, json};

const SLICE: Duration = Duration::from_millis(100);

fn function(name: &str, line: u32) -> ScriptFunction {
    profiler_register_script_function(name, "rules/test.lua", line, 0)
}

/// A part of a script: how a line is run.
enum Line<'a> {
    Works,
    Calls(&'a Script<'a>),
    CallsTheHost(fn()),
}

struct Script<'a> {
    function: ScriptFunction,
    lines: &'a [(u32, Line<'a>)],
}

/// An interpreter that calls itself for a script's call, as tree walkers do.
#[inline(never)]
fn interpret(script: &Script<'_>) {
    let frame = AutoProfilerScriptFrame::new(script.function);
    for (number, line) in script.lines {
        frame.set_position(*number, 5);
        match line {
            Line::Works => work_of_the_interpreter(),
            Line::Calls(callee) => interpret(callee),
            Line::CallsTheHost(function) => function(),
        }
    }
    std::hint::black_box(());
}

#[inline(never)]
fn work_of_the_interpreter() {
    work_for_cpu(SLICE);
    std::hint::black_box(());
}

#[inline(never)]
fn native_of_the_host() {
    auto_profiler_label_relevant_for_js!("host call", Network);
    auto_profiler_label_dynamic_relevant_for_js!("with", "argument", DOM);
    auto_profiler_label!("inside of the host", Other);
    work_for_cpu(SLICE);
    // Another body than the interpreter's, or the compiler makes one function of the two.
    std::hint::black_box(1);
}

/// An interpreter that runs calls of scripts in a loop, without calling itself, and tells of them by hooks.
#[inline(never)]
fn interpret_in_a_loop() {
    let place = 0u8;
    let address = (&raw const place).addr();
    let outer = in_a_hook(function("loop_outer", 40), address);
    let inner = in_a_hook(function("loop_inner", 50), address);
    work_of_the_interpreter();
    drop(inner);
    drop(outer);
    std::hint::black_box(&place);
}

/// Far down the stack, and back.
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
    work_for_cpu(SLICE);
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

/// Deeper than a sample has room for.
#[inline(never)]
fn recurse_deeply() {
    let outermost = AutoProfilerScriptFrame::new(function("deep", 60));
    let recursive = function("recursive", 61);
    for line in 0..5000 {
        let frame = AutoProfilerScriptFrame::new(recursive);
        frame.set_line(line % 3 + 1);
        std::mem::forget(frame);
    }
    work_for_cpu(SLICE);
    drop(outermost);
    std::hint::black_box(2);
}

fn run_all() {
    let lost = AutoProfilerScriptFrame::new(function("unregistered", 1));
    gekkota::register_thread("scripts");
    let callee = Script {
        function: function("callee", 20),
        lines: &[
            (21, Line::Works),
            (22, Line::CallsTheHost(native_of_the_host)),
            (23, Line::CallsTheHost(interpret_in_a_loop)),
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
    recurse_deeply();
    lost.set_line(1);
    misuse_guards();
    drop(lost);
}

/// A sample's frames, oldest first: what they are called, and their row of the frame table.
fn samples_with_rows(thread: &Value) -> Vec<Vec<(String, Value)>> {
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

/// How many samples had a frame of this name with each line, in it.
fn lines_of(samples: &[Vec<(String, Value)>], location: &str) -> BTreeMap<u64, usize> {
    let mut lines = BTreeMap::new();
    for row in samples
        .iter()
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

/// The parts of this order that are in a stack, as they come.
fn order<'a>(stack: &[(String, Value)], parts: &[&'a str]) -> Vec<&'a str> {
    let part_of =
        |(name, _): &(String, Value)| parts.iter().find(|part| name.contains(**part)).copied();
    stack.iter().filter_map(part_of).collect()
}

/// Some samples fall into the entering and leaving, and more of one that was preempted there.
fn nearly_all(part: usize, whole: usize) -> bool {
    part * 10 > whole * 9
}

#[test]
fn script_frames_are_merged_by_their_place_on_the_stack() {
    isolated(|| {
        let session = ProfilerSession::start(StartParams::default()).expect("start");
        let (keep, _) = wait_in_a_script("sleeps in a script", 3000);
        std::thread::spawn(run_all).join().expect("thread");
        drop(keep);
        let profile = session.finish().expect("profile");
        let read = Read::from_profile(&profile);
        let thread = read.thread("scripts");
        let samples = samples_with_rows(thread);
        let with = |part: &str| -> Vec<&Vec<(String, Value)>> {
            samples
                .iter()
                .filter(|stack| stack.iter().any(|(name, _)| name.contains(part)))
                .collect()
        };

        // Each function is just above the part of the interpreter that runs it, whether that calls itself or not.
        let [top, callee] = ["rules/test.lua:1:1", "callee (rules/test.lua:20)"];
        let (run_all, interpret, work) = (
            "::run_all (in",
            "::interpret (in",
            "::work_of_the_interpreter (in",
        );
        let [host, argument, inside] = ["host call", "with argument", "inside of the host"];
        let [outer, inner, in_a_loop] =
            ["loop_outer (", "loop_inner (", "::interpret_in_a_loop (in"];
        for (innermost, wanted) in [
            (
                host,
                &[
                    run_all,
                    top,
                    interpret,
                    callee,
                    interpret,
                    host,
                    argument,
                    inside,
                    "::native_of_the_host",
                ][..],
            ),
            (
                inner,
                &[
                    run_all, top, interpret, callee, interpret, outer, inner, in_a_loop, work,
                ],
            ),
        ] {
            let stacks = with(innermost);
            assert!(stacks.len() > 30, "{} samples of {innermost}", stacks.len());
            let whole = stacks
                .iter()
                .filter(|stack| order(stack, wanted) == wanted)
                .count();
            assert!(
                nearly_all(whole, stacks.len()),
                "{whole} of {}: {:#?}",
                stacks.len(),
                stacks[0]
            );
        }

        // Lines are those that ran, each for its time.
        let lines = |location: &str| lines_of(&samples, location);
        for (location, wanted) in [(top, &[2, 3, 4][..]), (callee, &[21, 22, 23])] {
            let lines = lines(location);
            assert!(
                wanted.iter().all(|line| lines.get(line) > Some(&30)),
                "{location}: {lines:?}"
            );
            let of_wanted = wanted.iter().filter_map(|line| lines.get(line)).sum();
            assert!(
                nearly_all(of_wanted, lines.values().sum()),
                "{location}: {lines:?}"
            );
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
            json!(after_location(host)),
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

        // More frames than a capture has room for: the oldest of them are there.
        let counts = with("deep (").into_iter().map(|stack| {
            let recursive = |(name, row): &&(String, Value)| {
                name == "recursive (rules/test.lua:61)"
                    && row[4].as_u64().is_some_and(|line| line <= 3)
            };
            stack.iter().filter(recursive).count()
        });
        let full = counts.filter(|&count| count >= 1000).count();
        assert!(
            full > 30,
            "{full} samples with all the frames that there is room for"
        );
        assert!(samples.iter().all(|stack| {
            stack
                .last()
                .is_none_or(|(name, _)| !name.starts_with("recursive ("))
        }));

        // What misuse leaves is what was said: nothing that was popped, and a line where it does no harm.
        let misused = with("label after");
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
        let clean = misused
            .iter()
            .filter(|stack| order(stack, &parts) == ["label after", "outlives its"])
            .count();
        assert!(
            nearly_all(clean, misused.len()),
            "{clean} of {}: {:#?}",
            misused.len(),
            misused[0]
        );
        assert!(with("unregistered (").is_empty());
        assert!(lines("outlives its registration (rules/test.lua:4)").get(&78) > Some(&30));

        // A thread that sleeps is read from outside.
        let asleep = samples_with_rows(read.thread("sleeps in a script"));
        let waits = |(name, row): &(String, Value)| {
            name == "waits (rules/test.lua:70)" && (&row[4], &row[5]) == (&json!(71), &json!(3))
        };
        assert!(read.count("samples_from_outside") > 0);
        let below = |stack: &[(String, Value)]| order(stack, &["waits_below ("]).len();
        let waiting = asleep
            .iter()
            .filter(|stack| stack.iter().any(waits) && below(stack) > 1000)
            .count();
        assert!(
            waiting > 100 && nearly_all(waiting, asleep.len()),
            "{waiting} of {}",
            asleep.len()
        );

        // The summary counts what the interpreter does as the function's.
        let summary = profile.summarize();
        let scripts = &summary
            .iter()
            .find(|thread| thread.name == "scripts")
            .expect("the thread")
            .script_functions;
        let of = |name: &str| {
            scripts
                .iter()
                .find(|function| function.name == name)
                .expect("summarized")
        };
        let (top, callee) = (of(top), of(callee));
        assert!(
            top.self_time > SLICE
                && top.total_time > 4 * SLICE
                && top.total_samples > top.self_samples
        );
        assert!(
            callee.self_time > SLICE && callee.total_time > 2 * SLICE && callee.library.is_none()
        );
        assert!(callee.total_time < top.total_time, "{scripts:?}");
        assert!(
            scripts
                .windows(2)
                .all(|pair| pair[0].self_time >= pair[1].self_time)
        );
    });
}

/// A thread that runs a script and waits in it, so many calls below its outermost function, until the sender is dropped.
fn wait_in_a_script(
    name: &'static str,
    calls: usize,
) -> (std::sync::mpsc::Sender<()>, gekkota::thread::ThreadId) {
    let (keep, until_dropped) = std::sync::mpsc::channel::<()>();
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        gekkota::register_thread(name);
        let frame = AutoProfilerScriptFrame::new(function("waits", 70));
        frame.set_position(71, 3);
        let below = function("waits_below", 72);
        (0..calls).for_each(|_| std::mem::forget(AutoProfilerScriptFrame::new(below)));
        tell.send(profiler_current_thread_id())
            .expect("somebody waits");
        let _ = until_dropped.recv();
        gekkota::unregister_thread();
    });
    (keep, told.recv().expect("its id"))
}

extern "C" fn mark_with_stack() {
    add_untyped_marker(
        "here",
        gecko_profiler_category!(Other),
        MarkerOptions::default().with_stack(MarkerStack::Full),
    );
    std::hint::black_box(());
}

/// The rows of the frame table of a session in which the thread "scripts" runs `body`, by location. The implementation is
/// its name.
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
fn session_without_the_feature_js_records_no_script_frames() {
    isolated(|| {
        let frames = frames_of(Features::STACK_WALK, mark_in_functions_of_all_kinds);
        assert!(frames.contains_key("a label"), "{frames:?}");
        assert!(
            !frames.keys().any(|name| name.contains("rules/test.lua")),
            "{frames:?}"
        );
        // Nor in samples.
        for (features, expected) in [(Features::JS, true), (Features::NONE, false)] {
            let params = StartParams::default().features(features).filters(["*"]);
            let session = ProfilerSession::start(params).expect("start");
            let (keep, _) = wait_in_a_script("sleeps", 0);
            (0..3).for_each(|_| _ = one_loop());
            let read = Read::from_profile(&session.finish().expect("profile"));
            drop(keep);
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
fn code_compiled_from_a_script_has_script_frames() {
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
fn stacks_on_demand_have_them() {
    isolated(|| {
        let script = |function: &str, line, column| StackFrame::Script {
            function: function.to_owned(),
            file: "rules/test.lua".to_owned(),
            line: Some(line),
            column,
        };
        let (keep, sleeper) = wait_in_a_script("sleeps beside a session", 0);
        let bound = Duration::from_secs(10);
        let other = profiler_suspend_and_sample_thread(sleeper, StackFeatures::LABELS, bound)
            .expect("a stack");
        assert_eq!(other.frames(), [script("waits", 71, Some(3))]);
        drop(keep);

        gekkota::register_thread("asks");
        let frame = AutoProfilerScriptFrame::new(function("asks", 80));
        let at_its_beginning = profiler_capture_backtrace().expect("memory");
        frame.set_line(81);
        auto_profiler_label!("inside", Other);
        let own = profiler_capture_backtrace().expect("memory").resolve();
        drop(frame);
        gekkota::unregister_thread();
        assert_eq!(
            at_its_beginning
                .resolve_with(StackFeatures::LABELS)
                .frames(),
            [script("asks", 80, None)]
        );
        let place = |wanted: &StackFrame| own.frames().iter().position(|frame| frame == wanted);
        let label = StackFrame::Label {
            text: "inside".to_owned(),
            is_sensitive: false,
        };
        assert!(
            place(&label).expect("the label")
                < place(&script("asks", 81, None)).expect("the frame")
        );
        assert!(matches!(own.frames()[0], StackFrame::Native { .. }));
        assert!(
            own.to_string().contains(": asks at rules/test.lua:81\n"),
            "{own}"
        );
    });
}

#[test]
fn what_is_in_no_function_is_shown_as_the_viewer_does() {
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
fn names_are_cut_at_a_character_and_equal_ones_are_one() {
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
