//! Control by signals where the host does what it may: it shuts down, forks and closes files at any moment, on any thread.

use std::fs::File;
use std::io::{Seek, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Barrier, Mutex};
use std::time::Duration;

use crate::common::controlled::{
    Controlled, Folder, action_of, hosts_handler_address, obey, open_pipes, own_role, raise,
    set_handler,
};
use crate::common::{self, isolated, wait_until};
use gekkota::callback::{ProfilingState, profiler_add_state_change_callback};
use gekkota::{
    AutoProfilerInit, ControlSignals, StartParams, profiler_control_by_signals, profiler_is_active,
    profiler_shutdown,
};

/// The test that plays the child.
const CHILD: &str = "signals::control_edges::role_of_the_child";

#[test]
fn role_of_the_child() {
    let Some(role) = own_role() else { return };
    if role == "chained" {
        set_handler(libc::SIGUSR1, hosts_handler_address());
    }
    if role == "controls itself" {
        let signals = ControlSignals::new()
            .start_signal(libc::SIGURG)
            .stop_signal(libc::SIGIO);
        profiler_control_by_signals(signals.folder("/dev/null/of the program's")).expect("control");
    }
    let host = Host {
        pipes: open_pipes(),
        stranger: Stranger::new(),
    };
    let host: &'static Host = Box::leak(Box::new(host));
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
                host.replace_pipe();
                raise(libc::SIGUSR1);
            }
            ("replace the pipe while it starts", _) => while_it_starts(|| host.replace_pipe()),
            ("replace the pipe and shut down", _) => {
                let (is_over, over) = channel();
                while_it_starts(move || {
                    host.replace_pipe();
                    host.stranger.is_open_in_forked_child();
                    wait_until_shut_down();
                    is_over.send(()).expect("it is asked");
                });
                wait_until("the pipe is a stranger's", || host.stranger.has_numbers());
                raise(libc::SIGUSR2);
                drop(profiler.take());
                over.try_recv().expect("the shutdown has waited");
            }
            ("replace the pipe and take control", _) => {
                let (is_taken, taken) = channel();
                while_it_starts(move || {
                    host.replace_pipe();
                    is_taken
                        .send(profiler_control_by_signals(ControlSignals::default()))
                        .expect("awaited");
                });
                taken
                    .recv_timeout(Duration::from_secs(10))
                    .expect("an answer")
                    .expect("control");
            }
            ("is the stranger whole", _) => return host.stranger.is_whole().to_string(),
            ("shut down twice while it starts", _) => {
                while_it_starts(|| {
                    profiler_shutdown();
                    profiler_control_by_signals(ControlSignals::default()).expect("control");
                    profiler_shutdown();
                });
                wait_until("no pipe of the control's is left", || {
                    open_pipes() == host.pipes
                });
            }
            ("fork while it starts", _) => while_it_starts(|| host.fork()),
            ("forks", _) => return FORKS.load(Ordering::Relaxed).to_string(),
            ("be cancelled", _) => return be_cancelled_in_handler(),
            ("race", _) => race_start_and_control(),
            (order, _) => panic!("{order}"),
        }
        String::new()
    });
}

/// The program that the profiler lives in, with the pipes that it had before.
struct Host {
    pipes: Vec<String>,
    stranger: Stranger,
}

/// Has the profiler started by a signal, and comes back when the control thread has begun to call `body` meanwhile.
fn while_it_starts(body: impl FnOnce() + Send + 'static) {
    let (begins, begun) = channel();
    let once = Mutex::new(Some((begins, body)));
    let callback = move |_| {
        let body = once.lock().expect("no panic").take();
        if let Some((begins, body)) = body {
            begins.send(()).expect("it is waited for");
            body();
        }
    };
    profiler_add_state_change_callback(ProfilingState::Started.into(), callback, 7);
    raise(libc::SIGUSR1);
    begun
        .recv_timeout(Duration::from_secs(10))
        .expect("it starts");
}

/// The shutdown puts the host's handler back, and waits then.
fn wait_until_shut_down() {
    wait_until("the signals are given back", || {
        action_of(libc::SIGUSR1) == hosts_handler_address()
    });
}

/// A file of the host's which takes over the numbers of the control's pipe: bytes that are read from it, or written to
/// it, move its place.
struct Stranger {
    file: File,
    numbers: Mutex<Vec<RawFd>>,
}

impl Stranger {
    fn new() -> Self {
        let path = std::env::temp_dir().join(format!("gekkota-stranger-{}", std::process::id()));
        let mut file = File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .open(&path)
            .expect("a file");
        std::fs::remove_file(&path).expect("removed");
        // Requests to save and stop, for who takes it for the pipe.
        file.write_all(&[2; 64]).expect("written");
        file.rewind().expect("at its begin");
        Self {
            file,
            numbers: Mutex::default(),
        }
    }

    fn take(&self, numbers: Vec<RawFd>) {
        assert_eq!(numbers.len(), 2, "both ends: {numbers:?}");
        for number in &numbers {
            // SAFETY: touches no memory; the profiler must cope with a number that is replaced.
            let copy = unsafe { libc::dup3(self.file.as_raw_fd(), *number, libc::O_CLOEXEC) };
            assert_eq!(copy, *number);
        }
        *self.numbers.lock().expect("no panic") = numbers;
    }

    fn has_numbers(&self) -> bool {
        !self.numbers.lock().expect("no panic").is_empty()
    }

    /// Whether nobody has read, written or closed it.
    fn is_whole(&self) -> bool {
        // SAFETY: touches no memory.
        let is_open = |number: &RawFd| unsafe { libc::fcntl(*number, libc::F_GETFD) } >= 0;
        let place = (&self.file).stream_position().expect("a place");
        let bytes = self.file.metadata().expect("a file").len();
        (place, bytes) == (0, 64) && self.numbers.lock().expect("no panic").iter().all(is_open)
    }

    fn is_open_in_forked_child(&self) {
        common::in_forked_child(|| {
            assert!(
                self.is_whole(),
                "what is forgotten in the child is the profiler's alone"
            );
            String::new()
        });
    }
}

static FORKS: AtomicU32 = AtomicU32::new(0);

impl Host {
    /// The open ends of the control's pipe.
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

    /// Closes the control's pipe, and has its numbers for something else at once.
    fn replace_pipe(&self) {
        self.stranger.take(self.ends());
    }

    /// On the control thread: in the child it is the only one, and returns to where it serves.
    fn fork(&self) {
        let ends = self.ends();
        // SAFETY: the child calls what it likes, as a child of a program with threads may where the C library is glibc.
        let child = unsafe { libc::fork() };
        assert!(child >= 0);
        if child == 0 {
            return self.stranger.take(ends);
        }
        let mut status = 0;
        // SAFETY: the status is a local.
        assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
        assert_eq!(status, 0, "the child");
        FORKS.fetch_add(1, Ordering::Relaxed);
    }
}

/// A thread that somebody wants to cancel takes the signal all the same.
fn be_cancelled_in_handler() -> String {
    extern "C" fn body(_: *mut libc::c_void) -> *mut libc::c_void {
        // SAFETY: touch no memory. It is cancelled at the next cancellation point, and there is none of its own.
        unsafe {
            libc::pthread_cancel(libc::pthread_self());
            libc::raise(libc::SIGUSR1);
        }
        std::ptr::without_provenance_mut(7)
    }
    let mut thread = 0;
    let mut answer = std::ptr::null_mut();
    // SAFETY: the thread's function takes nothing; the out-pointers are to locals.
    unsafe {
        assert_eq!(
            libc::pthread_create(&mut thread, std::ptr::null(), body, std::ptr::null_mut()),
            0
        );
        assert_eq!(libc::pthread_join(thread, &mut answer), 0);
    }
    answer.addr().to_string()
}

/// Whoever wants a signal for the one and whoever wants it for the other come at once: threads are not sampled by a
/// signal whose first answer is control's.
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
                // It holds the life cycle until the sampler has ended, so that the others wait for the same lock.
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
            "{} refused before",
            refused.load(Ordering::Relaxed)
        );
    }
}

#[test]
fn what_a_signal_has_asked_for_is_done_before_the_shutdown() {
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
fn a_pipe_that_the_host_has_closed_is_left_alone() {
    isolated(|| {
        let folder = Folder::new("closed");
        let notice = "control by signals has ended";
        for order in ["replace the pipe", "replace the pipe while it starts"] {
            let mut child = Controlled::start(CHILD, "chained", &folder.0, &[]);
            child.ask(order);
            child.notice(notice);
            assert_eq!(child.ask("is the stranger whole"), "true", "{order}");
            // It can be had again.
            child.ask("control");
            child.signal(libc::SIGUSR2);
            child.notice(if order.ends_with("starts") {
                "stopped; "
            } else {
                "not running"
            });
            child.ask("shutdown");
            assert_eq!(child.ask("is the stranger whole"), "true", "{order}");
            assert_eq!(child.end(), [""; 0]);
        }
        // While the control thread is at work nobody notices; a call that takes control opens another pipe.
        let mut child = Controlled::start(CHILD, "chained", &folder.0, &[]);
        child.ask("replace the pipe and take control");
        child.signal(libc::SIGUSR2);
        assert_eq!(
            child.notices_until("stopped; ").len(),
            2,
            "nothing has ended"
        );
        assert_eq!(child.ask("is the stranger whole"), "true");
        assert_eq!(child.end(), [""; 0]);

        // Nor does a shutdown have anybody whom it could tell.
        let mut child = Controlled::start(CHILD, "chained", &folder.0, &[]);
        child.ask("replace the pipe and shut down");
        assert_eq!(child.ask("is the stranger whole"), "true");
        child.ask("control");
        child.signal(libc::SIGUSR1);
        child.notice("profiling; ");
        assert_eq!(child.ask("is the stranger whole"), "true");
        child.end();
    });
}

#[test]
fn a_callback_on_the_control_thread_shuts_down_and_begins_again() {
    isolated(|| {
        let folder = Folder::new("twice");
        let mut child = Controlled::start(CHILD, "plain", &folder.0, &[]);
        child.ask("shut down twice while it starts");
        assert_eq!(child.ask("active"), "false");
        child.end();
    });
}

#[test]
fn a_callback_on_the_control_thread_forks() {
    isolated(|| {
        let folder = Folder::new("forks");
        let mut child = Controlled::start(CHILD, "plain", &folder.0, &[]);
        child.ask("fork while it starts");
        wait_until("the child has ended", || child.ask("forks") == "1");
        assert_eq!(
            child.ask("is the stranger whole"),
            "true",
            "the child has read nothing"
        );
        child.signal(libc::SIGUSR2);
        child.notice("stopped; ");
        assert_eq!(folder.files().len(), 1, "{:?}", folder.files());
        child.end();
    });
}

#[test]
fn the_handler_is_no_place_to_cancel_a_thread() {
    isolated(|| {
        let folder = Folder::new("cancel");
        let mut child = Controlled::start(CHILD, "plain", &folder.0, &[]);
        assert_eq!(child.ask("be cancelled"), "7");
        child.notice("profiling; ");
        child.end();
    });
}

#[test]
fn the_environment_leaves_the_programs_own_control_alone() {
    isolated(|| {
        let folder = Folder::new("own");
        let child = Controlled::start(CHILD, "controls itself", &folder.0, &[]);
        child.signal(libc::SIGURG);
        let told = child.notice("profiling; ");
        assert!(told.contains("SIGIO saves"), "{told}");
        assert!(told.contains("/of the program's/"), "{told}");
        child.end();
    });
}

#[test]
fn a_signal_is_the_samplings_or_the_controls() {
    isolated(|| {
        let folder = Folder::new("race");
        let mut child = Controlled::start(CHILD, "plain", &folder.0, &[]);
        child.ask("race");
        child.end();
    });
}
