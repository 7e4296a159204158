//! Thread filters, by Gecko's rules: case-insensitive parts of names, `*`, the empty string and
//! `pid:`.

use crate::common::{Read, Sleeper, isolated, registered_threads_only, wait_until};
use gekkota::process::{ProcessId, profiler_current_process_id};
use gekkota::thread::{ThreadProfilingFeatures as Of, profiler_thread_is_being_profiled};
use gekkota::{
    StartError, StartParams, profiler_ensure_started, profiler_is_active, profiler_start,
    profiler_stop, register_thread,
};

/// Returns the threads of the test that a session with these filters records.
fn selected(filters: &[&str]) -> Vec<String> {
    profiler_start(registered_threads_only().filters(filters.iter().copied())).expect("start");
    let read = Read::of_running();
    let configured = if filters.is_empty() { &["*"] } else { filters };
    assert_eq!(
        read.0["meta"]["configuration"]["threads"],
        serde_json::json!(configured)
    );
    // The same filters apply to a thread that registers later.
    let late = std::thread::spawn(|| {
        register_thread("Late Compositor");
        profiler_thread_is_being_profiled(Of::ANY)
    });
    let is_late_selected = late.join().expect("thread");
    profiler_stop();
    let own = |thread: &serde_json::Value| thread["name"].as_str().map(str::to_owned);
    let mut names: Vec<String> = read.threads().iter().filter_map(own).collect();
    // Every profile has the main thread.
    names.retain(|name| name != "GeckoMain");
    names.extend(is_late_selected.then(|| "Late Compositor".to_owned()));
    names.sort();
    names
}

#[test]
fn filters_select_threads() {
    isolated(|| {
        let _threads = ["Compositor", "DOM Worker", "worker 2", "pid:17"].map(Sleeper::start);
        let all = [
            "Compositor",
            "DOM Worker",
            "Late Compositor",
            "pid:17",
            "worker 2",
        ];
        wait_until("all are registered", || selected(&[]) == all);
        let own: i32 = profiler_current_process_id().to_number();
        assert_eq!(own, std::process::id() as i32);
        let (pid, other) = (format!("pid:{own}"), format!("pid:{}", own + 1));
        let cases: &[(&[&str], &[&str])] = &[
            (&["*"], &all),
            (&[""], &all),
            (&[&pid], &all),
            (&["nothing", &pid], &all),
            (&["Compositor"], &["Compositor", "Late Compositor"]),
            (&["WORKER"], &["DOM Worker", "worker 2"]),
            (
                &["worker", "late"],
                &["DOM Worker", "Late Compositor", "worker 2"],
            ),
            (&["dom worker"], &["DOM Worker"]),
            (&["nothing"], &[]),
            (&["**"], &[]),
            (&[&other, "DOM"], &["DOM Worker"]),
            // Not the id of a process, and so a part of a name.
            (&["pid:17", "DOM"], &["DOM Worker", "pid:17"]),
            (&["pid:1x", "DOM"], &["DOM Worker"]),
        ];
        for (filters, expected) in cases {
            assert_eq!(selected(filters), *expected, "{filters:?}");
        }
    });
}

#[test]
fn start_with_filters_of_other_processes_alone_fails() {
    isolated(|| {
        let others =
            ProcessId::from_number(profiler_current_process_id().to_number() + 1).to_number();
        let params = StartParams::default().filters([format!("pid:{others}"), "pid:1".to_owned()]);
        for start in [profiler_start, |params| profiler_ensure_started(params)] {
            let Err(StartError::BadValue {
                field: "filters",
                value,
                accepted,
            }) = start(params.clone())
            else {
                panic!("the profiler has started");
            };
            assert!(value.contains(&format!("pid:{others}")), "{value}");
            assert!(
                accepted.contains(&format!("pid:{}", std::process::id())),
                "{accepted}"
            );
        }
        assert!(!profiler_is_active());
    });
}
