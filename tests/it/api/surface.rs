//! The same application compiles and runs with and without the profiler, which
//! `cargo test --no-default-features` leaves out.

mod built_in;
#[cfg(any(feature = "log", feature = "metrics", feature = "tracing"))]
mod interop;
mod labels;
mod markers;
mod names;

use std::time::Duration;

use crate::common::isolated;
use gekkota::callback::{
    ProfilingState, ProfilingStates, SamplingState, profiler_add_state_change_callback,
    profiler_callback_after_sampling, profiler_remove_state_change_callback,
};
use gekkota::event_delay::{
    AutoProfilerEvent, EventDelayProbe, EventLoopWatch, profiler_watch_event_loop,
};
use gekkota::file_io::{AutoProfilerFileIO, ProfiledFile, add_file_io_marker};
use gekkota::jit::{CodeRange, profiler_register_code_range};
use gekkota::label::{
    auto_profiler_label_dynamic_relevant_for_js, auto_profiler_label_relevant_for_js,
};
use gekkota::process::{
    ExitProfileError, Page, ProcessId, profiler_clear_all_pages, profiler_current_process_id,
    profiler_env_vars_for_child_process, profiler_received_exit_profile, profiler_register_page,
    profiler_set_process_name, profiler_set_process_type, profiler_set_version,
    profiler_unregister_page,
};
use gekkota::profile::{Format, SharedProgress, SnapshotOptions, Symbolicate};
use gekkota::script::{
    AutoProfilerScriptFrame, ScriptFunction, profiler_register_script_function,
    profiler_run_interpreter,
};
use gekkota::stack::{
    CodeAddress, StackFeatures, StackFrame, SuspendError, profiler_capture_backtrace,
    profiler_suspend_and_sample_thread,
};
use gekkota::thread::{
    ThreadId, ThreadProfilingFeatures, profiler_current_thread_id,
    profiler_is_active_and_thread_is_registered, profiler_is_locked_on_current_thread,
    profiler_is_main_thread, profiler_main_thread_id, profiler_other_thread_is_being_profiled,
    profiler_thread_is_being_profiled, profiler_thread_is_sleeping, register_thread_once,
    start_hook,
};
use gekkota::{
    AutoProfilerInit, AutoProfilerLabel, AutoProfilerTextMarker, AutoProfilerThreadSleep,
    AutoProfilerThreadWake, BufferInfo, ControlSignals, Features, MarkerOptions, MarkerTiming,
    Profile, ProfilerSession, ProfilerTime, ProfilingCategoryPair, SaveError, StartError,
    StartParams, StreamError, ThreadGuard, add_text_marker, add_untyped_marker,
    auto_profiler_label, auto_profiler_label_dynamic, auto_profiler_marker_text, category,
    gecko_profiler_category, profiler_control_by_signals, profiler_ensure_started,
    profiler_feature_active, profiler_features_if_active, profiler_features_if_active_and_unpaused,
    profiler_get_available_features, profiler_get_buffer_info, profiler_get_profile,
    profiler_get_start_params, profiler_init, profiler_is_active, profiler_is_active_and_unpaused,
    profiler_is_paused, profiler_is_sampling_paused, profiler_pause, profiler_pause_sampling,
    profiler_resume, profiler_resume_sampling, profiler_save_profile_to_file, profiler_shutdown,
    profiler_start, profiler_stop, profiler_stream_json, profiler_thread_sleep,
    profiler_thread_wake, register_thread, unregister_thread,
};

// With the profiler, the programs that the tests start would all start it before `main`.
#[cfg(not(has_profiler))]
gekkota::early_start!();

fn use_every_recording_function() {
    profiler_set_process_name("surface", Some("example.org"));
    profiler_set_process_type("surface");
    profiler_set_version("1.2.3");
    profiler_register_page(
        Page::new(3, "page")
            .tab_id(1)
            .embedder(2)
            .private_browsing(true),
    );
    assert_eq!(Page::new(3, "page").inner_window_id(), 3);
    profiler_unregister_page(3);
    profiler_clear_all_pages();
    register_thread("surface");
    register_thread_once("again");
    start_hook("again")();
    let _guard = ThreadGuard::register("surface");
    auto_profiler_label!("label", Other);
    auto_profiler_label_dynamic!("label", "dynamic", JavaScript, Parsing);
    auto_profiler_marker_text!(
        "scope",
        gecko_profiler_category!(Network),
        MarkerOptions::default(),
        "text"
    );
    let category = ProfilingCategoryPair::Other(Some(category::Other::Profiling));
    let _label = AutoProfilerLabel::new("label", category);
    let timing =
        MarkerTiming::interval_until_now_from(ProfilerTime::now().subtract_microseconds(5.0));
    add_untyped_marker(
        "untyped",
        category,
        MarkerOptions::default().with_timing(timing),
    );
    add_text_marker("text", category, MarkerTiming::instant_now().into(), "text");
    let _marker = AutoProfilerTextMarker::new("scope", category, MarkerOptions::default(), "text");
    labels::categories();
    labels::every_form();
    labels::simple_forms();
    labels::labeled_futures();
    markers::every_form();
    #[cfg(feature = "log")]
    interop::log_a_record();
    #[cfg(feature = "metrics")]
    interop::change_metrics();
    #[cfg(feature = "tracing")]
    interop::enter_a_span();
    profiler_thread_sleep();
    profiler_thread_wake();
    {
        let _asleep = AutoProfilerThreadSleep::new();
        let _awake = AutoProfilerThreadWake::new();
        assert!(!profiler_thread_is_sleeping());
    }
    assert!(!profiler_thread_is_sleeping());
    let code: CodeRange = profiler_register_code_range(0x1000 as *const u8, 16, "generated");
    drop(code);
    profiler_register_code_range(std::ptr::null(), 0, "no code").keep();
    run_a_script();
    let all = ThreadProfilingFeatures::CPU_UTILIZATION | ThreadProfilingFeatures::MARKERS;
    assert!(
        all.combined(ThreadProfilingFeatures::SAMPLING)
            .intersects(ThreadProfilingFeatures::ANY)
    );
    let is_profiled = profiler_thread_is_being_profiled(all);
    assert_eq!(
        is_profiled,
        profiler_is_active() && profiler_is_active_and_thread_is_registered()
    );
    assert_eq!(
        profiler_other_thread_is_being_profiled(ThreadId::UNSPECIFIED, all),
        is_profiled
    );
    assert!(!profiler_is_locked_on_current_thread() && !profiler_is_main_thread());
    assert_eq!(profiler_main_thread_id().is_specified(), cfg!(has_profiler));
    assert_eq!(
        profiler_current_process_id().to_number(),
        std::process::id() as i32
    );
    access_files();
    let _event = AutoProfilerEvent::queued_at(ProfilerTime::now());
    drop(AutoProfilerEvent::new());
    let watch: EventLoopWatch = profiler_watch_event_loop(|probe: EventDelayProbe| probe.run());
    drop(watch);
    profiler_watch_event_loop(drop).keep();
    unregister_thread();
}

fn access_files() {
    use std::io::{Read as _, Seek as _, Write as _};
    // The profiler's feature is off, or the profiler.
    assert!(AutoProfilerFileIO::new("stat", "test", "a file").is_none());
    let now = ProfilerTime::now();
    add_file_io_marker("stat", "test", "a file", now, now);
    let mut file = ProfiledFile::new(std::io::Cursor::new(vec![0; 2]), "memory");
    file.write_all(b"abc").expect("memory");
    file.rewind().expect("memory");
    let mut text = String::new();
    assert_eq!(file.read_to_string(&mut text).expect("memory"), 3);
    assert_eq!(file.into_inner().into_inner(), b"abc");
    assert!(ProfiledFile::open("/no such file").is_err());
}

fn run_a_script() {
    auto_profiler_label_relevant_for_js!("label", JavaScript);
    auto_profiler_label_dynamic_relevant_for_js!("label", "dynamic", JavaScript, Parsing);
    let _label = AutoProfilerLabel::relevant_for_js("label", gecko_profiler_category!(DOM));
    let _label = AutoProfilerLabel::relevant_for_js_with_dynamic(
        "label",
        "dynamic",
        gecko_profiler_category!(DOM),
    );
    let function: ScriptFunction = profiler_register_script_function("f", "a.script", 3, 4);
    let known = (
        function.name(),
        function.file(),
        function.line(),
        function.column(),
    );
    assert_eq!(
        known,
        if cfg!(has_profiler) {
            ("f", "a.script", 3, 4)
        } else {
            ("", "", 0, 0)
        }
    );
    let outer = AutoProfilerScriptFrame::new(function);
    outer.set_line(5);
    let local = 0u8;
    let inner = AutoProfilerScriptFrame::with_stack_address(function, (&raw const local).addr());
    inner.set_position(6, 7);
    let own = profiler_capture_backtrace().map(|backtrace| backtrace.resolve());
    let frames = own.iter().flat_map(|stack| stack.frames());
    let lines: Vec<_> = frames
        .filter_map(|frame| match frame {
            StackFrame::Script { line, column, .. } => Some((*line, *column)),
            _ => None,
        })
        .collect();
    assert_eq!(lines.is_empty(), !cfg!(has_profiler));
    assert!(lines.is_empty() || lines == [(Some(6), Some(7)), (Some(5), None)]);
    let address = profiler_run_interpreter(|address| address);
    assert!(address < (&raw const local).addr(), "the stack grows down");
}

fn capture_stacks() {
    let missing_thread = ThreadId::from_number(i32::MAX);
    // No answer depends on the timeout.
    let timeout = Duration::from_secs(120);
    let results = [
        profiler_suspend_and_sample_thread(ThreadId::UNSPECIFIED, StackFeatures::FULL, timeout),
        profiler_suspend_and_sample_thread(
            profiler_current_thread_id(),
            StackFeatures::NATIVE,
            timeout,
        ),
        profiler_capture_backtrace()
            .map(|backtrace| backtrace.resolve())
            .ok_or(SuspendError::Unsupported),
        profiler_suspend_and_sample_thread(
            missing_thread,
            StackFeatures::LABELS | StackFeatures::LEAF,
            timeout,
        ),
    ];
    if cfg!(has_profiler) {
        for stack in results[..3]
            .iter()
            .map(|result| result.as_ref().expect("the own stack"))
        {
            assert!(
                matches!(stack.frames()[0], StackFrame::Native { .. }) && !stack.is_truncated()
            );
            assert_eq!(
                (stack.thread(), stack.names().len()),
                (profiler_current_thread_id(), stack.frames().len())
            );
            assert!(
                stack.time() <= ProfilerTime::now() && stack.to_string().contains("capture_stacks")
            );
        }
        assert!(
            matches!(&results[3], Err(SuspendError::Gone { thread }) if *thread == missing_thread)
        );
    } else {
        assert!(
            results
                .iter()
                .all(|result| matches!(result, Err(SuspendError::Unsupported)))
        );
        assert_eq!(profiler_current_thread_id(), ThreadId::UNSPECIFIED);
    }
}

/// Pauses and resumes with callbacks, and uses every function that reports the state.
fn pause_and_query() {
    use std::sync::atomic::{AtomicU64, Ordering};
    static CALLS: AtomicU64 = AtomicU64::new(0);
    let active = profiler_is_active();
    CALLS.store(0, Ordering::Relaxed);
    let all: ProfilingStates =
        ProfilingState::Pausing | ProfilingState::Resumed | ProfilingStates::NONE;
    profiler_add_state_change_callback(all, |_| _ = CALLS.fetch_add(1, Ordering::Relaxed), 5);
    profiler_pause();
    assert_eq!(
        (profiler_is_paused(), profiler_is_active_and_unpaused()),
        (active, false)
    );
    profiler_resume();
    profiler_pause_sampling();
    assert_eq!(
        (
            profiler_is_sampling_paused(),
            profiler_is_active_and_unpaused()
        ),
        (active, active)
    );
    profiler_resume_sampling();
    profiler_remove_state_change_callback(5);
    assert_eq!(CALLS.load(Ordering::Relaxed), if active { 2 } else { 0 });
    let (send, receive) = std::sync::mpsc::channel();
    assert_eq!(
        profiler_callback_after_sampling(move |state| _ = send.send(state)),
        active
    );
    assert_eq!(
        receive.recv().ok(),
        active.then_some(SamplingState::SamplingCompleted)
    );
    let features = profiler_features_if_active();
    assert_eq!(
        (features.is_some(), features),
        (active, profiler_features_if_active_and_unpaused())
    );
    assert_eq!(features.is_some_and(profiler_feature_active), active);
    assert_eq!(profiler_get_available_features(), Features::available());
    let info: Option<BufferInfo> = profiler_get_buffer_info();
    assert_eq!(
        info.map(|info| info.capacity_bytes),
        active.then_some(1 << 20)
    );
    assert_eq!(
        profiler_get_start_params().map(|params| params.features),
        features
    );
    let again = profiler_get_start_params().unwrap_or_default();
    assert_eq!(active && profiler_ensure_started(again).is_ok(), active);
}

fn receive_exit_profile() {
    let result = profiler_received_exit_profile("{}");
    let expected = match cfg!(has_profiler) {
        // Without a session the text is not read.
        true if !profiler_is_active() => ExitProfileError::Inactive,
        true => ExitProfileError::NotAProfile { lacks: "meta" },
        false => ExitProfileError::Unsupported,
    };
    assert!(result.is_err_and(|error| error == expected && !error.to_string().is_empty()));
}

fn write_in_every_way(profile: &Profile) {
    let mut text = Vec::new();
    profile
        .write(Format::Gecko, &mut text)
        .expect("a vector never fails");
    let progress = SharedProgress::new();
    let options = SnapshotOptions::default()
        .symbolicate(Symbolicate::No)
        .progress(progress.clone());
    let options = options.since(ProfilerTime::now()).max_rows(1000);
    assert_eq!(
        (options.max_rows, options.progress.as_ref()),
        (1000, Some(&progress))
    );
    profile
        .write_with(Format::Gecko, &mut text, &options)
        .expect("a vector never fails");
    assert_eq!(
        (progress.proportion(), progress.last_location()),
        (1.0, "done")
    );
    assert!(profile.save("/nonexistent-folder/p.json").is_err());
    assert!(
        profile
            .save_with("/nonexistent-folder/p.json", &options)
            .is_err()
    );
    assert!(!profile.summarize().is_empty() && !profile.sampler_counts().is_empty());
}

#[test]
fn every_public_function_works_with_and_without_profiler() {
    isolated(|| {
        // Before a start and after a stop, these functions do nothing.
        use_every_recording_function();
        pause_and_query();
        capture_stacks();
        receive_exit_profile();
        profiler_stop();
        profiler_shutdown();
        assert!(!profiler_is_active() && profiler_get_profile().is_none());
        assert!(matches!(
            profiler_save_profile_to_file("/tmp/none.json"),
            Err(SaveError::Inactive)
        ));
        let mut out = Vec::new();
        let progress = SharedProgress::new();
        let result = profiler_stream_json(
            &mut out,
            &SnapshotOptions::default().progress(progress.clone()),
        );
        assert_eq!(
            progress.proportion(),
            1.0,
            "writing has ended, with and without the profiler"
        );
        assert!(matches!(result, Err(StreamError::Inactive)) && out.is_empty());

        let off = [("MOZ_PROFILER_STARTUP".to_owned(), String::new())];
        assert_eq!(
            profiler_env_vars_for_child_process(),
            if cfg!(has_profiler) { &off[..] } else { &[] }
        );
        let signals = ControlSignals::new()
            .start_signal(10)
            .stop_signal(12)
            .folder("/tmp");
        let controlled = profiler_control_by_signals(signals.clone());
        assert_eq!(
            controlled,
            if cfg!(has_profiler) {
                Ok(())
            } else {
                Err(StartError::Unsupported)
            }
        );
        assert!(profiler_control_by_signals(signals.stop_signal(10)).is_err());
        profiler_shutdown();

        let _profiler = AutoProfilerInit::new();
        profiler_init();
        let params = StartParams::new()
            .capacity_bytes(1 << 20)
            .interval(Duration::from_millis(2))
            .duration(Duration::from_secs(60))
            .active_tab_id(7)
            .control_signals(ControlSignals::new())
            .filters(["surface", "m"]);
        let params = params.features(Features::STACK_WALK | Features::CPU);
        match ProfilerSession::start(params.clone()) {
            Ok(session) => {
                assert!(profiler_is_active());
                use_every_recording_function();
                pause_and_query();
                write_in_every_way(&session.snapshot().expect("active"));
                // The new session does not belong to this guard.
                profiler_start(params).expect("start");
                assert!(matches!(session.snapshot(), Err(StreamError::Inactive)));
                drop(session);
                assert!(profiler_is_active());
                profiler_stream_json(&mut out, &SnapshotOptions::default())
                    .expect("a vector never fails");
                assert!(profiler_get_profile().is_some());
                profiler_stop();
            }
            Err(error) if cfg!(has_profiler) => panic!("{error}"),
            Err(error) => {
                assert_eq!(error, StartError::Unsupported);
                assert!(error.to_string().contains("this build contains none"));
                assert_eq!(profiler_start(params.clone()), Err(StartError::Unsupported));
                assert_eq!(
                    profiler_ensure_started(params),
                    Err(StartError::Unsupported)
                );
                use_every_recording_function();
            }
        }
        assert!(!profiler_is_active());
        assert_eq!(Features::available() == Features::NONE, !cfg!(has_profiler));
        assert_eq!(
            (
                ThreadId::from_number(7).to_number(),
                ProcessId::UNSPECIFIED.is_specified()
            ),
            (7, false)
        );
        assert_eq!(CodeAddress::new(16).get(), 16);
    });
}
