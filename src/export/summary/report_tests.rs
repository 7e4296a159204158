use super::*;
use crate::export::options::SampleWeight;
use crate::export::test_profile::TestProfile;
use crate::model::PausedRange;

fn summary(test: &TestProfile, options: &ExportOptions) -> String {
    let mut text = Vec::new();
    write_text(&test.profile, options, &mut text).expect("a vector never fails");
    String::from_utf8(text).expect("UTF-8")
}

/// Returns the lines of a section, without its title, as words.
fn section<'a>(text: &'a str, title: &str) -> Vec<Vec<&'a str>> {
    let start = format!("# {title}\n");
    let (_, rest) = text
        .split_once(&start)
        .unwrap_or_else(|| panic!("no {title} in\n{text}"));
    let lines = rest.lines().take_while(|line| !line.is_empty());
    lines
        .map(|line| line.split_whitespace().collect())
        .collect()
}

fn by_cpu() -> ExportOptions {
    ExportOptions {
        weight: SampleWeight::Cpu,
        ..ExportOptions::default()
    }
}

/// Adds the process's own counter of its CPU time.
fn count_cpu(test: &mut TestProfile, deltas_ns: &[f64]) {
    let sample = |&delta: &f64| crate::model::CounterSample {
        time_ns: 0,
        delta,
        operations: None,
    };
    test.profile.counters.push(crate::model::Counter {
        name: "processCPU".to_owned(),
        category: "CPU".to_owned(),
        samples: deltas_ns.iter().map(sample).collect(),
        ..crate::model::Counter::default()
    });
}

#[test]
fn summary_has_threads_functions_labels_markers_and_losses() {
    let mut test = TestProfile::new(1_000_000);
    test.profile.meta.has_cpu_deltas = true;
    let losses = r#"{"missed_ticks":3,"dropped_samples":0,"truncated_samples":9}"#;
    test.profile
        .meta
        .other
        .push(("losses".to_owned(), losses.to_owned()));
    let main = test.thread("main");
    let busy = test.thread("busy");
    for _ in 0..3 {
        test.sample(busy, &["main", "#request", "work", "+inner"], Some(500_000));
    }
    test.sample(busy, &["main", "work"], Some(500_000));
    test.sample(main, &["main", "0x1f40"], Some(0));
    test.sample(main, &["(truncated)", "~wait"], None);
    test.interval(main, "fast", 0, 10);
    test.interval(main, "slow", 5_000_000, 9_000_000);
    let text = summary(&test, &by_cpu());
    assert!(text.contains("6 in 2 threads of 1 process\n"), "{text}");

    let threads = section(&text, "threads");
    assert_eq!(
        threads[1],
        ["4", "4.00ms", "2.00ms", "2.00ms", "busy", "(101)"]
    );
    assert_eq!(
        threads[2],
        ["2", "2.00ms", "0ns", "2.00ms", "main", "(100)"]
    );
    let by_self = section(&text, "functions by self time");
    assert_eq!(
        by_self[1],
        [
            "1.50ms", "75.0%", "1.50ms", "75.0%", "inner", "app", "request"
        ]
    );
    assert_eq!(
        by_self[2],
        ["500µs", "25.0%", "2.00ms", "100.0%", "work", "app"]
    );
    let by_total = section(&text, "functions by total time");
    // Both have the same time, and one sample of `main` without CPU time counts.
    assert_eq!(
        (by_total[1][4], by_total[2][4], by_total[3][4]),
        ("main", "work", "inner")
    );
    let labels = section(&text, "labels by total time");
    assert_eq!(labels[1], ["1.50ms", "75.0%", "1.50ms", "75.0%", "request"]);
    let markers = section(&text, "slowest markers");
    assert_eq!(markers[1], ["4.00ms", "0.005s", "slow", "main", "(100)"]);
    assert_eq!(markers.len(), 3);
    let losses = section(&text, "losses");
    let losses: Vec<(&str, &str)> = losses[1..].iter().map(|row| (row[0], row[1])).collect();
    assert_eq!(
        losses,
        [("1", "samples"), ("1", "addresses"), ("3", "missed_ticks")]
    );
    assert!(
        text.contains("\nwall      9.00ms (from 0.000s to 0.009s"),
        "{text}"
    );
    assert!(
        text.contains("\ncpu       2.00ms (sampled threads; 0.22 cores)"),
        "{text}"
    );
    assert!(!text.contains("script functions"));
    assert!(text.ends_with("\n# cut\nnames: none shortened\n"), "{text}");
}

#[test]
fn label_is_told_of_a_function_that_is_mostly_in_it() {
    for (in_label, told) in [(2, ""), (3, "request")] {
        let mut test = TestProfile::new(1_000_000);
        test.profile.meta.has_cpu_deltas = true;
        let busy = test.thread("busy");
        for number in 0..4 {
            let label = if number < in_label {
                "#request"
            } else {
                "main"
            };
            test.sample(busy, &["main", label, "work"], Some(500_000));
        }
        let text = summary(&test, &by_cpu());
        let row = section(&text, "functions by self time").swap_remove(1);
        let label = row.get(6).copied().unwrap_or_default();
        assert_eq!((row[4], label), ("work", told), "{text}");
    }
}

#[test]
fn warnings_and_cost_come_from_the_profiler() {
    let mut test = TestProfile::new(1_000_000);
    test.profile.meta.session_ns = Some((0, 10_000_000));
    let mut field = |key: &str, json: &str| {
        let other = &mut test.profile.meta.other;
        other.push((key.to_owned(), json.to_owned()));
    };
    field("losses", r#"{"missed_ticks":9}"#);
    field(
        "warnings",
        r#"[{"name":"a","text":"first\nline"},{"name":"b","text":"second"}]"#,
    );
    field(
        "extra",
        r#"[{"label":"Program","entries":[]},{"label":"Profiler","entries":[
            {"label":"CPU time of the sampler","format":"duration","value":0.5},
            {"label":"Memory of the buffer","format":"bytes","value":2500000},
            {"label":"Time in which threads were stopped","format":"duration","value":0.07}]}]"#,
    );
    let text = summary(&test, &by_cpu());
    let lines = text.lines().filter(|line| line.starts_with("warning "));
    let lines: Vec<&str> = lines.collect();
    assert_eq!(lines, ["warning   first line", "warning   second"]);
    let cost = "\ncost      500µs of CPU time for sampling (5.0% of one core), 2.5MB of memory \
                for the data, threads stopped for 70.0µs\n";
    assert!(text.contains(cost), "{text}");
}

#[test]
fn terminal_has_colors_bars_and_short_lines() {
    let mut test = TestProfile::new(1_000_000);
    let thread = test.thread("main");
    let name = format!("krate::{}::function", ["module"; 30].join("::"));
    test.sample(thread, &["main", "#request", &name], None);
    let json = format!(r#"[{{"name":"a","text":"{}"}}]"#, ["word"; 50].join(" "));
    test.profile.meta.other.push(("warnings".to_owned(), json));
    let with = |columns, has_colors| {
        let look = Look::Terminal {
            columns,
            has_colors,
        };
        summary(&test, &ExportOptions { look, ..by_cpu() })
    };
    for columns in [60, 80, 120, 200] {
        let text = with(columns, false);
        for line in text.lines() {
            assert!(line.chars().count() <= columns.max(80), "{columns}: {line}");
        }
        assert!(!text.contains('\u{1b}') && !text.contains('#'), "{text}");
        assert_eq!(text.contains('█'), columns >= 100, "{text}");
        assert!(text.contains("krate::") && text.contains("::function"));
        assert!(!text.contains(&name), "{text}");
    }
    let colored = with(80, true);
    assert!(
        colored.contains("\u{1b}[1mthreads\u{1b}[0m\n"),
        "{colored:?}"
    );
    assert!(colored.contains("\u{1b}[33mwarning"), "{colored:?}");
    let plain = summary(&test, &by_cpu());
    assert!(
        plain.contains(&name) && plain.contains("# threads\n"),
        "{plain}"
    );
}

#[test]
fn process_counter_gives_the_cpu_time_of_all_threads() {
    let mut test = TestProfile::new(1_000_000);
    test.profile.meta.has_cpu_deltas = true;
    let thread = test.thread("main");
    test.sample(thread, &["main"], Some(1_000_000));
    test.profile.meta.session_ns = Some((-1_000_000, 3_000_000));
    count_cpu(&mut test, &[2e6; 3]);
    let text = summary(&test, &by_cpu());
    let cpu = "cpu       6.00ms (process; 1.50 cores); in samples: 1.00ms";
    assert!(
        text.contains(cpu) && text.contains("from -0.001s to 0.003s"),
        "{text}"
    );
}

#[test]
fn time_of_missed_ticks_is_off_the_processor_and_that_of_pauses_is_not() {
    let off_cpu = |paused: Option<PausedRange>| {
        let mut test = TestProfile::new(1_000_000);
        test.profile.meta.has_cpu_deltas = true;
        let main = test.thread("main");
        test.sample(main, &["main"], Some(0));
        for _ in 0..7 {
            test.sample(main, &["main"], Some(500_000));
        }
        // Half of the ticks were missed.
        let samples = &mut test.profile.threads[0].samples;
        for index in 0..8 {
            samples.update(index, |sample| sample.time_ns = index as i64 * 2_000_000);
        }
        test.profile.processes[0].paused_ranges.extend(paused);
        let text = summary(&test, &by_cpu());
        section(&text, "threads")[1][3].to_owned()
    };
    // 15 ms, of which 3.5 ms on the processor.
    assert_eq!(off_cpu(None), "11.5ms");
    let paused = PausedRange {
        start_ns: Some(4_000_000),
        end_ns: Some(8_000_000),
        reason: "sampling paused".into(),
    };
    assert_eq!(off_cpu(Some(paused)), "7.50ms");
}

#[test]
fn functions_of_the_program_come_before_those_of_other_crates() {
    let mut test = TestProfile::new(1_000_000);
    test.profile.meta.has_cpu_deltas = true;
    test.profile.meta.product = "app".to_owned();
    let main = test.thread("main");
    let stack = [
        "app::main",
        "<app::Tree as other::Walk>::walk",
        "other::read",
        "read",
    ];
    test.sample(main, &stack, Some(1_000_000));
    let text = summary(&test, &by_cpu());
    let own = section(&text, "the program's own functions by total time");
    let names: Vec<_> = own[1..].iter().map(|row| row[4..].concat()).collect();
    assert_eq!(names, ["<app::Treeasother::Walk>::walkapp", "app::mainapp"]);
    assert!(!text.contains("# functions by total time"), "{text}");
}

#[test]
fn summary_warns_of_missing_cpu_time_and_of_missed_ticks() {
    let warnings = |missed: u64, counted_ns: f64| -> Vec<String> {
        let mut test = TestProfile::new(1_000_000);
        test.profile.meta.has_cpu_deltas = true;
        test.profile.meta.session_ns = Some((0, 10_000_000));
        let losses = format!(r#"{{"missed_ticks":{missed}}}"#);
        test.profile.meta.other.push(("losses".to_owned(), losses));
        let main = test.thread("main");
        test.sample(main, &["main"], Some(1_000_000));
        count_cpu(&mut test, &[counted_ns]);
        let text = summary(&test, &by_cpu());
        let lines = text.lines().filter(|line| line.starts_with("warning "));
        lines.map(str::to_owned).collect()
    };
    // Of 10 ms, 2 more than in samples may be the sampler's own.
    assert!(warnings(2, 3_000_000.0).is_empty());
    let [coverage, ticks] = &warnings(3, 4_000_000.0)[..] else {
        panic!("expected two warnings");
    };
    assert!(coverage.contains("only 25.0% of the process's CPU time is in samples"));
    assert!(ticks.contains("3 of about 10 ticks were missed"));
}

#[test]
fn summary_by_wall_time_counts_waiting_samples() {
    let mut test = TestProfile::new(2_000_000);
    let thread = test.thread("main");
    test.sample(thread, &["main", "~wait"], None);
    test.sample(thread, &["main", "work"], None);
    let text = summary(&test, &ExportOptions::default());
    let threads = section(&text, "threads");
    assert_eq!(threads[1], ["2", "4.00ms", "-", "2.00ms", "main", "(100)"]);
    let by_self = section(&text, "functions by self time");
    assert_eq!((by_self[1][4], by_self[1][1]), ("wait", "50.0%"));
    assert_eq!((by_self[2][4], by_self[2][1]), ("work", "50.0%"));
}

#[test]
fn long_profile_is_cut_and_says_so() {
    let mut test = TestProfile::new(1_000_000);
    test.profile.meta.product = "ü".repeat(500);
    for number in 0..200 {
        let thread = test.thread(&format!("\u{1F600}\n{}{number}", "線".repeat(300)));
        for function in 0..10 {
            let name = format!(
                "{}::<{}>::f{function}_{number}",
                "é".repeat(90),
                "ß".repeat(900)
            );
            let (label, script) = (format!("#{name}"), format!("@{name}"));
            test.sample(thread, &["main", &label, &script, &name], None);
        }
        let marker = "標".repeat(100);
        (0..30).for_each(|at| test.interval(thread, &marker, at, 2 * at));
    }
    let text = summary(&test, &ExportOptions::default());
    assert!(
        text.len() <= MAX_BYTES && text.len() > MAX_BYTES / 2,
        "{} bytes",
        text.len()
    );
    let cut = section(&text, "cut")
        .iter()
        .map(|line| line.join(" "))
        .collect::<Vec<_>>();
    assert!(
        cut.iter()
            .any(|line| line.starts_with("threads: ") && line.ends_with("of 200 rows"))
    );
    let functions = cut
        .iter()
        .find(|line| line.starts_with("functions by self time: "));
    assert!(
        functions.is_some_and(|line| line.ends_with("of 2000 rows")),
        "{cut:?}"
    );
    assert_eq!(text, summary(&test, &ExportOptions::default()));
}

#[test]
fn equal_functions_are_in_the_order_of_their_names() {
    let names = ["d", "b", "a", "c"];
    let of_order = |names: &mut dyn Iterator<Item = &&str>| {
        let mut test = TestProfile::new(1_000_000);
        let thread = test.thread("main");
        names.for_each(|name| test.sample(thread, &["main", name], None));
        let text = summary(&test, &ExportOptions::default());
        let rows = section(&text, "functions by self time");
        rows.iter()
            .skip(1)
            .map(|row| row[4].to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(of_order(&mut names.iter()), ["a", "b", "c", "d"]);
    assert_eq!(of_order(&mut names.iter().rev()), ["a", "b", "c", "d"]);
}

#[test]
fn empty_profile_has_a_summary() {
    let test = TestProfile::new(1_000_000);
    let text = summary(&test, &by_cpu());
    assert!(text.starts_with("# profile\nprogram   app\n") && text.contains("0 in 0 threads"));
}

#[test]
fn frames_of_the_runtime_are_folded() {
    let mut test = TestProfile::new(1_000_000);
    let thread = test.thread("main");
    let run_loop = "std::sys::backtrace::__rust_begin_short_backtrace";
    test.sample(thread, &["(truncated)", "start", run_loop, "work"], None);
    test.sample(thread, &["start", run_loop], None);
    let names = |folds_runtime| {
        let options = ExportOptions {
            folds_runtime,
            ..ExportOptions::default()
        };
        let text = summary(&test, &options);
        let losses = section(&text, "losses");
        assert_eq!(losses[1][0], "1");
        let rows = section(&text, "functions by total time");
        let row = |row: &Vec<&str>| (row[2].to_owned(), row[4].to_owned());
        rows[1..].iter().map(row).collect::<Vec<_>>()
    };
    let row = |time: &str, name: &str| (time.to_owned(), name.to_owned());
    let all = [
        row("2.00ms", "start"),
        row("2.00ms", run_loop),
        row("1.00ms", "work"),
    ];
    assert_eq!(names(false), all);
    // A run loop stays where it is innermost.
    assert_eq!(
        names(true),
        [row("1.00ms", run_loop), row("1.00ms", "work")]
    );
}
