//! Any registered thread's stack can be had at any time, and asking for one disturbs nothing else.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use crate::common::{Read, isolated, thread_cpu, wait_until, work};
use gekkota::stack::{
    StackFeatures, StackFrame, StackSample, SuspendError, profiler_suspend_and_sample_thread,
};
use gekkota::thread::{ThreadId, profiler_current_thread_id};
use gekkota::{
    AutoProfilerLabel, ProfilerSession, StartParams, gecko_profiler_category, register_thread,
    unregister_thread,
};

const SECOND: Duration = Duration::from_secs(1);

/// A thread that is up to something until it is dropped.
struct Helper {
    id: ThreadId,
    stop: mpsc::Sender<()>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Helper {
    /// `body` is called again and again; `once` before.
    fn spawn(once: impl FnOnce() + Send + 'static, body: impl Fn() + Send + 'static) -> Self {
        let (stop, stopped) = mpsc::channel();
        let (tell, told) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            once();
            tell.send(profiler_current_thread_id())
                .expect("the test waits");
            while stopped.try_recv() == Err(mpsc::TryRecvError::Empty) {
                body();
            }
        });
        Self {
            id: told.recv().expect("the thread began"),
            stop,
            thread: Some(thread),
        }
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.stop.send(());
        if let Some(thread) = self.thread.take()
            && !std::thread::panicking()
        {
            thread.join().expect("the thread's asserts hold");
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
    profiler_suspend_and_sample_thread(thread, StackFeatures::FULL, 10 * SECOND)
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

/// Until the thread was met in the function that it spends its time in.
fn sample_in(helper: &Helper, function: &str) -> StackSample {
    let mut met = None;
    wait_until("the thread is in its function", || {
        let stack = sample(helper.id).expect("a stack");
        assert_eq!(stack.thread(), helper.id);
        met = names(&stack)
            .iter()
            .any(|name| name.ends_with(function))
            .then_some(stack);
        met.is_some()
    });
    met.expect("met")
}

fn a_busy_thread_is_found_in_its_work() {
    let helper = busy();
    let before = gekkota::ProfilerTime::now();
    let stack = sample_in(&helper, "::spins");
    assert!(stack.time() > before && stack.time() < gekkota::ProfilerTime::now());
    assert_is_chain(&stack, &["spins", "busy_outer"]);
}

fn labels_and_features_are_as_asked() {
    let helper = Helper::spawn(
        || register_thread("labels"),
        || {
            let _label = AutoProfilerLabel::with_dynamic(
                "a label",
                "of it",
                gecko_profiler_category!(Other),
            );
            busy_outer();
        },
    );
    let label = StackFrame::Label {
        text: "a label of it".to_owned(),
        is_sensitive: true,
    };
    let sample = |features| {
        profiler_suspend_and_sample_thread(helper.id, features, 10 * SECOND).expect("a stack")
    };
    wait_until("the thread is met in its label", || {
        let stack = sample(StackFeatures::FULL);
        stack.frames().contains(&label)
            && names(&stack).iter().any(|name| name.ends_with("::spins"))
    });
    wait_until("labels alone are labels alone", || {
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

fn a_sleeping_thread_answers_and_sleeps_on() {
    static INTERRUPTED: AtomicU32 = AtomicU32::new(0);
    let helper = Helper::spawn(
        || register_thread("sleeps"),
        || {
            let mut none: [libc::pollfd; 0] = [];
            // SAFETY: no descriptors.
            if unsafe { libc::poll(none.as_mut_ptr(), 0, 50) } < 0 {
                INTERRUPTED.fetch_add(1, Ordering::Relaxed);
            }
        },
    );
    let stack = sample_in(&helper, "poll");
    assert!(!stack.is_truncated(), "{stack}");
    // As the documentation says.
    wait_until("poll was interrupted", || {
        sample(helper.id).expect("a stack");
        INTERRUPTED.load(Ordering::Relaxed) > 0
    });
}

fn set_blocked(signal: i32, how: i32) {
    // SAFETY: the set is on this stack.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        libc::sigaddset(&mut set, signal);
        libc::pthread_sigmask(how, &set, std::ptr::null_mut());
    }
}

fn a_thread_that_blocks_the_signal_times_out_and_answers_later() {
    static BLOCK: AtomicBool = AtomicBool::new(true);
    BLOCK.store(true, Ordering::Relaxed);
    let helper = Helper::spawn(
        || {
            register_thread("blocks");
            set_blocked(libc::SIGPROF, libc::SIG_BLOCK);
        },
        || {
            if !BLOCK.load(Ordering::Relaxed) {
                set_blocked(libc::SIGPROF, libc::SIG_UNBLOCK);
            }
            spins();
        },
    );
    for timeout in [
        Duration::ZERO,
        Duration::from_millis(20),
        Duration::from_millis(100),
    ] {
        let before = (Instant::now(), thread_cpu());
        let answer = profiler_suspend_and_sample_thread(helper.id, StackFeatures::FULL, timeout);
        let (waited, cpu) = (before.0.elapsed(), thread_cpu() - before.1);
        match answer {
            Err(SuspendError::TimedOut {
                thread,
                signal,
                timeout: bound,
            }) => {
                assert_eq!((thread, signal, bound), (helper.id, libc::SIGPROF, timeout));
            }
            other => panic!("{other:?}"),
        }
        assert!(
            waited >= timeout && waited < timeout + SECOND,
            "{waited:?} for {timeout:?}"
        );
        assert!(
            cpu < timeout / 2 + Duration::from_millis(10),
            "{cpu:?} of waiting {timeout:?}"
        );
    }
    BLOCK.store(false, Ordering::Relaxed);
    // The late signals find that nobody waits.
    for _ in 0..100 {
        assert!(sample(helper.id).is_ok());
    }
    sample_in(&helper, "::spins");
}

fn those_who_cannot_be_asked_are_told_apart() {
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
        "the thread is gone",
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
    for nobody in [-1, i32::MAX] {
        let nobody = ThreadId::from_number(nobody);
        assert_eq!(
            sample(nobody).expect_err("no thread"),
            SuspendError::Gone { thread: nobody }
        );
    }
}

#[inline(never)]
fn asks_for_itself(id: ThreadId) -> StackSample {
    black_box(sample_inlined(id))
}

#[inline(always)]
fn sample_inlined(id: ThreadId) -> StackSample {
    profiler_suspend_and_sample_thread(id, StackFeatures::FULL, Duration::ZERO)
        .expect("its own stack")
}

fn a_thread_may_ask_for_itself() {
    for registered in [true, false] {
        let ask = move || {
            if registered {
                register_thread("asks for itself");
            }
            for id in [ThreadId::UNSPECIFIED, profiler_current_thread_id()] {
                let stack = asks_for_itself(id);
                assert_eq!(stack.thread(), profiler_current_thread_id());
                assert_is_chain(&stack, &["sample_inlined", "asks_for_itself"]);
            }
        };
        std::thread::spawn(ask).join().expect("thread");
    }
}

fn many_may_ask_at_once_for_each_other_too() {
    let helpers: Vec<_> = (0..4).map(|_| busy()).collect();
    let ids: Vec<_> = helpers.iter().map(|helper| helper.id).collect();
    let askers: Vec<_> = (0..8)
        .map(|asker| {
            let ids = ids.clone();
            std::thread::spawn(move || {
                register_thread("asks");
                for round in 0..200 {
                    let id = ids[(asker + round) % ids.len()];
                    let stack = sample(id).expect("a stack");
                    assert!(
                        stack.thread() == id && stack.frames().len() > 3 && !stack.is_truncated()
                    );
                }
            })
        })
        .collect();
    askers
        .into_iter()
        .for_each(|asker| asker.join().expect("thread"));
}

/// Threads that end while they are asked give their stack or one of the errors for that.
fn threads_that_end_meanwhile_are_no_trouble() {
    for _ in 0..200 {
        let (tell, told) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            register_thread("short");
            tell.send(profiler_current_thread_id())
                .expect("the test waits");
            spins();
        });
        let id = told.recv().expect("the thread began");
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

fn a_child_can_ask_too(helper: ThreadId) {
    // SAFETY: the child calls what it likes, as a child of a program with threads may after the profiler's handlers.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        let well = std::panic::catch_unwind(|| {
            assert!(
                matches!(sample(helper), Err(SuspendError::Gone { .. })),
                "the parent's thread"
            );
            let own = sample(ThreadId::UNSPECIFIED).expect("its own stack");
            assert!(own.thread() == profiler_current_thread_id() && !own.is_truncated());
            a_busy_thread_is_found_in_its_work();
        });
        // SAFETY: ends the process.
        unsafe { libc::_exit(if well.is_ok() { 0 } else { 3 }) };
    }
    let mut status = 0;
    // SAFETY: the status is a local.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert_eq!(status, 0);
}

/// Forks while others ask: neither waits for the other, and both sides go on.
#[test]
fn forking_and_asking_go_together() {
    isolated(|| {
        let helper = busy();
        let asking = Helper::spawn(|| register_thread("asks on"), {
            let id = helper.id;
            move || _ = sample(id).expect("a stack")
        });
        for _ in 0..6 {
            a_child_can_ask_too(helper.id);
        }
        drop(asking);
    });
}

/// Each scenario, once without a session and once in one.
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
    a_busy_thread_is_found_in_its_work
    labels_and_features_are_as_asked
    a_sleeping_thread_answers_and_sleeps_on
    a_thread_that_blocks_the_signal_times_out_and_answers_later
    those_who_cannot_be_asked_are_told_apart
    a_thread_may_ask_for_itself
    many_may_ask_at_once_for_each_other_too
    threads_that_end_meanwhile_are_no_trouble
}

#[test]
fn requests_cost_a_sampled_thread_no_samples() {
    isolated(|| {
        let session = ProfilerSession::start(StartParams::default()).expect("start");
        let sampled = Helper::spawn(|| register_thread("sampled"), busy_outer);
        for _ in 0..2000 {
            sample(sampled.id).expect("a stack");
        }
        drop(sampled);
        let read = Read::from_profile(&session.finish().expect("profile"));
        let samples = read.samples("sampled");
        // The kernel drops a signal of which one is pending; none of the sampler's may be lost by that for long.
        let cpu_ns: u64 = samples.iter().filter_map(|sample| sample.cpu_ns).sum();
        assert!(
            cpu_ns / samples.len() as u64 <= 5_000_000,
            "{} samples of {cpu_ns} ns",
            samples.len()
        );
        assert!(samples.len() > 50, "{} samples", samples.len());
        assert!(
            samples
                .iter()
                .any(|sample| sample.stack.iter().any(|frame| frame.contains("::spins ")))
        );
    });
}

#[test]
fn a_session_with_another_signal_answers() {
    isolated(|| {
        let session = ProfilerSession::start(StartParams::default().signal(libc::SIGRTMIN() + 3))
            .expect("start");
        a_busy_thread_is_found_in_its_work();
        many_may_ask_at_once_for_each_other_too();
        session.finish().expect("profile");
    });
}
