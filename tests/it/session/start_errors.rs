//! What cannot be started says so in words, and changes nothing.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::common::{Read, become_nobody, isolated};
use gekkota::callback::{
    ProfilingState, ProfilingStates, profiler_add_state_change_callback,
    profiler_callback_after_sampling,
};
use gekkota::{
    Features, ProfilerSession, StartError, StartParams, profiler_is_active, profiler_start,
    profiler_stop,
};

fn refusal(params: StartParams) -> String {
    let error = profiler_start(params).expect_err("a bad value");
    assert!(matches!(error, StartError::BadValue { .. }), "{error:?}");
    error.to_string()
}

#[test]
fn bad_settings_are_named_with_their_value_and_range() {
    isolated(|| {
        let with_interval = |interval| refusal(StartParams::default().interval(interval));
        for (interval, shown) in [
            (Duration::ZERO, "0ns"),
            (Duration::from_secs(11), "11s"),
            (Duration::MAX, "s"),
        ] {
            let text = with_interval(interval);
            assert!(
                text.contains("interval is")
                    && text.contains(shown)
                    && text.contains("10µs to 10s"),
                "{text}"
            );
        }
        for capacity in [0, 1, u64::MAX] {
            let text = refusal(StartParams::default().capacity_bytes(capacity));
            assert!(
                text.contains(&format!("capacity_bytes is {capacity} bytes"))
                    && text.contains("256 KiB"),
                "{text}"
            );
        }
        let text = refusal(StartParams::default().features(Features::from_bits(1 << 31)));
        assert!(
            text.contains("features is") && text.contains("0x80000000"),
            "{text}"
        );
        let text = refusal(StartParams::default().signal(libc::SIGKILL));
        assert!(
            text.contains("signal is SIGKILL") && text.contains("SIGURG"),
            "{text}"
        );
        let text = refusal(StartParams::default().filters(["pid:1"]));
        assert!(
            text.contains("filters is") && text.contains("pid:1"),
            "{text}"
        );
        assert!(!profiler_is_active());

        let error = Features::from_name("stackwlak").unwrap_err().to_string();
        assert!(
            error.contains("stackwlak") && error.contains("stackwalk, "),
            "{error}"
        );
    });
}

#[test]
fn a_refused_start_leaves_the_running_session_alone() {
    isolated(|| {
        let session = ProfilerSession::start(StartParams::default()).expect("start");
        refusal(StartParams::default().capacity_bytes(0));
        assert!(profiler_is_active());
        session.finish().expect("the same session");
        assert!(!profiler_is_active());
        profiler_stop();
    });
}

/// In a process that may not make threads any more.
fn fail_to_start_anew() -> String {
    become_nobody();
    let told = Arc::new(Mutex::new(Vec::new()));
    let own = Arc::clone(&told);
    let note = move |state| {
        own.lock()
            .expect("nobody panics")
            .push((state, profiler_is_active()))
    };
    profiler_add_state_change_callback(ProfilingStates::ALL, note, 1);
    profiler_start(StartParams::default()).expect("start");
    let left_over = Arc::new(Mutex::new(None));
    let state_of = Arc::clone(&left_over);
    let none = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the limit is a local.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NPROC, &none) }, 0);
    refusal(StartParams::default().capacity_bytes(0));
    assert!(profiler_is_active(), "a bad value ends nothing");
    assert!(profiler_callback_after_sampling(move |state| *state_of
        .lock()
        .expect("nobody panics") =
        Some(state)));
    let error = profiler_start(StartParams::default()).expect_err("no thread can be made");
    assert!(matches!(error, StartError::System { .. }), "{error}");
    assert!(
        error.to_string().contains("make the sampler thread"),
        "{error}"
    );
    assert!(!profiler_is_active() && left_over.lock().expect("nobody panics").is_some());
    let told = std::mem::take(&mut *told.lock().expect("nobody panics"));
    assert_eq!(
        told,
        [
            (ProfilingState::Started, true),
            (ProfilingState::Stopping, false)
        ]
    );
    profiler_start(StartParams::default()).expect_err("no thread can be made");
    profiler_stop();
    format!(
        "{:?}",
        told.iter().map(|(state, _)| state).collect::<Vec<_>>()
    )
}

#[test]
fn an_empty_thread_name_stands_for_the_systems() {
    isolated(|| {
        let session = ProfilerSession::start(StartParams::default()).expect("start");
        let named = std::thread::Builder::new().name("from-the-system".to_owned());
        named
            .spawn(|| gekkota::register_thread(""))
            .expect("spawn")
            .join()
            .expect("thread");
        let read = Read::from_profile(&session.finish().expect("profile"));
        read.thread("from-the-system");
    });
}

#[test]
fn a_path_that_cannot_be_written_is_named() {
    isolated(|| {
        let inactive = gekkota::profiler_save_profile_to_file("/tmp/x")
            .unwrap_err()
            .to_string();
        assert!(inactive.contains("not running"), "{inactive}");
        let _session = ProfilerSession::start(StartParams::default()).expect("start");
        for path in ["/nonexistent-folder/p.json", "/proc/p.json", "/", ""] {
            let text = gekkota::profiler_save_profile_to_file(path)
                .unwrap_err()
                .to_string();
            assert!(
                text.contains("cannot save the profile") && text.contains(path),
                "{text}"
            );
        }
        assert!(profiler_is_active(), "nothing of what was recorded is lost");
        let folder = std::env::temp_dir();
        let path = folder.join(format!("gekkota-{}-%p.json", std::process::id()));
        gekkota::profiler_save_profile_to_file(&path).expect("saved");
        let expanded = path
            .to_str()
            .expect("UTF-8")
            .replace("%p", &std::process::id().to_string());
        let metadata = std::fs::metadata(&expanded).expect("the file");
        assert_eq!(
            std::os::unix::fs::PermissionsExt::mode(&metadata.permissions()) & 0o777,
            0o600
        );
        Read::from_text(&std::fs::read(&expanded).expect("text"));

        let link = folder.join(format!("gekkota-{}-link.json", std::process::id()));
        std::os::unix::fs::symlink(&expanded, &link).expect("link");
        gekkota::profiler_save_profile_to_file(&link).expect("saved");
        assert!(
            std::fs::symlink_metadata(&link).expect("link").is_symlink(),
            "a link stays a link"
        );
        std::fs::remove_file(expanded).expect("removed");
        gekkota::profiler_save_profile_to_file(&link).expect("saved where there was nothing");
        assert!(
            std::fs::symlink_metadata(&link).expect("link").is_symlink(),
            "so does one that leads nowhere yet"
        );
        std::fs::remove_file(std::fs::read_link(&link).expect("its target")).expect("removed");
        std::fs::remove_file(link).expect("removed");
        gekkota::profiler_save_profile_to_file("/dev/null").expect("written");
        let device = std::fs::metadata("/dev/null").expect("the device");
        assert!(
            std::os::unix::fs::FileTypeExt::is_char_device(&device.file_type()),
            "a device stays a device"
        );
    });
}

#[test]
fn a_start_anew_that_fails_tells_of_the_stop() {
    isolated(|| assert_eq!(fail_to_start_anew(), "[Started, Stopping]"));
}
