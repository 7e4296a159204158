//! A start that fails returns an error that names the reason, and changes nothing.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::common::{Read, become_nobody, isolated, one_loop};
use gekkota::callback::{
    ProfilingState, ProfilingStates, profiler_add_state_change_callback,
    profiler_callback_after_sampling,
};
use gekkota::{
    Features, ProfilerSession, StartError, StartParams, profiler_is_active, profiler_start,
    profiler_stop,
};

fn error_of_start(params: StartParams) -> String {
    let error = profiler_start(params).expect_err("a bad value");
    assert!(matches!(error, StartError::BadValue { .. }), "{error:?}");
    error.to_string()
}

#[test]
fn error_of_a_bad_setting_names_its_value_and_range() {
    isolated(|| {
        let with_interval = |interval| error_of_start(StartParams::default().interval(interval));
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
            let text = error_of_start(StartParams::default().capacity_bytes(capacity));
            assert!(
                text.contains(&format!("capacity_bytes is {capacity} bytes"))
                    && text.contains("256 KiB"),
                "{text}"
            );
        }
        let text = error_of_start(StartParams::default().features(Features::from_bits(1 << 31)));
        assert!(
            text.contains("features is") && text.contains("0x80000000"),
            "{text}"
        );
        let text = error_of_start(StartParams::default().allocation_interval_bytes(0));
        assert!(
            text.contains("allocation_interval_bytes is 0 bytes") && text.contains("at least 1"),
            "{text}"
        );
        let text = error_of_start(StartParams::default().signal(libc::SIGKILL));
        assert!(
            text.contains("signal is SIGKILL") && text.contains("SIGURG"),
            "{text}"
        );
        let text = error_of_start(StartParams::default().filters(["pid:1"]));
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
fn failed_start_keeps_the_running_session() {
    isolated(|| {
        let session = ProfilerSession::start(StartParams::default()).expect("start");
        error_of_start(StartParams::default().capacity_bytes(0));
        assert!(profiler_is_active());
        session.finish().expect("the session is still running");
        assert!(!profiler_is_active());
        profiler_stop();
    });
}

/// Restarts in a process that can no longer create threads, and returns the notified states.
fn states_of_a_failed_restart() -> String {
    become_nobody();
    let notified = Arc::new(Mutex::new(Vec::new()));
    let states = Arc::clone(&notified);
    let note = move |state| {
        states
            .lock()
            .expect("no thread panics")
            .push((state, profiler_is_active()))
    };
    profiler_add_state_change_callback(ProfilingStates::ALL, note, 1);
    profiler_start(StartParams::default()).expect("start");
    // The first callback creates the thread that runs them.
    one_loop();
    let callback_state = Arc::new(Mutex::new(None));
    let set_state = Arc::clone(&callback_state);
    let no_threads = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    assert_eq!(
        // SAFETY: the kernel only reads the limit, which is a local.
        unsafe { libc::setrlimit(libc::RLIMIT_NPROC, &no_threads) },
        0
    );
    error_of_start(StartParams::default().capacity_bytes(0));
    assert!(profiler_is_active(), "a bad value does not end the session");
    assert!(profiler_callback_after_sampling(move |state| *set_state
        .lock()
        .expect("no thread panics") =
        Some(state)));
    let error = profiler_start(StartParams::default()).expect_err("no thread can be created");
    assert!(matches!(error, StartError::System { .. }), "{error}");
    assert!(
        error.to_string().contains("make the sampler thread"),
        "{error}"
    );
    assert!(!profiler_is_active() && callback_state.lock().expect("no thread panics").is_some());
    let notified = std::mem::take(&mut *notified.lock().expect("no thread panics"));
    assert_eq!(
        notified,
        [
            (ProfilingState::Started, true),
            (ProfilingState::Stopping, false)
        ]
    );
    profiler_start(StartParams::default()).expect_err("no thread can be created");
    profiler_stop();
    format!(
        "{:?}",
        notified.iter().map(|(state, _)| state).collect::<Vec<_>>()
    )
}

#[test]
fn empty_thread_name_selects_the_name_of_the_system() {
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
fn save_error_names_the_path() {
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
        assert!(profiler_is_active(), "the session continues");
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
            "saving to a symbolic link keeps the link"
        );
        std::fs::remove_file(expanded).expect("removed");
        gekkota::profiler_save_profile_to_file(&link).expect("saved to the missing target");
        assert!(
            std::fs::symlink_metadata(&link).expect("link").is_symlink(),
            "saving to a dangling symbolic link keeps the link"
        );
        std::fs::remove_file(std::fs::read_link(&link).expect("its target")).expect("removed");
        std::fs::remove_file(link).expect("removed");
        gekkota::profiler_save_profile_to_file("/dev/null").expect("written");
        let device = std::fs::metadata("/dev/null").expect("the device");
        assert!(
            std::os::unix::fs::FileTypeExt::is_char_device(&device.file_type()),
            "saving to a device keeps the device"
        );
    });
}

#[test]
fn failed_restart_notifies_of_the_stop() {
    isolated(|| assert_eq!(states_of_a_failed_restart(), "[Started, Stopping]"));
}
