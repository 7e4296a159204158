//! Signals start the profiler in a program that knows nothing of it, and stop it with a file.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering;

use crate::common::controlled::{
    Controlled, Folder, HOSTS_CALLS, action_of, hosts_handler_address, obey, open_pipes, own_role,
    raise, set_handler,
};
use crate::common::{self, Read, isolated, wait_until};
use gekkota::ControlSignals;

/// The test that plays the child.
const CHILD: &str = "signals::control::role_of_the_child";

#[test]
fn role_of_the_child() {
    let Some(role) = own_role() else { return };
    if role == "chained" {
        set_handler(libc::SIGUSR1, hosts_handler_address());
    }
    let given = open_pipes();
    let mut profiler = Some(gekkota::AutoProfilerInit::new());
    assert!(open_pipes().len() > given.len(), "the control's");
    std::thread::spawn(|| {
        gekkota::register_thread("busy");
        loop {
            common::work(10_000);
        }
    });
    obey(|order, argument| match (order, argument) {
        ("active", _) => gekkota::profiler_is_active().to_string(),
        ("start by", "USR1") => {
            let params = gekkota::StartParams::default().signal(libc::SIGUSR1);
            let params = params.engine(gekkota::SamplingEngine::Signals);
            gekkota::profiler_start(params).is_ok().to_string()
        }
        ("control again", _) => {
            match gekkota::profiler_control_by_signals(ControlSignals::default()) {
                Ok(()) => "controlled".to_owned(),
                Err(error) => error.to_string(),
            }
        }
        ("init", _) => {
            profiler = Some(gekkota::AutoProfilerInit::new());
            String::new()
        }
        ("flood", _) => flood(),
        ("execute", _) => pipes_of_an_executed_program(&given),
        ("sampled", _) => wait_until_sampled(),
        ("calls", _) => HOSTS_CALLS.load(Ordering::Relaxed).to_string(),
        ("start", _) => gekkota::profiler_start(gekkota::StartParams::default())
            .is_ok()
            .to_string(),
        ("go", folder) => std::env::set_current_dir(folder).is_ok().to_string(),
        ("control", folder) => {
            let signals = ControlSignals::new()
                .stop_signal(libc::SIGURG)
                .folder(folder);
            gekkota::profiler_control_by_signals(signals)
                .is_ok()
                .to_string()
        }
        ("start controlled", folder) => {
            let signals = ControlSignals::new()
                .stop_signal(libc::SIGURG)
                .folder(folder);
            let params = gekkota::StartParams::default().control_signals(signals);
            gekkota::profiler_start(params).is_ok().to_string()
        }
        ("fork", _) => signals_in_a_forked_child(),
        ("errno", _) => errno_after(libc::SIGUSR1).to_string(),
        ("replace", _) => {
            set_handler(libc::SIGUSR2, hosts_handler_address());
            String::new()
        }
        ("shutdown", _) => {
            drop(profiler.take());
            let actions = [libc::SIGUSR1, libc::SIGUSR2].map(|signal| match action_of(signal) {
                action if action == hosts_handler_address() => "the host's",
                libc::SIG_DFL => "the default",
                _ => "nothing",
            });
            actions.join(", ")
        }
        (command, _) => panic!("{command}"),
    });
}

fn wait_until_sampled() -> String {
    wait_until("the busy thread has samples", || {
        let profile = gekkota::profiler_get_profile().map(|text| Read::from_text(&text));
        profile.is_some_and(|read| {
            let mut threads = read.threads().iter();
            threads.any(|thread| thread["name"] == "busy" && !common::samples_of(thread).is_empty())
        })
    });
    String::new()
}

/// More than a pipe holds, faster than anybody saves.
fn flood() -> String {
    for round in 0..70_000 {
        raise(if round % 2 == 0 {
            libc::SIGUSR1
        } else {
            libc::SIGUSR2
        });
    }
    String::new()
}

/// How many pipes a program gets that is executed here, but for its standard output and those that this one was given.
fn pipes_of_an_executed_program(given: &[String]) -> String {
    let mut command = Command::new("ls");
    command
        .args(["-l", "/proc/self/fd"])
        .stdin(Stdio::null())
        .stderr(Stdio::null());
    let output = command.output().expect("ls");
    let listed = String::from_utf8_lossy(&output.stdout).into_owned();
    let pipes = listed.lines().filter(|line| line.contains("pipe:"));
    let own = pipes.filter(|line| !given.iter().any(|pipe| line.contains(pipe.as_str())));
    (own.count() - 1).to_string()
}

fn errno_after(signal: i32) -> bool {
    // SAFETY: the thread's own `errno`; the signal is handled before `raise` returns.
    unsafe {
        *libc::__errno_location() = libc::EXDEV;
        assert_eq!(libc::raise(signal), 0);
        *libc::__errno_location() == libc::EXDEV
    }
}

/// In a child of `fork` the signals do nothing, to it or to the parent, until they are asked for there.
fn signals_in_a_forked_child() -> String {
    common::in_forked_child(|| {
        [libc::SIGUSR1, libc::SIGUSR2].into_iter().for_each(raise);
        assert!(!gekkota::profiler_is_active());
        gekkota::profiler_control_by_signals(ControlSignals::default()).expect("control");
        raise(libc::SIGUSR1);
        wait_until(
            "the child of the child profiles",
            gekkota::profiler_is_active,
        );
        gekkota::profiler_shutdown();
        "well".to_owned()
    })
}

fn read_profile(path: &Path) -> Read {
    let mode = std::fs::metadata(path)
        .expect("the file")
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600, "readable by its owner alone");
    Read::from_text(&std::fs::read(path).expect("text"))
}

#[test]
fn one_signal_starts_and_the_other_saves_and_stops() {
    isolated(|| {
        let folder = Folder::new("both");
        let elsewhere = Folder::new("elsewhere");
        let mut child = Controlled::start(CHILD, "plain", &folder.0, &[]);
        assert_eq!(child.ask("active"), "false");
        let path = child.file_in(&folder.0);

        child.signal(libc::SIGUSR2);
        child.notice("cannot save a profile: the profiler is not running; SIGUSR1 starts it");
        child.signal(libc::SIGUSR1);
        let notice = child.notice("profiling; ");
        assert!(
            notice.contains("profiling; SIGUSR2 saves the profile as ")
                && notice.contains(path.to_str().expect("UTF-8")),
            "{notice}"
        );
        assert_eq!(child.ask("active"), "true");
        child.signal(libc::SIGUSR1);
        child.notice("already profiling");
        child.ask("sampled");
        // The folder in which the signals were taken counts, not the one where it is now.
        assert_eq!(child.ask(&format!("go: {}", elsewhere.0.display())), "true");
        // What was there is replaced, also where it is a link, which could lead anywhere.
        let target = elsewhere.0.join("target");
        std::fs::write(&target, "precious").expect("written");
        std::os::unix::fs::symlink(&target, &path).expect("link");
        child.signal(libc::SIGUSR2);
        assert!(
            child
                .notice("stopped; ")
                .ends_with(path.to_str().expect("UTF-8"))
        );
        assert_eq!(child.ask("active"), "false");
        assert_eq!(std::fs::read_to_string(&target).expect("text"), "precious");
        assert!(
            !std::fs::symlink_metadata(&path)
                .expect("the file")
                .is_symlink()
        );

        let read = read_profile(&path);
        let configuration = &read.0["meta"]["configuration"];
        assert_eq!(
            (
                configuration["capacity"].as_u64(),
                configuration["interval"].as_f64()
            ),
            (Some(64 << 20), Some(1.0))
        );
        assert_eq!(configuration["threads"], serde_json::json!(["*"]));
        assert!(!read.samples("busy").is_empty(), "every registered thread");
        assert_eq!(folder.files().len(), 1, "{:?}", folder.files());

        // Again, of a session that the program has started.
        assert_eq!(child.ask("start"), "true");
        child.signal(libc::SIGUSR2);
        child.notice("stopped; ");
        assert_eq!(
            read_profile(&path).0["meta"]["configuration"]["capacity"].as_u64(),
            Some(16 << 20)
        );
        assert_eq!(child.ask("shutdown"), "nothing, nothing");
        assert_eq!(child.end(), [""; 0]);
    });
}

#[test]
fn the_folder_can_be_set_and_what_cannot_be_saved_goes_on() {
    isolated(|| {
        let folder = Folder::new("upload");
        let upload = folder.0.join("made later");
        let mut child = Controlled::start(
            CHILD,
            "plain",
            &folder.0,
            &[("MOZ_UPLOAD_DIR", upload.to_str().expect("UTF-8"))],
        );
        child.signal(libc::SIGUSR1);
        child.notice("profiling; ");
        child.signal(libc::SIGUSR2);
        let told = child.notice("cannot save the profile");
        assert!(
            told.contains("made later does not exist") && told.ends_with("profiling continues"),
            "{told}"
        );
        assert_eq!(child.ask("active"), "true");
        std::fs::create_dir(&upload).expect("folder");
        child.signal(libc::SIGUSR2);
        child.notice("stopped; ");
        read_profile(&child.file_in(&upload));
        child.end();

        // Another signal and another folder, by the function; the one that is not used any more is given back.
        let mut child = Controlled::start(CHILD, "plain", &folder.0, &[]);
        let by_function = Folder::new("function");
        assert_eq!(
            child.ask(&format!("control: {}", by_function.0.display())),
            "true"
        );
        child.signal(libc::SIGUSR1);
        child.notice("profiling; ");
        child.signal(libc::SIGURG);
        child.notice("stopped; ");
        let read = read_profile(&child.file_in(&by_function.0));
        assert_eq!(read.0["meta"]["presymbolicated"], serde_json::json!(false));
        assert_eq!(child.ask("shutdown"), "nothing, nothing");
        child.end();

        // By the parameters of a start, and beyond its session.
        let mut child = Controlled::start(CHILD, "plain", &folder.0, &[]);
        let by_start = Folder::new("start");
        assert_eq!(
            child.ask(&format!("start controlled: {}", by_start.0.display())),
            "true"
        );
        child.signal(libc::SIGURG);
        child.notice("stopped; ");
        read_profile(&child.file_in(&by_start.0));
        child.signal(libc::SIGUSR1);
        child.notice("profiling; ");
        assert_eq!(child.ask("shutdown"), "nothing, nothing");
        child.end();
    });
}

#[test]
fn a_handler_that_was_there_is_called_and_put_back() {
    isolated(|| {
        let folder = Folder::new("chained");
        let mut child = Controlled::start(CHILD, "chained", &folder.0, &[]);
        child.signal(libc::SIGUSR1);
        child.notice("profiling; ");
        // The thread that handles the signal may come to it after all that.
        wait_until("the host's handler was called", || {
            child.ask("calls") == "1"
        });
        assert_eq!(child.ask("errno"), "true");
        assert_eq!(child.ask("calls"), "2");
        assert_eq!(child.ask("shutdown"), "the host's, nothing");
        child.signal(libc::SIGUSR1);
        wait_until("the host's handler answers alone", || {
            child.ask("calls") == "3"
        });
        assert_eq!(child.ask("active"), "false");
        child.end();

        // One that the host has put over ours stays.
        let mut child = Controlled::start(CHILD, "plain", &folder.0, &[]);
        child.ask("replace");
        assert_eq!(child.ask("shutdown"), "nothing, the host's");
        child.end();
    });
}

#[test]
fn many_signals_in_a_row_leave_it_well() {
    isolated(|| {
        let folder = Folder::new("many");
        let mut child = Controlled::start(CHILD, "plain", &folder.0, &[]);
        for round in 0..3_000 {
            child.signal(if round % 10 == 9 {
                libc::SIGUSR2
            } else {
                libc::SIGUSR1
            });
            if round % 1000 == 500 {
                assert_eq!(child.ask("start"), "true");
            }
        }
        // It does what it is told still. Those of before may be under way, in threads that have yet to write them down.
        for (signal, active) in [(libc::SIGUSR1, "true"), (libc::SIGUSR2, "false")] {
            wait_until("the signal is heard", || {
                child.signal(signal);
                child.ask("active") == active
            });
        }
        read_profile(&child.file_in(&folder.0));
        // These may come during the shutdown, or after it.
        child.signal(libc::SIGUSR1);
        child.signal(libc::SIGUSR2);
        assert_eq!(child.ask("shutdown"), "nothing, nothing");
        child.end();
        assert_eq!(
            folder.files().len(),
            1,
            "whole or absent: {:?}",
            folder.files()
        );
    });
}

#[test]
fn a_flood_fills_the_pipe_and_nobody_waits_for_ever() {
    isolated(|| {
        let folder = Folder::new("flood");
        let mut child = Controlled::start(CHILD, "plain", &folder.0, &[]);
        child.ask("flood");
        assert_eq!(child.ask("shutdown"), "nothing, nothing");
        read_profile(&child.file_in(&folder.0));
        assert_eq!(
            folder.files().len(),
            1,
            "whole or absent: {:?}",
            folder.files()
        );
        child.end();
    });
}

#[test]
fn it_can_be_shut_down_and_initialised_again() {
    isolated(|| {
        let folder = Folder::new("again");
        let mut child = Controlled::start(CHILD, "plain", &folder.0, &[]);
        for _ in 0..3 {
            assert_eq!(
                child.ask("execute"),
                "0",
                "a program that is executed gets none of ours"
            );
            child.signal(libc::SIGUSR1);
            child.notice("profiling; ");
            assert_eq!(child.ask("shutdown"), "nothing, nothing");
            assert_eq!(child.ask("active"), "false");
            child.ask("init");
        }
        child.end();
    });
}

#[test]
fn threads_can_be_sampled_by_the_signal_that_starts() {
    isolated(|| {
        let folder = Folder::new("same");
        let mut child = Controlled::start(CHILD, "plain", &folder.0, &[]);
        assert_eq!(child.ask("start by: USR1"), "true");
        child.ask("sampled");
        child.signal(libc::SIGUSR1);
        child.notice("already profiling");
        child.signal(libc::SIGUSR2);
        child.notice("stopped; ");
        assert!(
            !read_profile(&child.file_in(&folder.0))
                .samples("busy")
                .is_empty()
        );
        child.signal(libc::SIGUSR1);
        child.notice("profiling; ");
        // The other way round, each sample would start the profiler.
        assert_eq!(
            child.ask("control again"),
            "cannot start the profiler: start_signal is SIGUSR1, the sampling signal, expected a signal that is not used for sampling"
        );
        child.end();
    });
}

#[test]
fn in_a_forked_child_they_do_nothing_to_anybody() {
    isolated(|| {
        let folder = Folder::new("forked");
        let mut child = Controlled::start(CHILD, "plain", &folder.0, &[]);
        assert_eq!(child.ask("fork"), "well");
        assert_eq!(child.ask("active"), "false", "the parent has heard nothing");
        child.signal(libc::SIGUSR1);
        let own = child.file_in(&folder.0).display().to_string();
        // What the child of the child says once it controls itself, and what its parent says, by the signal that it got.
        let notices = child.notices_until(&own);
        assert_eq!(notices.len(), 2, "{notices:?}");
        assert!(
            notices.iter().all(|notice| notice.contains("profiling; ")),
            "{notices:?}"
        );
        assert_eq!(folder.files(), [""; 0]);
        assert_eq!(child.ask("fork"), "well");
        assert_eq!(child.ask("active"), "true");
        child.signal(libc::SIGUSR2);
        let notices = child.notices_until(&own);
        assert_eq!(notices.len(), 2, "{notices:?}");
        assert!(notices[1].contains("stopped; "), "{notices:?}");
        assert_eq!(folder.files().len(), 1, "{:?}", folder.files());
        assert_eq!(child.end(), [""; 0]);
    });
}
