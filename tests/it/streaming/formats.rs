//! A session's profile in every format, and read back from the formats of the Firefox Profiler.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::common::{
    Read, isolated, isolated_with, mark, registered_threads_only, wait_until, work,
};
use gekkota::profile::{Format, ThreadSummary};
use gekkota::{Profile, ProfilerSession, SaveError};
use serde_json::Value;

static END: AtomicBool = AtomicBool::new(false);

#[inline(never)]
fn work_to_be_named() {
    while !END.load(Ordering::Relaxed) {
        std::hint::black_box(work(1000));
    }
}

/// Returns the profile of a session in which a thread works under a label and adds a marker.
fn profile_of_worker() -> Profile {
    // The stacks of the test's own threads nest deeper than the JSON reader accepts.
    let session = ProfilerSession::start(registered_threads_only()).expect("start");
    let worker = std::thread::spawn(|| {
        gekkota::register_thread("worker");
        gekkota::auto_profiler_label!("the label", Other);
        mark("the marker");
        work_to_be_named();
    });
    wait_until("the worker has samples", || {
        let read = Read::of_running();
        let has_worker = read
            .threads()
            .iter()
            .any(|thread| thread["name"] == "worker");
        has_worker && read.samples("worker").len() >= 50
    });
    // The last stack is of the work, too.
    let profile = session.finish().expect("a profile");
    END.store(true, Ordering::Relaxed);
    worker.join().expect("no panic");
    profile
}

/// Returns the feature of the crate that a format needs and this build lacks.
fn missing_feature(format: Format) -> Option<&'static str> {
    match format {
        Format::Gecko
        | Format::Processed
        | Format::Collapsed
        | Format::Svg
        | Format::Text
        | Format::Stacks => None,
        Format::Pprof => (!cfg!(feature = "protobuf")).then_some("`protobuf`"),
        _ => (!cfg!(feature = "formats")).then_some("`formats`"),
    }
}

fn written(profile: &Profile, format: Format) -> Vec<u8> {
    let mut bytes = Vec::new();
    profile.write(format, &mut bytes).expect("written");
    bytes
}

/// Returns what must be equal in all formats: for each thread with samples, its name, the number of
/// its samples, and the samples in the worker's function and below. Gecko's format has an empty main
/// thread if the main thread was not registered.
fn essence(threads: &[ThreadSummary]) -> Vec<(String, usize, usize)> {
    let of_thread = |thread: &ThreadSummary| {
        let worked = thread
            .functions
            .iter()
            .find(|function| function.name.ends_with("work_to_be_named"));
        let worked = worked.map_or(0, |function| function.total_samples);
        (thread.name.clone(), thread.samples, worked)
    };
    let mut all: Vec<_> = threads
        .iter()
        .filter(|thread| thread.samples > 0)
        .map(of_thread)
        .collect();
    all.sort();
    all
}

#[test]
fn each_format_is_written_and_the_viewers_formats_are_read_back() {
    isolated(|| {
        let profile = profile_of_worker();
        let threads = essence(&profile.summarize());
        let worker = threads.iter().find(|(name, ..)| name == "worker");
        let &(_, samples, worked) = worker.expect("the worker");
        assert!(samples >= 50 && worked >= samples / 2, "{threads:?}");

        let mut known = Vec::new();
        for format in Format::all() {
            let is_protobuf = format == Format::Pprof;
            if let Some(feature) = missing_feature(format) {
                let error = profile
                    .write(format, &mut Vec::new())
                    .expect_err("not built");
                assert!(error.to_string().contains(feature), "{error}");
                continue;
            }
            let bytes = written(&profile, format);
            assert!(bytes.len() > 100, "{}", format.name());
            let text = String::from_utf8_lossy(&bytes);
            if !is_protobuf {
                assert!(text.contains("work_to_be_named"), "{}", format.name());
            }
            if matches!(
                format,
                Format::Gecko
                    | Format::Processed
                    | Format::CpuProfile
                    | Format::JsSelfProfile
                    | Format::D3FlameGraph
                    | Format::D3FlameGraphMerged
                    | Format::ChromeTrace
                    | Format::Speedscope
            ) {
                let json = serde_json::from_slice::<Value>(&bytes);
                assert!(json.is_ok(), "{}", format.name());
            }
            known.push(format);
        }
        assert!(known.len() >= if cfg!(feature = "formats") { 11 } else { 5 });

        for format in [Format::Gecko, Format::Processed] {
            let read = Profile::read_from(&*written(&profile, format)).expect("a profile");
            assert_eq!(essence(&read.summarize()), threads, "{}", format.name());
            let again = Profile::read_from(&*written(&read, Format::Processed));
            let again = again.expect("a profile").summarize();
            assert_eq!(essence(&again), threads, "{}", format.name());
            check_format_of_read_profile(&read);
        }
        let summary = profile.summary().to_string();
        assert!(summary.contains("work_to_be_named"), "{summary}");
        assert!(summary.len() <= 8000, "{}", summary.len());
        let diff = profile.diff(&profile.clone()).expect("samples");
        assert!(!diff.is_regression(), "{diff}");
    });
}

/// Checks that a profile which was read from a file is not written as Gecko's JSON.
fn check_format_of_read_profile(read: &Profile) {
    let mut out = Vec::new();
    let error = read.write(Format::Gecko, &mut out).expect_err("no writer");
    let message = "cannot write the profile: got the format gecko for a profile from a file, expected \
                   another one, such as processed";
    assert_eq!((error.to_string().as_str(), out.len()), (message, 0));
    let path = std::env::temp_dir().join(format!("read-{}.json", std::process::id()));
    read.save(&path).expect("saved");
    let saved = std::fs::read(&path).expect("a file");
    std::fs::remove_file(&path).expect("removed");
    assert_eq!(saved, written(read, Format::Processed));
}

#[test]
fn saved_format_follows_from_the_ending() {
    isolated(|| {
        let profile = profile_of_worker();
        let folder = std::env::temp_dir();
        let path = |ending: &str| folder.join(format!("formats-{}{ending}", std::process::id()));
        for (ending, start) in [
            (".svg", "<svg"),
            (".folded", ""),
            #[cfg(feature = "formats")]
            (".speedscope.json", "{"),
            (".processed.json", "{\"meta\""),
        ] {
            let path = path(ending);
            profile.save(&path).expect("saved");
            let text = std::fs::read_to_string(&path).expect("a file");
            std::fs::remove_file(&path).expect("removed");
            assert!(
                text.trim_start().starts_with(start),
                "{ending}: {}",
                &text[..60]
            );
        }
        #[cfg(not(feature = "formats"))]
        {
            let error = profile
                .save(path(".speedscope.json"))
                .expect_err("not built");
            assert!(matches!(error, SaveError::MissingFeature { .. }), "{error}");
            assert!(error.to_string().contains("`formats`"), "{error}");
            assert!(!path(".speedscope.json").exists());
        }
        for ending in [".json.zst", ".xyz"] {
            let error = profile.save(path(ending)).expect_err("no such format");
            assert!(matches!(error, SaveError::UnknownEnding { .. }), "{error}");
            assert!(!path(ending).exists());
        }
    });
}

#[test]
fn profile_at_shutdown_is_saved_even_if_its_ending_is_unknown() {
    let path = std::env::temp_dir().join("gekkota-shutdown-%p.xyz");
    let text = path.to_str().expect("UTF-8");
    let variables = [
        ("MOZ_PROFILER_STARTUP", "1"),
        ("MOZ_PROFILER_SHUTDOWN", text),
    ];
    isolated_with(&variables, || {
        let profiler = gekkota::AutoProfilerInit::new();
        drop(profiler);
        let path = text.replace("%p", &std::process::id().to_string());
        let saved = std::fs::read_to_string(&path).expect("a file");
        std::fs::remove_file(&path).expect("removed");
        let saved: Value = serde_json::from_str(&saved).expect("Gecko's JSON");
        assert!(saved["threads"].is_array());
    });
}
