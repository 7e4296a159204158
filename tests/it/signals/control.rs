//! Control by signals: one signal starts the profiler, another saves the profile and stops it.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering;

use nix::sys::signal::{SigSet, Signal};

use crate::common::controlled::{
    Controlled, Folder, HOSTS_CALLS, action_of, action_with_mask, hosts_handler_address, obey,
    open_pipes, own_role, raise, set_handler,
};
use crate::common::{self, Read, isolated, wait_until};
use gekkota::ControlSignals;

/// The test that runs in the child process.
const CHILD: &str = "signals::control::role_of_the_child";

#[test]
#[ignore = "runs only as a child of another test"]
fn role_of_the_child() {
    let Some(role) = own_role() else { return };
    if role == "chained" {
        set_handler(libc::SIGUSR1, hosts_handler_address());
    }
    let inherited = open_pipes();
    let mut profiler = Some(gekkota::AutoProfilerInit::new());
    assert!(
        open_pipes().len() > inherited.len(),
        "the control opens a pipe"
    );
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
        ("burst", _) => burst(),
        ("execute", _) => pipes_of_an_executed_program(&inherited),
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
        ("errno", _) => signal_keeps_errno(libc::SIGUSR1).to_string(),
        ("replace", _) => {
            set_handler(libc::SIGUSR2, hosts_handler_address());
            String::new()
        }
        ("shutdown", _) => {
            drop(profiler.take());
            let actions = [libc::SIGUSR1, libc::SIGUSR2].map(|signal| match action_of(signal) {
                action if action == hosts_handler_address() => "the application's",
                libc::SIG_DFL => "the default",
                _ => "inert",
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

/// Raises more signals than the control's pipe has space for.
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

/// Lets both control signals and the sampling signal arrive at the same time, on a thread with the
/// alternate stack that Rust gives each thread. Returns whether they do not interrupt each other.
fn burst() -> String {
    let signals = [libc::SIGUSR1, libc::SIGUSR2, libc::SIGURG];
    let thread = std::thread::spawn(move || {
        let mut all = SigSet::empty();
        for signal in signals {
            all.add(Signal::try_from(signal).expect("a signal"));
        }
        for _ in 0..100 {
            all.thread_block().expect("a mask");
            signals.into_iter().for_each(raise);
            // The kernel makes a frame for each signal that the handlers before it do not block.
            all.thread_unblock().expect("a mask");
        }
    });
    thread.join().expect("the handlers return");
    let blocks_all = |signal| {
        let mask = action_with_mask(signal).sa_mask;
        // SAFETY: the set is initialized.
        let is_in = |other: &i32| unsafe { libc::sigismember(&mask, *other) } == 1;
        signals.iter().all(is_in)
    };
    signals.into_iter().all(blocks_all).to_string()
}

/// Returns the number of pipes that an executed program inherits, without its standard output and
/// the pipes that this process was started with.
fn pipes_of_an_executed_program(inherited: &[String]) -> String {
    let mut command = Command::new("ls");
    command
        .args(["-l", "/proc/self/fd"])
        .stdin(Stdio::null())
        .stderr(Stdio::null());
    let output = command.output().expect("ls");
    let listed = String::from_utf8_lossy(&output.stdout).into_owned();
    let pipes = listed.lines().filter(|line| line.contains("pipe:"));
    let new = pipes.filter(|line| !inherited.iter().any(|pipe| line.contains(pipe.as_str())));
    (new.count() - 1).to_string()
}

/// Returns whether `errno` is unchanged after the thread has handled the signal.
fn signal_keeps_errno(signal: i32) -> bool {
    // SAFETY: accesses only the calling thread's `errno`.
    unsafe {
        *libc::__errno_location() = libc::EXDEV;
        assert_eq!(libc::raise(signal), 0);
        *libc::__errno_location() == libc::EXDEV
    }
}

/// Checks in a forked child that the signals have no effect until the child takes control.
fn signals_in_a_forked_child() -> String {
    common::in_forked_child(|| {
        [libc::SIGUSR1, libc::SIGUSR2].into_iter().for_each(raise);
        assert!(!gekkota::profiler_is_active());
        gekkota::profiler_control_by_signals(ControlSignals::default()).expect("control");
        raise(libc::SIGUSR1);
        wait_until("the forked child profiles", gekkota::profiler_is_active);
        gekkota::profiler_shutdown();
        "works".to_owned()
    })
}

fn read_profile(path: &Path) -> Read {
    let mode = std::fs::metadata(path)
        .expect("the file")
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600, "only the owner can read the file");
    Read::from_text(&std::fs::read(path).expect("text"))
}

#[test]
fn start_signal_starts_and_stop_signal_saves_and_stops() {
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
        // The profile is saved in the folder that was current when control began.
        assert_eq!(child.ask(&format!("go: {}", elsewhere.0.display())), "true");
        // The file replaces a symbolic link instead of following it.
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
        assert!(!read.samples("busy").is_empty(), "all threads are sampled");
        assert_eq!(folder.files().len(), 1, "{:?}", folder.files());

        // The signal also saves a session that the application started.
        assert_eq!(child.ask("start"), "true");
        child.signal(libc::SIGUSR2);
        child.notice("stopped; ");
        assert_eq!(
            read_profile(&path).0["meta"]["configuration"]["capacity"].as_u64(),
            Some(16 << 20)
        );
        assert_eq!(child.ask("shutdown"), "inert, inert");
        assert_eq!(child.end(), [""; 0]);
    });
}

#[test]
fn profile_is_saved_in_configured_folder_and_failed_save_keeps_profiling() {
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
        let notice = child.notice("cannot save the profile");
        assert!(
            notice.contains("made later does not exist") && notice.ends_with("profiling continues"),
            "{notice}"
        );
        assert_eq!(child.ask("active"), "true");
        std::fs::create_dir(&upload).expect("folder");
        child.signal(libc::SIGUSR2);
        child.notice("stopped; ");
        read_profile(&child.file_in(&upload));
        child.end();

        // The function changes the stop signal and the folder, and releases the old signal.
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
        assert_eq!(child.ask("shutdown"), "inert, inert");
        child.end();

        // The parameters of a start do the same, and stay in effect after its session.
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
        assert_eq!(child.ask("shutdown"), "inert, inert");
        child.end();
    });
}

#[test]
fn existing_handler_is_called_and_restored() {
    isolated(|| {
        let folder = Folder::new("chained");
        let mut child = Controlled::start(CHILD, "chained", &folder.0, &[]);
        child.signal(libc::SIGUSR1);
        child.notice("profiling; ");
        // The thread that handles the signal may call the handler after the notice.
        wait_until("the application's handler is called", || {
            child.ask("calls") == "1"
        });
        assert_eq!(child.ask("errno"), "true");
        assert_eq!(child.ask("calls"), "2");
        assert_eq!(child.ask("shutdown"), "the application's, inert");
        child.signal(libc::SIGUSR1);
        wait_until("only the application's handler is called", || {
            child.ask("calls") == "3"
        });
        assert_eq!(child.ask("active"), "false");
        child.end();

        // A handler that replaced the profiler's handler stays.
        let mut child = Controlled::start(CHILD, "plain", &folder.0, &[]);
        child.ask("replace");
        assert_eq!(child.ask("shutdown"), "inert, the application's");
        child.end();
    });
}

#[test]
fn many_signals_in_a_row_keep_control_working() {
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
        // Control still works. Repeated, because threads may still have earlier signals to handle.
        for (signal, active) in [(libc::SIGUSR1, "true"), (libc::SIGUSR2, "false")] {
            wait_until("the signal takes effect", || {
                child.signal(signal);
                child.ask("active") == active
            });
        }
        read_profile(&child.file_in(&folder.0));
        // These signals may arrive during the shutdown, or after it.
        child.signal(libc::SIGUSR1);
        child.signal(libc::SIGUSR2);
        assert_eq!(child.ask("shutdown"), "inert, inert");
        child.end();
        assert_eq!(
            folder.files().len(),
            1,
            "no partial file is left: {:?}",
            folder.files()
        );
    });
}

#[test]
fn signals_that_arrive_together_share_an_alternate_stack() {
    isolated(|| {
        let folder = Folder::new("together");
        let mut child = Controlled::start(CHILD, "plain", &folder.0, &[]);
        assert_eq!(child.ask("start"), "true");
        assert_eq!(child.ask("burst"), "true");
        child.end();
    });
}

#[test]
fn signals_beyond_pipe_capacity_do_not_block() {
    isolated(|| {
        let folder = Folder::new("flood");
        let mut child = Controlled::start(CHILD, "plain", &folder.0, &[]);
        // A shutdown ignores pending requests to start, so the session must run before it.
        child.signal(libc::SIGUSR1);
        child.notice("profiling; ");
        child.ask("flood");
        assert_eq!(child.ask("shutdown"), "inert, inert");
        read_profile(&child.file_in(&folder.0));
        assert_eq!(
            folder.files().len(),
            1,
            "no partial file is left: {:?}",
            folder.files()
        );
        child.end();
    });
}

#[test]
fn profiler_can_be_initialized_again_after_shutdown() {
    isolated(|| {
        let folder = Folder::new("again");
        let mut child = Controlled::start(CHILD, "plain", &folder.0, &[]);
        for _ in 0..3 {
            assert_eq!(
                child.ask("execute"),
                "0",
                "an executed program inherits no pipe of the control"
            );
            child.signal(libc::SIGUSR1);
            child.notice("profiling; ");
            assert_eq!(child.ask("shutdown"), "inert, inert");
            assert_eq!(child.ask("active"), "false");
            child.ask("init");
        }
        child.end();
    });
}

#[test]
fn start_signal_can_also_be_the_sampling_signal() {
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
        // A sampling signal cannot become the start signal: each sample would start the profiler.
        assert_eq!(
            child.ask("control again"),
            "cannot control the profiler by signals: start_signal is SIGUSR1, the sampling signal, expected a signal that is not used for sampling"
        );
        child.end();
    });
}

#[test]
fn control_in_a_removed_folder_fails_with_a_text_of_its_own() {
    isolated(|| {
        let folder = Folder::new("removed");
        let mut child = Controlled::start(CHILD, "plain", &folder.0, &[]);
        let removed = folder.0.join("removed");
        std::fs::create_dir(&removed).expect("created");
        assert_eq!(child.ask(&format!("go: {}", removed.display())), "true");
        std::fs::remove_dir(&removed).expect("removed");
        let answer = child.ask("control again");
        let expected =
            "cannot control the profiler by signals: cannot find the current folder: No such file";
        assert!(answer.starts_with(expected), "{answer}");
        child.end();
    });
}

#[test]
fn signals_in_forked_child_are_ignored_until_it_takes_control() {
    isolated(|| {
        let folder = Folder::new("forked");
        let mut child = Controlled::start(CHILD, "plain", &folder.0, &[]);
        assert_eq!(child.ask("fork"), "works");
        assert_eq!(child.ask("active"), "false", "the parent is not affected");
        child.signal(libc::SIGUSR1);
        let own = child.file_in(&folder.0).display().to_string();
        // One notice of the forked child after it took control, and one of its parent after this
        // signal.
        let notices = child.notices_until(&own);
        assert_eq!(notices.len(), 2, "{notices:?}");
        assert!(
            notices.iter().all(|notice| notice.contains("profiling; ")),
            "{notices:?}"
        );
        assert_eq!(folder.files(), [""; 0]);
        assert_eq!(child.ask("fork"), "works");
        assert_eq!(child.ask("active"), "true");
        child.signal(libc::SIGUSR2);
        let notices = child.notices_until(&own);
        assert_eq!(notices.len(), 2, "{notices:?}");
        assert!(notices[1].contains("stopped; "), "{notices:?}");
        assert_eq!(folder.files().len(), 1, "{:?}", folder.files());
        assert_eq!(child.end(), [""; 0]);
    });
}
