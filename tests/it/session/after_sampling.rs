//! After-sampling callbacks: their states, their order, and what they may do.

use std::cell::RefCell;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, fork};

use super::{LONGEST_INTERVAL, before_second_tick, read_until, sample_count};
use crate::common::{self, LONGEST_WAIT, Read, isolated, one_loop, thread_names, wait_until};
use gekkota::callback::{SamplingState, profiler_callback_after_sampling};
use gekkota::{
    Features, StartParams, auto_profiler_label, profiler_get_profile, profiler_is_active,
    profiler_pause, profiler_pause_sampling, profiler_resume, profiler_resume_sampling,
    profiler_start, profiler_stop,
};

use SamplingState::{JustStopped, NoStackSamplingCompleted, SamplingCompleted, SamplingPaused};

fn start() {
    profiler_start(StartParams::default()).expect("start");
}

fn profile_has(text: &str) -> bool {
    Read::of_running().0.to_string().contains(text)
}

fn sampler_threads() -> usize {
    thread_names()
        .iter()
        .filter(|name| *name == "SamplerThread")
        .count()
}

#[test]
fn callback_receives_each_of_the_four_states() {
    isolated(|| {
        gekkota::register_thread("adds callbacks");
        assert!(!profiler_callback_after_sampling(|_| panic!(
            "it is not called while the profiler is inactive"
        )));
        start();
        {
            auto_profiler_label!("label while sampling", Other);
            assert_eq!(one_loop(), SamplingCompleted);
            // The thread may answer later than that loop.
            wait_until("a sample has the label", || {
                profile_has("label while sampling")
            });
        }
        for (pause, resume, label) in [
            (
                profiler_pause as fn(),
                profiler_resume as fn(),
                "label in a pause",
            ),
            (
                profiler_pause_sampling,
                profiler_resume_sampling,
                "label in a pause of the sampling",
            ),
        ] {
            pause();
            {
                auto_profiler_label!(label, Other);
                assert_eq!(one_loop(), SamplingPaused);
            }
            resume();
            assert_eq!(one_loop(), SamplingCompleted);
            assert!(!profile_has(label));
        }
        let features = Features::default_set() | Features::NO_STACK_SAMPLING;
        profiler_start(StartParams::default().features(features)).expect("start");
        {
            auto_profiler_label!("label without stacks", Other);
            assert_eq!(one_loop(), NoStackSamplingCompleted);
        }
        assert!(!profile_has("label without stacks"));
        profiler_pause();
        assert_eq!(one_loop(), SamplingPaused);
        profiler_stop();
        assert!(!profiler_callback_after_sampling(|_| panic!(
            "it is not called while the profiler is inactive"
        )));
    });
}

#[test]
fn callbacks_run_in_order_on_a_thread_of_their_own() {
    isolated(|| {
        gekkota::register_thread("adds callbacks");
        start();
        let (send, receive) = mpsc::channel();
        for number in 0..50 {
            let send = send.clone();
            let call = move |state| {
                let thread = std::fs::read_to_string("/proc/thread-self/comm")
                    .expect("the name of the thread");
                _ = send.send((number, state, thread));
            };
            assert!(profiler_callback_after_sampling(call));
        }
        for number in 0..50 {
            let called = receive.recv_timeout(LONGEST_WAIT).expect("a loop");
            assert_eq!(
                called,
                (number, SamplingCompleted, "AfterSampling\n".to_owned())
            );
        }
        drop(send);
        assert!(receive.recv().is_err(), "each callback is called once");
        profiler_stop();
    });
}

#[test]
fn pending_callbacks_are_called_before_a_stop_returns() {
    isolated(|| {
        gekkota::register_thread("adds callbacks");
        for end in [profiler_stop as fn(), start, gekkota::profiler_shutdown] {
            // The callbacks would be called on the second tick.
            let states = before_second_tick(|| {
                profiler_start(StartParams::default().interval(LONGEST_INTERVAL)).expect("start");
                let add_callback = |_| {
                    let (send, receive) = mpsc::channel();
                    assert!(profiler_callback_after_sampling(
                        move |state| _ = send.send(state)
                    ));
                    receive
                };
                let pending: Vec<_> = (0..3).map(add_callback).collect();
                end();
                let states = pending.iter().map(|receive| receive.try_recv());
                states.collect::<Vec<_>>()
            });
            assert_eq!(states, [Ok(JustStopped); 3]);
        }
        // A callback that is added while the session ends is either refused or called once.
        for _ in 0..30 {
            start();
            let (accepted, is_accepted) = mpsc::channel();
            let adder = std::thread::spawn(move || {
                let (send, receive) = mpsc::channel();
                let mut added = 0;
                while profiler_is_active() {
                    let send = send.clone();
                    if profiler_callback_after_sampling(move |state| _ = send.send(state)) {
                        added += 1;
                        _ = accepted.send(());
                    }
                }
                (added, receive)
            });
            is_accepted
                .recv()
                .expect("a callback is accepted while the session runs");
            common::work_for(Duration::from_millis(2));
            profiler_stop();
            let (added, receive) = adder.join().expect("thread");
            assert_eq!(receive.iter().count(), added);
        }
    });
}

/// The body of a callback, and a condition that is true after it.
type Body = (fn(), fn() -> bool);

#[test]
fn callbacks_may_call_any_function() {
    isolated(|| {
        gekkota::register_thread("adds callbacks");
        let bodies: [Body; 6] = [
            (profiler_stop, || !profiler_is_active()),
            (start, profiler_is_active),
            (
                || {
                    profiler_stop();
                    start();
                    profiler_stop();
                    start();
                },
                profiler_is_active,
            ),
            (
                || _ = profiler_get_profile().expect("active"),
                profiler_is_active,
            ),
            (gekkota::profiler_shutdown, || !profiler_is_active()),
            (
                || {
                    profiler_pause();
                    gekkota::register_thread("SamplerThread");
                    gekkota::unregister_thread();
                    profiler_resume();
                },
                profiler_is_active,
            ),
        ];
        for (number, (body, holds)) in bodies.into_iter().enumerate() {
            start();
            let (send, receive) = mpsc::channel();
            let next = send.clone();
            // Added in another callback, so that both wait for the same loop.
            assert!(profiler_callback_after_sampling(move |_| {
                assert!(profiler_callback_after_sampling(move |state| {
                    body();
                    _ = send.send((state, holds()));
                }));
                assert!(profiler_callback_after_sampling(
                    move |state| _ = next.send((state, true))
                ));
            }));
            let called = receive.recv_timeout(LONGEST_WAIT);
            assert_eq!(called, Ok((SamplingCompleted, true)), "callback {number}");
            assert!(
                receive.recv_timeout(LONGEST_WAIT).is_ok(),
                "callback {number}: the next callback is called, too"
            );
            start();
            assert_eq!(one_loop(), SamplingCompleted);
            // The thread may answer later than that loop.
            let read = read_until("the thread has a sample", |read| {
                sample_count(read, "adds callbacks") > 0
            });
            let start_ms = read.0["meta"]["profilingStartTime"]
                .as_f64()
                .expect("a time");
            let samples = read.samples("adds callbacks");
            assert!(samples.iter().all(|sample| sample.time_ms >= start_ms));
            profiler_stop();
        }
        wait_until("the sampler threads have exited", || sampler_threads() == 0);
    });
}

#[test]
fn stop_does_not_wait_for_a_running_callback() {
    isolated(|| {
        gekkota::register_thread("adds callbacks");
        start();
        let (entered, has_entered) = mpsc::channel();
        let (leave, may_leave) = mpsc::channel::<()>();
        assert!(profiler_callback_after_sampling(move |_| {
            _ = entered.send(());
            _ = may_leave.recv();
            profiler_stop();
        }));
        has_entered.recv_timeout(LONGEST_WAIT).expect("a loop");
        let profile = profiler_get_profile();
        assert!(profile.is_some(), "the session is running");
        profiler_stop();
        assert!(
            !profiler_is_active(),
            "the profiler has stopped, although the callback is running"
        );
        start();
        assert_eq!(
            one_loop(),
            SamplingCompleted,
            "another sampler works beside the callback"
        );
        leave.send(()).expect("the callback waits");
        wait_until("the callback has stopped the profiler", || {
            !profiler_is_active()
        });
        wait_until("the sampler threads have exited", || sampler_threads() == 0);
    });
}

#[test]
fn panic_in_a_callback_does_not_spread() {
    isolated(|| {
        gekkota::register_thread("adds callbacks");
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(|_| {}));
        start();
        assert!(profiler_callback_after_sampling(|_| panic!("on purpose")));
        assert!(profiler_callback_after_sampling(|_| std::panic::panic_any(
            common::PanicsAgain
        )));
        assert_eq!(one_loop(), SamplingCompleted);
        assert_eq!(one_loop(), SamplingCompleted, "the sampler continues");
        let read = Read::from_text(&profiler_get_profile().expect("active"));
        assert_eq!(read.count("sampler_panics"), 0);
        profiler_stop();
        std::panic::set_hook(hook);
    });
}

#[test]
fn events_interrupt_threads_again_after_a_callback() {
    isolated(|| {
        gekkota::register_thread("adds callbacks");
        static END: AtomicBool = AtomicBool::new(false);
        let busy = std::thread::spawn(|| {
            gekkota::register_thread("busy");
            while !END.load(Ordering::Relaxed) {
                common::work(100_000);
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        // While a virtual machine is paused, an event looks silent, too, but not in every session. A
        // callback that left the threads without events would cause silent events in every session.
        wait_until("a session with callbacks has no silent events", || {
            profiler_start(StartParams::default()).expect("start");
            let read = read_until("there are samples beside callbacks", |read| {
                (0..10).for_each(|_| assert_eq!(one_loop(), SamplingCompleted));
                read.count("captured_samples") > 50
            });
            profiler_stop();
            let (silent, captured) = (read.count("silent_events"), read.count("captured_samples"));
            println!("{captured} samples beside callbacks, {silent} silent events");
            silent == 0
        });
        END.store(true, Ordering::Relaxed);
        busy.join().expect("thread");
    });
}

/// Files that the child of a fork opened in a callback. The drop, at the end of the thread, exits
/// the child with a status that reports whether they are still open.
struct Opened(Vec<File>);

impl Drop for Opened {
    fn drop(&mut self) {
        // SAFETY: the call accesses no memory of the process.
        let is_open = |file: &File| unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETFD) } >= 0;
        let status = if self.0.iter().all(is_open) {
            FILES_OPEN
        } else {
            FILES_CLOSED
        };
        // SAFETY: the call only ends the process.
        unsafe { libc::_exit(status) };
    }
}

const FILES_OPEN: i32 = 7;
const FILES_CLOSED: i32 = 8;
const CALLED_IN_CHILD: i32 = 9;

thread_local! {
    static OPENED: RefCell<Option<Opened>> = const { RefCell::new(None) };
}

#[test]
fn fork_in_a_callback_leaves_other_callbacks_to_the_parent() {
    isolated(|| {
        gekkota::register_thread("adds callbacks");
        let sleeper = common::Sleeper::start("sleeps");
        start();
        // The sampler keeps a file open for each thread whose stack it has read remotely. The child
        // must not close its own files of the same numbers.
        wait_until("the sampler has read the stack of the sleeper", || {
            Read::of_running().count("remote_samples") > 0
        });
        let (send, receive) = mpsc::channel();
        let forks = move |_| {
            // SAFETY: glibc and the profiler's fork handlers let the child call any function.
            match unsafe { fork() }.expect("a child") {
                ForkResult::Child => {
                    let files = (0..40)
                        .map(|_| File::open("/dev/null").expect("a file"))
                        .collect();
                    OPENED.set(Some(Opened(files)));
                }
                ForkResult::Parent { child } => _ = send.send(child),
            }
        };
        let parent = std::process::id();
        let (called, is_called) = mpsc::channel();
        let next = move |state| {
            if std::process::id() != parent {
                // SAFETY: the call only ends the process.
                unsafe { libc::_exit(CALLED_IN_CHILD) };
            }
            _ = called.send(state);
        };
        // Added in another callback, so that both wait for the same loop.
        assert!(profiler_callback_after_sampling(move |_| {
            assert!(profiler_callback_after_sampling(forks));
            assert!(profiler_callback_after_sampling(next));
        }));
        let child = receive.recv_timeout(LONGEST_WAIT).expect("a child");
        assert_eq!(
            is_called.recv_timeout(LONGEST_WAIT),
            Ok(SamplingCompleted),
            "the parent continues"
        );
        let status = waitpid(child, None).expect("the child's status");
        assert_eq!(status, WaitStatus::Exited(child, FILES_OPEN));
        assert_eq!(one_loop(), SamplingCompleted);
        profiler_stop();
        drop(sleeper);
    });
}
