//! After-sampling callbacks: in the four states, in their order, and whatever they do.

use std::cell::RefCell;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use crate::common::{self, Read, isolated, one_loop, thread_names, wait_until};
use gekkota::callback::{SamplingState, profiler_callback_after_sampling};
use gekkota::{
    Features, SamplingEngine, StartParams, auto_profiler_label, profiler_get_profile,
    profiler_is_active, profiler_pause, profiler_pause_sampling, profiler_resume,
    profiler_resume_sampling, profiler_start, profiler_stop,
};

use SamplingState::{JustStopped, NoStackSamplingCompleted, SamplingCompleted, SamplingPaused};

const LONG: Duration = Duration::from_secs(10);

fn start() {
    profiler_start(StartParams::default()).expect("start");
}

fn profile_has(text: &str) -> bool {
    let profile = profiler_get_profile().expect("active");
    String::from_utf8(profile).expect("UTF-8").contains(text)
}

fn sampler_threads() -> usize {
    thread_names()
        .iter()
        .filter(|name| *name == "SamplerThread")
        .count()
}

#[test]
fn each_of_the_four_states() {
    isolated(|| {
        gekkota::register_thread("asks");
        assert!(!profiler_callback_after_sampling(|_| panic!(
            "it is not called"
        )));
        start();
        {
            auto_profiler_label!("label while it samples", Other);
            assert_eq!(one_loop(), SamplingCompleted);
        }
        assert!(
            profile_has("label while it samples"),
            "what was sampled is in the buffer"
        );
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
            "it is not called"
        )));
    });
}

#[test]
fn callbacks_are_called_in_their_order_on_the_sampler_thread() {
    isolated(|| {
        gekkota::register_thread("asks");
        start();
        let (send, receive) = mpsc::channel();
        for number in 0..50 {
            let send = send.clone();
            let call = move |state| {
                let thread = std::fs::read_to_string("/proc/thread-self/comm")
                    .expect("the kernel's name for it");
                _ = send.send((number, state, thread));
            };
            assert!(profiler_callback_after_sampling(call));
        }
        for number in 0..50 {
            let called = receive.recv_timeout(LONG).expect("a loop");
            assert_eq!(
                called,
                (number, SamplingCompleted, "SamplerThread\n".to_owned())
            );
        }
        drop(send);
        assert!(receive.recv().is_err(), "each is called once");
        profiler_stop();
    });
}

#[test]
fn who_is_left_over_is_told_before_the_stop_returns() {
    isolated(|| {
        gekkota::register_thread("asks");
        let slow = || StartParams::default().interval(Duration::from_secs(10));
        for end in [profiler_stop as fn(), start, gekkota::profiler_shutdown] {
            profiler_start(slow()).expect("start");
            let ask = |_| {
                let (send, receive) = mpsc::channel();
                assert!(profiler_callback_after_sampling(
                    move |state| _ = send.send(state)
                ));
                receive
            };
            let left: Vec<_> = (0..3).map(ask).collect();
            end();
            let told: Vec<_> = left.iter().map(|left| left.try_recv()).collect();
            assert_eq!(told, [Ok(JustStopped); 3]);
        }
        // Nor is one told so twice, or one forgotten that comes while the session ends.
        for _ in 0..30 {
            start();
            let asks = std::thread::spawn(|| {
                let (send, receive) = mpsc::channel();
                let mut taken = 0;
                while profiler_is_active() {
                    let send = send.clone();
                    taken += usize::from(profiler_callback_after_sampling(move |state| {
                        _ = send.send(state)
                    }));
                }
                (taken, receive)
            });
            common::work_for(Duration::from_millis(2));
            profiler_stop();
            let (taken, receive) = asks.join().expect("thread");
            assert_eq!(receive.iter().count(), taken);
        }
    });
}

/// What an after-sampling callback does, and what holds afterwards.
type Body = (fn(), fn() -> bool);

#[test]
fn callbacks_may_call_anything() {
    isolated(|| {
        gekkota::register_thread("asks");
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
            let begin = Instant::now();
            assert!(profiler_callback_after_sampling(move |state| {
                body();
                _ = send.send((state, holds()));
            }));
            assert!(profiler_callback_after_sampling(
                move |state| _ = next.send((state, true))
            ));
            let called = receive.recv_timeout(LONG);
            assert_eq!(called, Ok((SamplingCompleted, true)), "callback {number}");
            assert!(
                receive.recv_timeout(LONG).is_ok(),
                "callback {number}: the next one is called too"
            );
            println!("callback {number}: {:?}", begin.elapsed());
            start();
            assert_eq!(one_loop(), SamplingCompleted);
            let read = Read::from_text(&profiler_get_profile().expect("active"));
            let start_ms = read.0["meta"]["profilingStartTime"]
                .as_f64()
                .expect("a time");
            let samples = read.samples("asks");
            assert!(!samples.is_empty() && samples.iter().all(|sample| sample.time_ms >= start_ms));
            profiler_stop();
        }
        wait_until("the samplers are gone", || sampler_threads() == 0);
    });
}

#[test]
fn nobody_waits_for_a_callback() {
    isolated(|| {
        gekkota::register_thread("asks");
        start();
        let (entered, has_entered) = mpsc::channel();
        let (leave, may_leave) = mpsc::channel::<()>();
        assert!(profiler_callback_after_sampling(move |_| {
            _ = entered.send(());
            _ = may_leave.recv();
            profiler_stop();
        }));
        has_entered.recv_timeout(LONG).expect("a loop");
        let profile = profiler_get_profile();
        assert!(profile.is_some(), "the session is there");
        profiler_stop();
        assert!(
            !profiler_is_active(),
            "it has stopped, though the callback goes on"
        );
        start();
        assert_eq!(
            one_loop(),
            SamplingCompleted,
            "another sampler is at work beside it"
        );
        leave.send(()).expect("it waits");
        wait_until("it has stopped the profiler", || !profiler_is_active());
        wait_until("the samplers are gone", || sampler_threads() == 0);
    });
}

#[test]
fn a_panic_ends_in_its_callback() {
    isolated(|| {
        gekkota::register_thread("asks");
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(|_| {}));
        start();
        assert!(profiler_callback_after_sampling(|_| panic!("on purpose")));
        assert!(profiler_callback_after_sampling(|_| std::panic::panic_any(
            common::PanicsAgain
        )));
        assert_eq!(one_loop(), SamplingCompleted);
        assert_eq!(one_loop(), SamplingCompleted, "the sampler goes on");
        let read = Read::from_text(&profiler_get_profile().expect("active"));
        assert_eq!(read.count("sampler_panics"), 0);
        profiler_stop();
        std::panic::set_hook(hook);
    });
}

#[test]
fn threads_are_stopped_by_their_timers_again_after_a_callback() {
    isolated(|| {
        gekkota::register_thread("asks");
        static ENDS: AtomicBool = AtomicBool::new(false);
        let busy = std::thread::spawn(|| {
            gekkota::register_thread("busy");
            while !ENDS.load(Ordering::Relaxed) {
                common::work(10_000);
            }
        });
        // A machine that stands still under its threads makes timers look silent, too, but not each time.
        let is_well = (0..20).any(|_| {
            profiler_start(StartParams::default().engine(SamplingEngine::LocalTimers))
                .expect("start");
            wait_until("there are samples beside callbacks", || {
                (0..10).for_each(|_| assert_eq!(one_loop(), SamplingCompleted));
                Read::of_running().count("captured_samples") > 50
            });
            let read = Read::of_running();
            profiler_stop();
            let (silent, captured) = (read.count("silent_timers"), read.count("captured_samples"));
            println!("{captured} samples beside callbacks, {silent} silent timers");
            silent == 0
        });
        ENDS.store(true, Ordering::Relaxed);
        busy.join().expect("thread");
        assert!(is_well, "callbacks leave threads without their timers");
    });
}

/// What the child of the fork opened in the callback; when its thread ends, it tells whether that is open still.
struct Opened(Vec<File>);

impl Drop for Opened {
    fn drop(&mut self) {
        // SAFETY: takes numbers alone.
        let is_open = |file: &File| unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETFD) } >= 0;
        let status = if self.0.iter().all(is_open) {
            WELL
        } else {
            FILES_CLOSED
        };
        // SAFETY: ends the process.
        unsafe { libc::_exit(status) };
    }
}

const WELL: i32 = 7;
const FILES_CLOSED: i32 = 8;
const CALLED_IN_CHILD: i32 = 9;

thread_local! {
    static OPENED: RefCell<Option<Opened>> = const { RefCell::new(None) };
}

#[test]
fn a_fork_in_a_callback_leaves_the_rest_to_the_parent() {
    isolated(|| {
        gekkota::register_thread("asks");
        let sleeper = common::Sleeper::start("sleeps");
        start();
        // The sampler keeps a file of a thread that it looked at.
        wait_until("a sleeper was seen", || {
            Read::of_running().count("samples_from_outside") > 0
        });
        let (send, receive) = mpsc::channel();
        let forks = move |_| {
            // SAFETY: the child calls what it likes, as a child of a program with threads may after the profiler's handlers.
            let child = unsafe { libc::fork() };
            assert!(child >= 0);
            if child == 0 {
                let files = (0..40)
                    .map(|_| File::open("/dev/null").expect("a file"))
                    .collect();
                OPENED.set(Some(Opened(files)));
            } else {
                _ = send.send(child);
            }
        };
        let parent = std::process::id();
        let (called, is_called) = mpsc::channel();
        let next = move |state| {
            if std::process::id() != parent {
                // SAFETY: ends the process.
                unsafe { libc::_exit(CALLED_IN_CHILD) };
            }
            _ = called.send(state);
        };
        // From within one, so that both wait for the same loop.
        assert!(profiler_callback_after_sampling(move |_| {
            assert!(profiler_callback_after_sampling(forks));
            assert!(profiler_callback_after_sampling(next));
        }));
        let child = receive.recv_timeout(LONG).expect("a child");
        assert_eq!(
            is_called.recv_timeout(LONG),
            Ok(SamplingCompleted),
            "the parent goes on"
        );
        let mut status = 0;
        // SAFETY: the status is a local.
        assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
        assert!(libc::WIFEXITED(status), "the child: {status:#x}");
        assert_eq!(libc::WEXITSTATUS(status), WELL);
        assert_eq!(one_loop(), SamplingCompleted);
        profiler_stop();
        drop(sleeper);
    });
}
