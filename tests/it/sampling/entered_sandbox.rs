//! A sandbox that kills the process for uncommon system calls, and which a thread enters at a moment
//! that the profiler cannot know.

use std::cell::Cell;
use std::io::{Read as _, Write as _};
use std::sync::atomic::{AtomicU64, Ordering};

use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};

use crate::common::coroutine::call_on_stack;
use crate::common::seccomp::{Filtered, answer_calls};
use crate::common::{Read, Sleeper, isolated, wait_until};
use crate::sampling::places::Place;
use crate::sampling::sandbox::{UNCOMMON_CALLS, kill_for};
use gekkota::{ProfilerSession, StartParams};

/// Number of stacks to read from outside.
const REMOTE_SAMPLES: u64 = 30;

/// Wakes a thread again and again, until the sampler has read its stack from outside another
/// [`REMOTE_SAMPLES`] times.
fn wait_for_remote_samples(wake: &mut std::io::PipeWriter) {
    let before = Read::of_running().count("remote_samples");
    wait_until("stacks are read from outside", || {
        wake.write_all(&[0]).expect("the thread reads");
        Read::of_running().count("remote_samples") >= before + REMOTE_SAMPLES
    });
}

/// A session reads stacks from outside on most ticks. It must not do so by a call for which the
/// sandbox kills the process, from the moment on at which the sandbox is there.
#[test]
fn sampler_reads_stacks_in_a_sandbox_that_has_just_been_entered() {
    isolated(|| {
        let session = ProfilerSession::start(StartParams::default()).expect("start");
        let (mut wake_ups, mut wake) = std::io::pipe().expect("a pipe");
        let thread = std::thread::spawn(move || {
            gekkota::register_thread("woken");
            while wake_ups.read_exact(&mut [0]).is_ok() {}
        });
        wait_for_remote_samples(&mut wake);
        kill_for(Filtered::AllThreads, &UNCOMMON_CALLS);
        wait_for_remote_samples(&mut wake);
        drop(wake);
        thread.join().expect("thread");
        session.finish().expect("profile");
    });
}

/// Makes the kernel refuse to open or find any file, as in an empty root folder.
fn hide_all_files() {
    let calls = [
        libc::SYS_open,
        libc::SYS_openat,
        libc::SYS_stat,
        libc::SYS_newfstatat,
        libc::SYS_statx,
    ];
    let no_such_file = libc::SECCOMP_RET_ERRNO | libc::ENOENT as u32;
    let allow = libc::SECCOMP_RET_ALLOW;
    answer_calls(Filtered::AllThreads, &calls, no_such_file, allow);
}

#[test]
fn session_starts_in_a_sandbox_without_proc() {
    static WORKING: Place = Place::new("works without files");
    const THREAD: &str = "without files";
    isolated(|| {
        hide_all_files();
        kill_for(Filtered::AllThreads, &UNCOMMON_CALLS);
        let session = ProfilerSession::start(StartParams::default()).expect("start");
        let sleeper = Sleeper::start("sleeper");
        let thread = std::thread::spawn(|| {
            gekkota::register_thread(THREAD);
            WORKING.work();
        });
        WORKING.release_after(THREAD, 20);
        thread.join().expect("thread");
        drop(sleeper);
        session.finish().expect("profile");
    });
}

const FREE_LABEL: &str = "without a filter";
const FILTERED_LABEL: &str = "with a filter";
static FREE: Place = Place::new(FREE_LABEL);
static FILTERED: Place = Place::new(FILTERED_LABEL);

extern "C" fn works_without_a_filter() {
    FREE.work();
}

extern "C" fn works_with_a_filter() {
    FILTERED.work();
}

fn run_coroutine(start: extern "C" fn()) {
    let mut stack = vec![0u128; 8192];
    let bytes = size_of_val(&stack[..]);
    // SAFETY: the stack outlives the call, and only the coroutine uses it.
    unsafe { call_on_stack(stack.as_mut_ptr().cast(), bytes, start) };
}

/// The handler reads a coroutine's stack by an uncommon call. A filter may belong to one thread.
#[test]
fn coroutine_of_a_thread_with_its_own_filter_is_sampled_without_uncommon_calls() {
    const THREADS: [&str; 2] = ["free", "filtered"];
    isolated(|| {
        let session = ProfilerSession::start(StartParams::default()).expect("start");
        let threads = [
            std::thread::spawn(|| {
                gekkota::register_thread(THREADS[0]);
                run_coroutine(works_without_a_filter);
            }),
            std::thread::spawn(|| {
                gekkota::register_thread(THREADS[1]);
                kill_for(Filtered::CallingThread, &UNCOMMON_CALLS);
                run_coroutine(works_with_a_filter);
            }),
        ];
        FREE.release_after(THREADS[0], 20);
        FILTERED.release_after(THREADS[1], 20);
        for thread in threads {
            thread.join().expect("thread");
        }
        let read = Read::from_profile(&session.finish().expect("profile"));
        // Whether the sample knows a caller of the coroutine's function: only a copied stack has it.
        let has_caller = |thread: &str, place: &Place, label: &str| -> Vec<bool> {
            let samples = read.samples(thread);
            let of_coroutine = samples.iter().filter(|sample| place.has(sample));
            let outside_label = of_coroutine.map(|sample| {
                let outside = sample.stack.iter().take_while(|frame| *frame != label);
                outside.last().expect("a root") != "(truncated)"
            });
            outside_label.collect()
        };
        // The handler reads the free thread's stack. Of the other one, it knows the innermost
        // function. While that thread waits in the kernel, the sampler may read its stack instead.
        assert!(has_caller(THREADS[0], &FREE, FREE_LABEL).contains(&true));
        assert!(has_caller(THREADS[1], &FILTERED, FILTERED_LABEL).contains(&false));
    });
}

/// Number of system calls that the sandbox's handler has answered on threads of the profiler.
static ANSWERED: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static IS_OF_TEST: Cell<bool> = const { Cell::new(false) };
}

/// Refuses the system call, as a broker for a file would that the sandbox hides.
extern "C" fn refuse(_: libc::c_int, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
    ANSWERED.fetch_add(u64::from(!IS_OF_TEST.get()), Ordering::Relaxed);
    // SAFETY: the kernel passes a `ucontext_t` that lives as long as the call.
    let context = unsafe { &mut *context.cast::<libc::ucontext_t>() };
    context.uc_mcontext.gregs[libc::REG_RAX as usize] = -i64::from(libc::EACCES);
}

/// The application answers some system calls of all threads itself, in a handler for `SIGSYS`.
#[test]
fn sandbox_that_answers_calls_in_a_handler_is_survived() {
    isolated(|| {
        IS_OF_TEST.set(true);
        let session = ProfilerSession::start(StartParams::default()).expect("start");
        let action = SigAction::new(
            SigHandler::SigAction(refuse),
            SaFlags::SA_ONSTACK,
            SigSet::empty(),
        );
        // SAFETY: the handler changes only the registers of the interrupted thread.
        unsafe { sigaction(Signal::SIGSYS, &action) }.expect("a handler");
        let (trap, allow) = (libc::SECCOMP_RET_TRAP, libc::SECCOMP_RET_ALLOW);
        answer_calls(Filtered::AllThreads, &[libc::SYS_openat], trap, allow);
        let sleeper = Sleeper::start("sleeper");
        wait_until("a thread of the profiler opens files", || {
            ANSWERED.load(Ordering::Relaxed) > 10
        });
        drop(sleeper);
        session.finish().expect("profile");
    });
}
