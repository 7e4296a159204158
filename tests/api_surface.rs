//! The same program compiles and runs with the profiler and without it: `cargo test --no-default-features` runs it too.

use std::time::Duration;

use gekkota::{
    AutoProfilerInit, AutoProfilerLabel, AutoProfilerTextMarker, AutoProfilerThreadSleep,
    AutoProfilerThreadWake, CodeAddress, CodeRange, ControlSignals, Features, Format, MarkerOptions,
    MarkerTiming, ProcessId, Profile, ProfilerSession, ProfilerTime, ProfilingCategoryPair, SamplingEngine,
    SaveError, SnapshotOptions, StackFeatures, StackFrame, StartError, StartParams, StreamError,
    SuspendError, Symbolicate, ThreadGuard, ThreadId, add_text_marker, add_untyped_marker,
    auto_profiler_label, auto_profiler_label_dynamic, auto_profiler_marker_text, gecko_profiler_category,
    profiler_capture_backtrace, profiler_control_by_signals, profiler_current_thread_id,
    profiler_env_vars_for_child_process, profiler_get_profile, profiler_init, profiler_is_active,
    profiler_register_code_range, profiler_save_profile_to_file, profiler_shutdown, profiler_start,
    profiler_stop, profiler_stream_json, profiler_suspend_and_sample_thread, profiler_thread_is_sleeping,
    profiler_thread_sleep, profiler_thread_wake, register_thread, subcategories, unregister_thread,
};

fn everything_that_a_library_says() {
    register_thread("surface");
    let _guard = ThreadGuard::register("surface");
    auto_profiler_label!("label", Other);
    auto_profiler_label_dynamic!("label", "dynamic", JavaScript, Parsing);
    auto_profiler_marker_text!("scope", gecko_profiler_category!(Network), MarkerOptions::default(), "text");
    let category = ProfilingCategoryPair::Other(Some(subcategories::Other::Profiling));
    let _label = AutoProfilerLabel::new("label", category);
    let timing = MarkerTiming::interval_until_now_from(ProfilerTime::now().subtract_microseconds(5.0));
    add_untyped_marker("untyped", category, MarkerOptions::default().with_timing(timing));
    add_text_marker("text", category, MarkerTiming::instant_now().into(), "text");
    let _marker = AutoProfilerTextMarker::new("scope", category, MarkerOptions::default(), "text");
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
    unregister_thread();
}

fn ask_for_stacks() {
    let nobody = ThreadId::from_number(i32::MAX);
    let bound = Duration::from_millis(100);
    let answers = [
        profiler_suspend_and_sample_thread(ThreadId::UNSPECIFIED, StackFeatures::FULL, bound),
        profiler_suspend_and_sample_thread(profiler_current_thread_id(), StackFeatures::NATIVE, bound),
        profiler_capture_backtrace().map(|backtrace| backtrace.resolve()).ok_or(SuspendError::Unsupported),
        profiler_suspend_and_sample_thread(nobody, StackFeatures::LABELS | StackFeatures::LEAF, bound),
    ];
    if cfg!(has_profiler) {
        for stack in answers[..3].iter().map(|answer| answer.as_ref().expect("its own stack")) {
            assert!(matches!(stack.frames()[0], StackFrame::Native { .. }) && !stack.is_truncated());
            assert_eq!(
                (stack.thread(), stack.names().len()),
                (profiler_current_thread_id(), stack.frames().len())
            );
            assert!(stack.time() <= ProfilerTime::now() && stack.to_string().contains("ask_for_stacks"));
        }
        assert!(matches!(&answers[3], Err(SuspendError::Gone { thread }) if *thread == nobody));
    } else {
        assert!(answers.iter().all(|answer| matches!(answer, Err(SuspendError::Unsupported))));
        assert_eq!(profiler_current_thread_id(), ThreadId::UNSPECIFIED);
    }
}

fn write_every_way(profile: &Profile) {
    let mut text = Vec::new();
    profile.write(Format::Gecko, &mut text).expect("a vector never fails");
    let options = SnapshotOptions::default().symbolicate(Symbolicate::No);
    profile.write_with(Format::Gecko, &mut text, &options).expect("a vector never fails");
    assert!(profile.save("/nonexistent-folder/p.json").is_err());
    assert!(!profile.summarize().is_empty() && !profile.sampler_counts().is_empty());
}

#[test]
fn every_public_item_does_what_it_can() {
    // What makes no sense yet, or any more, does nothing.
    everything_that_a_library_says();
    ask_for_stacks();
    profiler_stop();
    profiler_shutdown();
    assert!(!profiler_is_active() && profiler_get_profile().is_none());
    assert!(matches!(profiler_save_profile_to_file("/tmp/none.json"), Err(SaveError::Inactive)));
    let mut out = Vec::new();
    let answer = profiler_stream_json(&mut out, &SnapshotOptions::default());
    assert!(matches!(answer, Err(StreamError::Inactive)) && out.is_empty());

    let off = [("MOZ_PROFILER_STARTUP".to_owned(), String::new())];
    assert_eq!(profiler_env_vars_for_child_process(), if cfg!(has_profiler) { &off[..] } else { &[] });
    let signals = ControlSignals::new().start_signal(10).stop_signal(12).folder("/tmp");
    let controlled = profiler_control_by_signals(signals.clone());
    assert_eq!(controlled, if cfg!(has_profiler) { Ok(()) } else { Err(StartError::Unsupported) });
    assert!(profiler_control_by_signals(signals.stop_signal(10)).is_err());
    profiler_shutdown();

    let _profiler = AutoProfilerInit::new();
    profiler_init();
    let params = StartParams::new()
        .capacity_bytes(1 << 20)
        .interval(Duration::from_millis(2))
        .engine(SamplingEngine::Signals)
        .duration(Duration::from_secs(60))
        .filters(["surface", "m"]);
    let params = params.features(Features::STACK_WALK | Features::CPU);
    match ProfilerSession::start(params.clone()) {
        Ok(session) => {
            assert!(profiler_is_active());
            everything_that_a_library_says();
            write_every_way(&session.snapshot().expect("active"));
            // Somebody else starts anew: the session is not this guard's any more.
            profiler_start(params).expect("start");
            assert!(matches!(session.snapshot(), Err(StreamError::Inactive)));
            drop(session);
            assert!(profiler_is_active());
            profiler_stream_json(&mut out, &SnapshotOptions::default()).expect("a vector never fails");
            assert!(profiler_get_profile().is_some());
            profiler_stop();
        }
        Err(error) if cfg!(has_profiler) => panic!("{error}"),
        Err(error) => {
            assert_eq!(error, StartError::Unsupported);
            assert!(error.to_string().contains("not in this build"));
            assert_eq!(profiler_start(params), Err(StartError::Unsupported));
            everything_that_a_library_says();
        }
    }
    assert!(!profiler_is_active());
    assert_eq!(Features::available() == Features::NONE, !cfg!(has_profiler));
    assert_eq!((ThreadId::from_number(7).to_number(), ProcessId::UNSPECIFIED.is_specified()), (7, false));
    assert_eq!(CodeAddress::new(16).get(), 16);
}
