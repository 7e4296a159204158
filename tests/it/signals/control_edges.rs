//! Control by signals in an application that shuts down, forks or closes files at any moment, on
//! any thread.

use std::fs::File;
use std::io::{Seek, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Barrier, Mutex};
use std::time::Duration;

use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, fork};

use crate::common::controlled::{
    Controlled, Folder, action_of, hosts_handler_address, obey, open_pipes, own_role, raise,
    set_handler,
};
use crate::common::seccomp::{
    Filtered, JUMP_IF_EQUAL, LOAD_WORD, RETURN, install_filter, instruction,
};
use crate::common::{self, LONGEST_WAIT, isolated, isolated_with, wait_until};
use gekkota::callback::{ProfilingState, profiler_add_state_change_callback};
use gekkota::{
    AutoProfilerInit, ControlSignals, StartParams, profiler_control_by_signals, profiler_is_active,
    profiler_shutdown,
};

/// The test that runs in the child process.
const CHILD: &str = "signals::control_edges::role_of_the_child";

#[test]
#[ignore = "runs only as a child of another test"]
fn role_of_the_child() {
    let Some(role) = own_role() else { return };
    if role == "chained" {
        set_handler(libc::SIGUSR1, hosts_handler_address());
    }
    if role == "controls itself" {
        let signals = ControlSignals::new()
            .start_signal(libc::SIGURG)
            .stop_signal(libc::SIGIO);
        profiler_control_by_signals(signals.folder("/dev/null/set by the application"))
            .expect("control");
    }
    let application = Application {
        pipes: open_pipes(),
        file: ForeignFile::new(),
    };
    let application: &'static Application = Box::leak(Box::new(application));
    let mut profiler = Some(AutoProfilerInit::new());
    obey(|order, argument| {
        match (order, argument) {
            ("active", _) => return profiler_is_active().to_string(),
            ("control", _) => {
                profiler_control_by_signals(ControlSignals::default()).expect("control");
            }
            ("shutdown", _) => drop(profiler.take()),
            ("shut down while it starts", _) => {
                while_it_starts(wait_until_shut_down);
                raise(libc::SIGUSR2);
                drop(profiler.take());
            }
            ("replace the pipe", _) => {
                wait_until_control_reads();
                application.replace_pipe();
                raise(libc::SIGUSR1);
            }
            ("replace the pipe while it starts", _) => {
                while_it_starts(|| application.replace_pipe())
            }
            ("replace the pipe and shut down", _) => {
                let (is_over, over) = channel();
                while_it_starts(move || {
                    application.replace_pipe();
                    application.file.assert_intact_in_forked_child();
                    wait_until_shut_down();
                    is_over.send(()).expect("the receiver exists");
                });
                wait_until("the pipe is replaced", || application.file.has_numbers());
                raise(libc::SIGUSR2);
                drop(profiler.take());
                over.try_recv()
                    .expect("the shutdown waits for the callback");
            }
            ("replace the pipe and take control", _) => {
                let (is_taken, taken) = channel();
                while_it_starts(move || {
                    application.replace_pipe();
                    is_taken
                        .send(profiler_control_by_signals(ControlSignals::default()))
                        .expect("the receiver exists");
                });
                taken
                    .recv_timeout(LONGEST_WAIT)
                    .expect("a result")
                    .expect("control");
            }
            ("is the file intact", _) => return application.file.is_intact().to_string(),
            ("shut down twice while it starts", _) => {
                while_it_starts(|| {
                    profiler_shutdown();
                    profiler_control_by_signals(ControlSignals::default()).expect("control");
                    profiler_shutdown();
                });
                wait_until("the control's pipes are closed", || {
                    open_pipes() == application.pipes
                });
            }
            ("fork while it starts", _) => while_it_starts(|| application.fork()),
            ("forks", _) => return FORKS.load(Ordering::Relaxed).to_string(),
            ("be canceled", _) => return be_canceled_in_handler(),
            ("race", _) => race_start_and_control(),
            (order, _) => panic!("{order}"),
        }
        String::new()
    });
}

/// The application, with the pipes that it had open before the profiler was initialized.
struct Application {
    pipes: Vec<String>,
    file: ForeignFile,
}

/// Starts the profiler by a signal. The control thread calls `body` during the start; returns once
/// that call has begun.
fn while_it_starts(body: impl FnOnce() + Send + 'static) {
    let (begins, begun) = channel();
    let once = Mutex::new(Some((begins, body)));
    let callback = move |_| {
        let body = once.lock().expect("no panic").take();
        if let Some((begins, body)) = body {
            begins.send(()).expect("the receiver exists");
            body();
        }
    };
    profiler_add_state_change_callback(ProfilingState::Started.into(), callback, 7);
    raise(libc::SIGUSR1);
    begun
        .recv_timeout(LONGEST_WAIT)
        .expect("the profiler starts");
}

/// Waits until the control thread sleeps in `read`. A pipe that is replaced between the thread's
/// check and its `read` goes unnoticed.
fn wait_until_control_reads() {
    wait_until("the control thread waits for requests", || {
        let threads = std::fs::read_dir("/proc/self/task").expect("threads");
        let mut stats = threads
            .flatten()
            .filter_map(|thread| std::fs::read_to_string(thread.path().join("stat")).ok());
        stats.any(|stat| stat.contains("(ProfilerControl) S"))
    });
}

/// Waits until a shutdown has restored the application's handler. The shutdown then waits for the
/// control thread.
fn wait_until_shut_down() {
    wait_until("the signals are released", || {
        action_of(libc::SIGUSR1) == hosts_handler_address()
    });
}

/// A file of the application that takes over the descriptors of the control's pipe. Reads and
/// writes move its position.
struct ForeignFile {
    file: File,
    numbers: Mutex<Vec<RawFd>>,
}

impl ForeignFile {
    fn new() -> Self {
        let path =
            std::env::temp_dir().join(format!("gekkota-foreign-file-{}", std::process::id()));
        let mut file = File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .open(&path)
            .expect("a file");
        std::fs::remove_file(&path).expect("removed");
        // Requests to save and stop, in case the profiler reads the file as its pipe.
        file.write_all(&[2; 64]).expect("written");
        file.rewind().expect("at its start");
        Self {
            file,
            numbers: Mutex::default(),
        }
    }

    fn take(&self, numbers: Vec<RawFd>) {
        assert_eq!(numbers.len(), 2, "both ends: {numbers:?}");
        for number in &numbers {
            // SAFETY: `dup3` accesses no memory, and the profiler expects replaced descriptors.
            let copy = unsafe { libc::dup3(self.file.as_raw_fd(), *number, libc::O_CLOEXEC) };
            assert_eq!(copy, *number);
        }
        *self.numbers.lock().expect("no panic") = numbers;
    }

    fn has_numbers(&self) -> bool {
        !self.numbers.lock().expect("no panic").is_empty()
    }

    /// Returns whether the file was not read, written or closed through these descriptors.
    fn is_intact(&self) -> bool {
        // SAFETY: `F_GETFD` accesses no memory.
        let is_open = |number: &RawFd| unsafe { libc::fcntl(*number, libc::F_GETFD) } >= 0;
        let position = (&self.file).stream_position().expect("a position");
        let bytes = self.file.metadata().expect("a file").len();
        (position, bytes) == (0, 64) && self.numbers.lock().expect("no panic").iter().all(is_open)
    }

    fn assert_intact_in_forked_child(&self) {
        common::in_forked_child(|| {
            assert!(
                self.is_intact(),
                "a forked child closes only the profiler's own descriptors"
            );
            String::new()
        });
    }
}

static FORKS: AtomicU32 = AtomicU32::new(0);

impl Application {
    /// Returns the open ends of the control's pipe.
    fn ends(&self) -> Vec<RawFd> {
        let entries = std::fs::read_dir("/proc/self/fd")
            .expect("descriptors")
            .map_while(Result::ok);
        let is_new = |entry: &std::fs::DirEntry| {
            let target = std::fs::read_link(entry.path())
                .unwrap_or_default()
                .display()
                .to_string();
            target.starts_with("pipe:") && !self.pipes.contains(&target)
        };
        let number = |entry: std::fs::DirEntry| entry.file_name().to_str()?.parse().ok();
        entries.filter(is_new).filter_map(number).collect()
    }

    /// Closes the control's pipe and reuses its descriptors at once.
    fn replace_pipe(&self) {
        self.file.take(self.ends());
    }

    /// Forks on the control thread, which is the child's only thread. There it returns to the loop
    /// that serves the control.
    fn fork(&self) {
        let ends = self.ends();
        // SAFETY: with glibc, the child of a process with threads may call any function.
        match unsafe { fork() }.expect("a child") {
            ForkResult::Child => self.file.take(ends),
            ForkResult::Parent { child } => {
                let status = waitpid(child, None).expect("the child's status");
                assert_eq!(status, WaitStatus::Exited(child, 0));
                FORKS.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

/// Raises the start signal on a thread with a pending cancellation, and returns the thread's
/// result.
fn be_canceled_in_handler() -> String {
    extern "C" fn body(_: *mut libc::c_void) -> *mut libc::c_void {
        // SAFETY: neither call accesses memory, and this function has no cancellation point.
        unsafe {
            libc::pthread_cancel(libc::pthread_self());
            libc::raise(libc::SIGUSR1);
        }
        std::ptr::without_provenance_mut(7)
    }
    let mut thread = 0;
    let mut result = std::ptr::null_mut();
    // SAFETY: the thread's function ignores its argument, and the out-pointers point to locals.
    unsafe {
        assert_eq!(
            libc::pthread_create(&mut thread, std::ptr::null(), body, std::ptr::null_mut()),
            0
        );
        assert_eq!(libc::pthread_join(thread, &mut result), 0);
    }
    result.addr().to_string()
}

/// Requests each signal for sampling and for control at the same time. A signal that samples
/// threads must have the sampling handler.
fn race_start_and_control() {
    let sampled_by = |signal| {
        StartParams::default()
            .interval(Duration::from_millis(50))
            .signal(signal)
    };
    gekkota::profiler_start(sampled_by(libc::SIGPROF)).expect("start");
    let sampling = action_of(libc::SIGPROF);
    let refused = AtomicU32::new(0);
    for signal in libc::SIGRTMIN()..=libc::SIGRTMAX() {
        gekkota::profiler_start(sampled_by(libc::SIGPROF)).expect("start");
        let together = Barrier::new(3);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                together.wait();
                // Holds the life-cycle lock until the sampler has ended, so the others wait for the
                // lock.
                gekkota::profiler_stop();
            });
            scope.spawn(|| {
                together.wait();
                gekkota::profiler_start(sampled_by(signal)).expect("start");
            });
            together.wait();
            let signals = ControlSignals::new()
                .start_signal(signal)
                .stop_signal(libc::SIGURG);
            let is_refused = profiler_control_by_signals(signals).is_err();
            refused.fetch_add(is_refused.into(), Ordering::Relaxed);
        });
        assert_eq!(
            action_of(signal),
            sampling,
            "control was refused {} times",
            refused.load(Ordering::Relaxed)
        );
    }
}

#[test]
fn pending_requests_are_handled_before_shutdown() {
    isolated(|| {
        let folder = Folder::new("pending");
        let mut child = Controlled::start(CHILD, "chained", &folder.0, &[]);
        child.ask("shut down while it starts");
        child.notice("profiling; ");
        child.notice("stopped; ");
        assert_eq!(
            folder.files(),
            [child
                .file_in(&folder.0)
                .file_name()
                .expect("a name")
                .to_string_lossy()]
        );
        assert_eq!(child.end(), [""; 0]);
    });
}

#[test]
fn pipe_closed_by_application_is_not_used() {
    isolated(|| {
        let folder = Folder::new("closed");
        let notice = "control by signals has ended";
        for order in ["replace the pipe", "replace the pipe while it starts"] {
            let mut child = Controlled::start(CHILD, "chained", &folder.0, &[]);
            child.ask(order);
            child.notice(notice);
            assert_eq!(child.ask("is the file intact"), "true", "{order}");
            // The application can take control again.
            child.ask("control");
            child.signal(libc::SIGUSR2);
            child.notice(if order.ends_with("starts") {
                "stopped; "
            } else {
                "not running"
            });
            child.ask("shutdown");
            assert_eq!(child.ask("is the file intact"), "true", "{order}");
            assert_eq!(child.end(), [""; 0]);
        }
        // While the control thread is busy, the closed pipe goes unnoticed; the call that takes
        // control opens a new one.
        let mut child = Controlled::start(CHILD, "chained", &folder.0, &[]);
        child.ask("replace the pipe and take control");
        child.signal(libc::SIGUSR2);
        assert_eq!(
            child.notices_until("stopped; ").len(),
            2,
            "control has not ended"
        );
        assert_eq!(child.ask("is the file intact"), "true");
        assert_eq!(child.end(), [""; 0]);

        // A shutdown cannot send its request through the closed pipe.
        let mut child = Controlled::start(CHILD, "chained", &folder.0, &[]);
        child.ask("replace the pipe and shut down");
        assert_eq!(child.ask("is the file intact"), "true");
        child.ask("control");
        child.signal(libc::SIGUSR1);
        child.notice("profiling; ");
        assert_eq!(child.ask("is the file intact"), "true");
        child.end();
    });
}

#[test]
fn callback_on_control_thread_can_shut_down_and_retake_control() {
    isolated(|| {
        let folder = Folder::new("twice");
        let mut child = Controlled::start(CHILD, "plain", &folder.0, &[]);
        child.ask("shut down twice while it starts");
        assert_eq!(child.ask("active"), "false");
        child.end();
    });
}

#[test]
fn callback_on_control_thread_can_fork() {
    isolated(|| {
        let folder = Folder::new("forks");
        let mut child = Controlled::start(CHILD, "plain", &folder.0, &[]);
        child.ask("fork while it starts");
        wait_until("the child has ended", || child.ask("forks") == "1");
        assert_eq!(
            child.ask("is the file intact"),
            "true",
            "the child has not used the descriptors"
        );
        child.signal(libc::SIGUSR2);
        child.notice("stopped; ");
        assert_eq!(folder.files().len(), 1, "{:?}", folder.files());
        child.end();
    });
}

#[test]
fn pending_cancellation_does_not_take_effect_in_handler() {
    isolated(|| {
        let folder = Folder::new("cancel");
        let mut child = Controlled::start(CHILD, "plain", &folder.0, &[]);
        assert_eq!(child.ask("be canceled"), "7");
        child.notice("profiling; ");
        child.end();
    });
}

#[test]
fn environment_keeps_control_set_by_application() {
    isolated(|| {
        let folder = Folder::new("own");
        let child = Controlled::start(CHILD, "controls itself", &folder.0, &[]);
        child.signal(libc::SIGURG);
        let notice = child.notice("profiling; ");
        assert!(notice.contains("SIGIO saves"), "{notice}");
        assert!(notice.contains("/set by the application/"), "{notice}");
        child.end();
    });
}

#[test]
fn signal_is_not_used_for_sampling_and_control_at_once() {
    isolated(|| {
        let folder = Folder::new("race");
        let mut child = Controlled::start(CHILD, "plain", &folder.0, &[]);
        child.ask("race");
        child.end();
    });
}

/// Makes the kernel refuse to set an action of this signal on the calling thread. It may still be
/// read.
fn forbid_action_of(signal: i32) {
    /// Offsets in `struct seccomp_data`: of the call's number, and of the lower halves of its first
    /// two arguments.
    const OFFSETS: [u32; 3] = [0, 16, 24];
    let [call, number, action] = OFFSETS.map(|offset| instruction(LOAD_WORD, 0, 0, offset));
    let is_call = libc::SYS_rt_sigaction as u32;
    let refuse = libc::SECCOMP_RET_ERRNO | libc::EPERM as u32;
    let mut program = [
        call,
        instruction(JUMP_IF_EQUAL, 0, 5, is_call),
        number,
        instruction(JUMP_IF_EQUAL, 0, 3, signal as u32),
        action,
        instruction(JUMP_IF_EQUAL, 1, 0, 0),
        instruction(RETURN, 0, 0, refuse),
        instruction(RETURN, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    install_filter(Filtered::CallingThread, &mut program);
}

#[test]
fn control_that_works_goes_on_if_a_change_of_its_signals_fails() {
    isolated_with(&[("MOZ_PROFILER_SYMBOLICATE", "0")], || {
        set_handler(libc::SIGURG, hosts_handler_address());
        let folder = Folder::new("change");
        let signals = ControlSignals::new().folder(&folder.0);
        profiler_control_by_signals(signals).expect("control");
        let before = [libc::SIGUSR1, libc::SIGUSR2].map(action_of);
        let refused = std::thread::spawn(|| {
            forbid_action_of(libc::SIGIO);
            let of_each = [
                ControlSignals::new().start_signal(libc::SIGURG),
                // These exchange the purposes of the signals, or change one.
                ControlSignals::new().start_signal(libc::SIGUSR2),
                ControlSignals::new(),
            ];
            of_each.map(|signals| {
                let changed = profiler_control_by_signals(signals.stop_signal(libc::SIGIO));
                changed.expect_err("the action is refused").to_string()
            })
        });
        for error in refused.join().expect("thread") {
            assert!(error.contains("install the signal handler"), "{error}");
        }
        assert_eq!([libc::SIGUSR1, libc::SIGUSR2].map(action_of), before);
        assert_eq!(action_of(libc::SIGURG), hosts_handler_address());
        raise(libc::SIGURG);
        raise(libc::SIGUSR2);
        assert!(!profiler_is_active());
        raise(libc::SIGUSR1);
        wait_until("the signal starts the profiler", profiler_is_active);
        raise(libc::SIGUSR2);
        wait_until("the signal stops the profiler", || !profiler_is_active());
        assert_eq!(folder.files().len(), 1, "{:?}", folder.files());
    });
}
