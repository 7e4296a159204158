//! The stack of any registered thread is available at any time, and a request for it disturbs
//! nothing else.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use crate::common::{self, Read, isolated, thread_cpu, wait_until, work};
use gekkota::stack::{
    StackFeatures, StackFrame, StackSample, SuspendError, profiler_suspend_and_sample_thread,
};
use gekkota::thread::{ThreadId, profiler_current_thread_id};
use gekkota::{
    AutoProfilerLabel, ProfilerSession, StartParams, gecko_profiler_category, register_thread,
    unregister_thread,
};

/// Timeout of a request that must be answered. Only a hang reaches it.
const LONGEST_WAIT: Duration = Duration::from_secs(120);

/// A thread that repeats its work until this value is dropped.
struct Helper {
    id: ThreadId,
    stop: mpsc::Sender<()>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Helper {
    /// Starts a thread that calls `prepare` once and then `body` repeatedly.
    fn spawn(prepare: impl FnOnce() + Send + 'static, body: impl Fn() + Send + 'static) -> Self {
        let (stop, stopped) = mpsc::channel();
        let (send_id, id) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            prepare();
            send_id
                .send(profiler_current_thread_id())
                .expect("the test waits");
            while stopped.try_recv() == Err(mpsc::TryRecvError::Empty) {
                body();
            }
        });
        Self {
            id: id.recv().expect("the thread has started"),
            stop,
            thread: Some(thread),
        }
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        // The thread may have ended.
        let _ = self.stop.send(());
        if let Some(thread) = self.thread.take()
            && !std::thread::panicking()
        {
            thread.join().expect("the thread does not panic");
        }
    }
}

#[inline(never)]
fn spins() {
    black_box(work(black_box(20_000)));
}

#[inline(never)]
fn busy_outer() {
    spins();
    black_box(());
}

fn busy() -> Helper {
    Helper::spawn(|| register_thread("busy"), busy_outer)
}

fn sample(thread: ThreadId) -> Result<StackSample, SuspendError> {
    profiler_suspend_and_sample_thread(thread, StackFeatures::FULL, LONGEST_WAIT)
}

fn names(stack: &StackSample) -> Vec<String> {
    stack
        .names()
        .iter()
        .flatten()
        .map(|name| name.name.clone())
        .collect()
}

#[track_caller]
fn assert_is_chain(stack: &StackSample, ours: &[&str]) {
    let names = names(stack);
    let found: Vec<_> = names
        .iter()
        .filter_map(|name| {
            ours.iter()
                .find(|ours| name.rsplit("::").next() == Some(ours))
        })
        .collect();
    assert_eq!(found, ours.iter().collect::<Vec<_>>(), "{stack}");
    assert!(!stack.is_truncated(), "{stack}");
    assert!(
        names.last().is_some_and(|name| name.contains("clone")),
        "{stack}"
    );
}

/// Requests stacks until one has the function in which the thread spends its time.
fn sample_in(helper: &Helper, function: &str) -> StackSample {
    let mut found = None;
    wait_until("the thread is in its function", || {
        let stack = sample(helper.id).expect("a stack");
        assert_eq!(stack.thread(), helper.id);
        found = names(&stack)
            .iter()
            .any(|name| name.ends_with(function))
            .then_some(stack);
        found.is_some()
    });
    found.expect("the condition holds")
}

fn busy_thread_is_sampled_in_its_work() {
    let helper = busy();
    let before = gekkota::ProfilerTime::now();
    let stack = sample_in(&helper, "::spins");
    assert!(stack.time() > before && stack.time() < gekkota::ProfilerTime::now());
    assert_is_chain(&stack, &["spins", "busy_outer"]);
}

fn stack_has_the_requested_features() {
    let helper = Helper::spawn(
        || register_thread("labels"),
        || {
            let _label = AutoProfilerLabel::with_dynamic(
                "a label",
                "of a thread",
                gecko_profiler_category!(Other),
            );
            busy_outer();
        },
    );
    let label = StackFrame::Label {
        text: "a label of a thread".to_owned(),
        is_sensitive: true,
    };
    let sample = |features| {
        profiler_suspend_and_sample_thread(helper.id, features, LONGEST_WAIT).expect("a stack")
    };
    wait_until("the thread is sampled in its label", || {
        let stack = sample(StackFeatures::FULL);
        stack.frames().contains(&label)
            && names(&stack).iter().any(|name| name.ends_with("::spins"))
    });
    wait_until("the stack of labels has the label", || {
        let stack = sample(StackFeatures::LABELS);
        assert!(
            stack.frames().iter().all(|frame| *frame == label) && !stack.is_truncated(),
            "{stack}"
        );
        stack.frames().len() == 1
    });
    let leaf = sample(StackFeatures::LEAF);
    assert!(
        leaf.frames().len() == 1 && matches!(leaf.frames()[0], StackFrame::Native { .. }),
        "{leaf}"
    );
    let native = sample(StackFeatures::NATIVE);
    assert!(
        native.frames().len() > 5 && !native.frames().contains(&label),
        "{native}"
    );
}

fn sleeping_thread_answers_with_its_poll_interrupted() {
    static INTERRUPTED: AtomicU32 = AtomicU32::new(0);
    let helper = Helper::spawn(
        || register_thread("sleeps"),
        || {
            let mut none: [libc::pollfd; 0] = [];
            // SAFETY: with zero entries, the kernel accesses no memory.
            if unsafe { libc::poll(none.as_mut_ptr(), 0, 50) } < 0 {
                INTERRUPTED.fetch_add(1, Ordering::Relaxed);
            }
        },
    );
    let stack = sample_in(&helper, "poll");
    assert!(!stack.is_truncated(), "{stack}");
    // The documentation of the function says that system calls may be interrupted.
    wait_until("poll was interrupted", || {
        sample(helper.id).expect("a stack");
        INTERRUPTED.load(Ordering::Relaxed) > 0
    });
}

fn set_blocked(signal: i32, how: i32) {
    // SAFETY: the pointers are to a local or null.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        libc::sigaddset(&mut set, signal);
        libc::pthread_sigmask(how, &set, std::ptr::null_mut());
    }
}

fn thread_that_blocks_the_signal_times_out_and_answers_later() {
    static BLOCK: AtomicBool = AtomicBool::new(true);
    BLOCK.store(true, Ordering::Relaxed);
    let helper = Helper::spawn(
        || {
            register_thread("blocks");
            set_blocked(libc::SIGURG, libc::SIG_BLOCK);
        },
        || {
            if !BLOCK.load(Ordering::Relaxed) {
                set_blocked(libc::SIGURG, libc::SIG_UNBLOCK);
            }
            spins();
        },
    );
    for timeout in [
        Duration::ZERO,
        Duration::from_millis(20),
        Duration::from_millis(100),
    ] {
        // The clock of the thread may also count time during which the virtual machine was paused.
        wait_until("a request sleeps during most of its timeout", || {
            let before = (Instant::now(), thread_cpu());
            let answer =
                profiler_suspend_and_sample_thread(helper.id, StackFeatures::FULL, timeout);
            let (waited, cpu) = (before.0.elapsed(), thread_cpu() - before.1);
            match answer {
                Err(SuspendError::TimedOut {
                    thread,
                    signal,
                    timeout: bound,
                }) => {
                    assert_eq!((thread, signal, bound), (helper.id, libc::SIGURG, timeout));
                }
                other => panic!("{other:?}"),
            }
            assert!(waited >= timeout, "{waited:?} for {timeout:?}");
            cpu < timeout / 2 + Duration::from_millis(10)
        });
    }
    BLOCK.store(false, Ordering::Relaxed);
    // The late signals find no pending request.
    for _ in 0..100 {
        assert!(sample(helper.id).is_ok());
    }
    sample_in(&helper, "::spins");
}

fn request_to_an_unsuitable_thread_returns_the_reason() {
    let unregistered = Helper::spawn(|| (), spins);
    assert_eq!(
        sample(unregistered.id).expect_err("not registered"),
        SuspendError::NotRegistered {
            thread: unregistered.id
        }
    );
    let id = unregistered.id;
    drop(unregistered);
    wait_until(
        "the thread has exited",
        || matches!(sample(id), Err(SuspendError::Gone { thread }) if thread == id),
    );
    let twice = Helper::spawn(
        || {
            register_thread("was registered");
            unregister_thread();
        },
        spins,
    );
    let error = sample(twice.id).expect_err("not registered");
    assert_eq!(error, SuspendError::NotRegistered { thread: twice.id });
    let text = error.to_string();
    assert!(
        text.contains(&twice.id.to_number().to_string()) && text.contains("expected"),
        "{text}"
    );
    for unused in [-1, i32::MAX] {
        let unused = ThreadId::from_number(unused);
        assert_eq!(
            sample(unused).expect_err("no thread"),
            SuspendError::Gone { thread: unused }
        );
    }
}

#[inline(never)]
fn samples_itself(id: ThreadId) -> StackSample {
    black_box(sample_inlined(id))
}

#[inline(always)]
fn sample_inlined(id: ThreadId) -> StackSample {
    profiler_suspend_and_sample_thread(id, StackFeatures::FULL, Duration::ZERO)
        .expect("its own stack")
}

fn thread_may_sample_itself() {
    for registered in [true, false] {
        let sample_itself = move || {
            if registered {
                register_thread("samples itself");
            }
            for id in [ThreadId::UNSPECIFIED, profiler_current_thread_id()] {
                let stack = samples_itself(id);
                assert_eq!(stack.thread(), profiler_current_thread_id());
                assert_is_chain(&stack, &["sample_inlined", "samples_itself"]);
            }
        };
        std::thread::spawn(sample_itself).join().expect("thread");
    }
}

fn concurrent_requests_are_all_answered() {
    let helpers: Vec<_> = (0..4).map(|_| busy()).collect();
    let ids: Vec<_> = helpers.iter().map(|helper| helper.id).collect();
    let requesters: Vec<_> = (0..8)
        .map(|requester| {
            let ids = ids.clone();
            std::thread::spawn(move || {
                register_thread("requester");
                for round in 0..60 {
                    let id = ids[(requester + round) % ids.len()];
                    let stack = sample(id).expect("a stack");
                    assert!(
                        stack.thread() == id && stack.frames().len() > 3 && !stack.is_truncated()
                    );
                }
            })
        })
        .collect();
    requesters
        .into_iter()
        .for_each(|requester| requester.join().expect("thread"));
}

/// A request to a thread that is about to end returns its stack or an error for a thread that
/// ended.
fn thread_that_ends_during_a_request_is_reported() {
    for _ in 0..80 {
        let (send_id, id) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            register_thread("short");
            send_id
                .send(profiler_current_thread_id())
                .expect("the test waits");
            spins();
        });
        let id = id.recv().expect("the thread has started");
        loop {
            match sample(id) {
                Ok(_) => {}
                Err(
                    SuspendError::Gone { .. }
                    | SuspendError::NotRegistered { .. }
                    | SuspendError::NoStack { .. },
                ) => break,
                Err(error) => panic!("{error}"),
            }
        }
        thread.join().expect("thread");
    }
}

fn check_requests_in_a_child(helper: ThreadId) {
    common::assert_in_forked_child(|| {
        assert!(
            matches!(sample(helper), Err(SuspendError::Gone { .. })),
            "the parent's thread"
        );
        let own = sample(ThreadId::UNSPECIFIED).expect("its own stack");
        assert!(own.thread() == profiler_current_thread_id() && !own.is_truncated());
        busy_thread_is_sampled_in_its_work();
        true
    });
}

/// Forks while another thread makes requests. Neither waits for the other, and both processes go
/// on.
#[test]
fn requests_during_a_fork_go_on_in_both_processes() {
    isolated(|| {
        let helper = busy();
        let requester = Helper::spawn(|| register_thread("requester"), {
            let id = helper.id;
            move || _ = sample(id).expect("a stack")
        });
        for _ in 0..3 {
            check_requests_in_a_child(helper.id);
        }
        drop(requester);
    });
}

/// Makes two tests of each scenario: without a session and within one.
macro_rules! with_and_without_a_session {
    ($($scenario:ident)+) => {
        mod without_a_session {
            use crate::common::isolated;

            $(
                #[test]
                fn $scenario() {
                    isolated(|| super::$scenario());
                }
            )+
        }

        mod in_a_session {
            use gekkota::{ProfilerSession, StartParams};

            use crate::common::isolated;

            $(
                #[test]
                fn $scenario() {
                    isolated(|| {
                        let session = ProfilerSession::start(StartParams::default()).expect("start");
                        super::$scenario();
                        session.finish().expect("profile");
                    });
                }
            )+
        }
    };
}

with_and_without_a_session! {
    busy_thread_is_sampled_in_its_work
    stack_has_the_requested_features
    sleeping_thread_answers_with_its_poll_interrupted
    thread_that_blocks_the_signal_times_out_and_answers_later
    request_to_an_unsuitable_thread_returns_the_reason
    thread_may_sample_itself
    concurrent_requests_are_all_answered
    thread_that_ends_during_a_request_is_reported
}

#[test]
fn sampled_thread_gets_samples_despite_constant_requests() {
    isolated(|| {
        let session = ProfilerSession::start(StartParams::default()).expect("start");
        let sampled = Helper::spawn(|| register_thread("sampled"), busy_outer);
        for _ in 0..500 {
            sample(sampled.id).expect("a stack");
        }
        // The kernel drops a signal while one with the same number is pending. The sampler's
        // request must not be lost for good by that.
        wait_until("the thread has samples in its function", || {
            for _ in 0..100 {
                sample(sampled.id).expect("a stack");
            }
            let read = Read::from_profile(&session.snapshot().expect("active"));
            let samples = read.samples("sampled");
            let mut frames = samples.iter().flat_map(|sample| &sample.stack);
            samples.len() > 50 && frames.any(|frame| frame.contains("::spins "))
        });
        drop(sampled);
        session.finish().expect("profile");
    });
}

#[test]
fn session_with_another_signal_answers() {
    isolated(|| {
        let session = ProfilerSession::start(StartParams::default().signal(libc::SIGRTMIN() + 3))
            .expect("start");
        busy_thread_is_sampled_in_its_work();
        concurrent_requests_are_all_answered();
        session.finish().expect("profile");
    });
}
