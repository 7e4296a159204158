//! In a sandbox that kills the process for unusual system calls, the profiler makes none.

use std::io::{Read as _, Write as _};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;

use crate::common::seccomp::{
    Filtered, JUMP_IF_ANY_BIT, JUMP_IF_EQUAL, LOAD_WORD, RETURN, answer_calls, install_filter,
    instruction,
};
use crate::common::{Read, Sleeper, isolated, samples_of, wait_until, work};
use crate::sampling::places::{Place, is_in, samples_of_stay};
use gekkota::{ProfilerSession, StartParams};

/// System calls for which a sandbox may kill the process, and which the profiler makes elsewhere.
pub(crate) const UNCOMMON_CALLS: [libc::c_long; 12] = [
    libc::SYS_perf_event_open,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_ptrace,
    libc::SYS_timer_create,
    libc::SYS_timer_delete,
    libc::SYS_membarrier,
    libc::SYS_unshare,
    libc::SYS_close_range,
    libc::SYS_fstatfs,
    libc::SYS_sched_getattr,
    libc::SYS_sched_setattr,
];

/// Installs a filter that kills the process for each of these system calls, and allows all others.
pub(crate) fn kill_for(threads: Filtered, calls: &[libc::c_long]) {
    let (kill, allow) = (libc::SECCOMP_RET_KILL_PROCESS, libc::SECCOMP_RET_ALLOW);
    answer_calls(threads, calls, kill, allow);
}

/// Installs a filter that kills the process for a `prctl` that sets the timer slack.
fn kill_for_timer_slack() {
    // Offsets in `struct seccomp_data`.
    let (number, first_argument) = (0, 16);
    install_filter(
        Filtered::AllThreads,
        &mut [
            instruction(LOAD_WORD, 0, 0, number),
            instruction(JUMP_IF_EQUAL, 0, 3, libc::SYS_prctl as u32),
            instruction(LOAD_WORD, 0, 0, first_argument),
            instruction(JUMP_IF_EQUAL, 0, 1, libc::PR_SET_TIMERSLACK as u32),
            instruction(RETURN, 0, 0, libc::SECCOMP_RET_KILL_PROCESS),
            instruction(RETURN, 0, 0, libc::SECCOMP_RET_ALLOW),
        ],
    );
}

/// Installs a filter that refuses to read the CPU clocks of other threads, with this error number.
/// Their clock ids are negative.
fn refuse_thread_clocks(error: i32) {
    const SIGN: u32 = 1 << 31;
    // Offsets in `struct seccomp_data`.
    let (number, first_argument) = (0, 16);
    install_filter(
        Filtered::AllThreads,
        &mut [
            instruction(LOAD_WORD, 0, 0, number),
            instruction(JUMP_IF_EQUAL, 0, 3, libc::SYS_clock_gettime as u32),
            instruction(LOAD_WORD, 0, 0, first_argument),
            instruction(JUMP_IF_ANY_BIT, 0, 1, SIGN),
            instruction(RETURN, 0, 0, libc::SECCOMP_RET_ERRNO | error as u32),
            instruction(RETURN, 0, 0, libc::SECCOMP_RET_ALLOW),
        ],
    );
}

/// With this many idle threads, the sampler asks whether any thread has run.
const SLEEPERS: usize = 50;
/// Maximum number of samples after which the sampler, with so many idle threads, notices that a
/// thread has run: ten ticks between two checks, and eight between two hints. Eight more may appear
/// later than their ticks were, by at most twice the tolerance for uneven ticks. The last sample of
/// a stay may be late, too: it has the time at which its tick began.
const MAX_LATE_SAMPLES: usize = 28;
const THREAD: &str = "in the sandbox";
static WORKING: Place = Place::new("working");
static SLEEPING: Place = Place::new("sleeping");

#[inline(never)]
fn works_in_sandbox() {
    WORKING.work();
    std::hint::black_box(1);
}

#[inline(never)]
fn sleeps_in_sandbox(wake_ups: &mut std::io::PipeReader) {
    SLEEPING.repeat(|| wake_ups.read_exact(&mut [0]).expect("one byte"));
    std::hint::black_box(2);
}

/// The CPU timers of this process.
fn timers() -> String {
    std::fs::read_to_string("/proc/self/timers").expect("the kernel lists them")
}

/// Starts a session with [`SLEEPERS`] sleepers, and waits until it has a timer and has sampled all
/// sleepers.
fn start_with_timer() -> ProfilerSession {
    let session = ProfilerSession::start(StartParams::default()).expect("start");
    wait_until("the sampler asks whether any thread has run", || {
        timers().contains("ID:")
    });
    wait_until("all sleepers are idle", || {
        let read = Read::of_running();
        let threads = read.threads().iter();
        let sleepers = threads.filter(|thread| thread["name"] == "sleeper");
        let has_samples = |thread: &serde_json::Value| samples_of(thread).len() >= 10;
        sleepers.filter(|thread| has_samples(thread)).count() == SLEEPERS
    });
    session
}

#[test]
fn sandboxed_session_makes_no_unusual_system_calls() {
    isolated(|| {
        let sleepers: Vec<_> = (0..SLEEPERS).map(|_| Sleeper::start("sleeper")).collect();
        for _ in 0..3 {
            start_with_timer().finish().expect("profile");
            assert_eq!(timers(), "", "the timer is deleted");
        }
        let session = start_with_timer();
        kill_for(Filtered::AllThreads, &UNCOMMON_CALLS);
        kill_for_timer_slack();
        // The sandbox was installed during this session.
        session.finish().expect("profile");
        let session = ProfilerSession::start(StartParams::default()).expect("start");
        let (mut wake_ups, mut wake) = std::io::pipe().expect("a pipe");
        let (begin_round, rounds) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            gekkota::register_thread(THREAD);
            while rounds.recv().is_ok() {
                works_in_sandbox();
                sleeps_in_sandbox(&mut wake_ups);
            }
        });
        let mut stays = Vec::new();
        // Each round has waits of its own, which take long on a busy machine.
        let mut remote_samples = 0;
        while remote_samples <= 5 || stays.len() < 10 {
            assert!(stays.len() < 100, "no stacks are read from outside");
            begin_round.send(()).expect("the thread lives");
            let working = WORKING.release_after(THREAD, MAX_LATE_SAMPLES + 10);
            let sleeping = SLEEPING.release_after(THREAD, MAX_LATE_SAMPLES + 10);
            wake.write_all(&[0]).expect("the thread reads");
            stays.push((working, sleeping));
            remote_samples = Read::of_running().count("remote_samples");
        }
        drop(begin_round);
        thread.join().expect("thread");
        drop(sleepers);
        let read = Read::from_profile(&session.finish().expect("profile"));
        let samples = read.samples(THREAD);
        for (working, sleeping) in stays {
            for (stay, function) in [
                (working, "works_in_sandbox"),
                (sleeping, "sleeps_in_sandbox"),
            ] {
                let within = samples_of_stay(&read, &samples, stay);
                let settled = &within[MAX_LATE_SAMPLES..within.len() - 1];
                let wrong = settled.iter().find(|sample| !is_in(sample, function));
                assert!(wrong.is_none(), "not in {function}: {wrong:?}");
            }
        }
        println!(
            "{} samples, {} from outside",
            samples.len(),
            read.count("remote_samples")
        );
    });
}

#[inline(never)]
fn works_until(end: &AtomicBool) -> u64 {
    let mut value = 0;
    while !end.load(Ordering::Relaxed) {
        value ^= work(1000);
    }
    value
}

fn check_threads_without_clocks(error: i32) {
    const FUNCTIONS: [(&str, &str); 2] = [("working", "works_until"), ("asleep", "recv")];
    let session = ProfilerSession::start(StartParams::default()).expect("start");
    // Sampled before and after the clocks are refused.
    let before = Sleeper::start("before");
    let has_samples = |read: &Read, name: &str, count: usize| {
        let is_named = read.threads().iter().any(|thread| thread["name"] == name);
        is_named && read.samples(name).len() >= count
    };
    wait_until("the thread is sampled with its clock", || {
        has_samples(&Read::of_running(), "before", 1)
    });
    refuse_thread_clocks(error);
    let sleeper = Sleeper::start("asleep");
    let end = AtomicBool::new(false);
    let profile = std::thread::scope(|scope| {
        scope.spawn(|| {
            gekkota::register_thread("working");
            works_until(&end)
        });
        wait_until("both threads are sampled without their clocks", || {
            let read = Read::of_running();
            has_samples(&read, "working", 5) && has_samples(&read, "asleep", 5)
        });
        wait_until("both threads are sampled in their functions", || {
            let text = gekkota::profiler_get_profile().expect("a session runs");
            let read = Read::from_text(&text);
            FUNCTIONS.iter().all(|(name, function)| {
                let samples = read.samples(name);
                samples.iter().any(|sample| is_in(sample, function))
            })
        });
        end.store(true, Ordering::Relaxed);
        session.finish().expect("profile")
    });
    drop((sleeper, before));
    let read = Read::from_profile(&profile);
    assert_eq!(read.count("threads_found_dead"), 0);
    assert_eq!(read.count("sampler_panics"), 0);
    assert!(read.count("threads_without_clock") >= 3);
    for (name, function) in FUNCTIONS {
        let samples = read.samples(name);
        assert!(samples.iter().all(|sample| sample.cpu_ns.is_none()));
        assert!(
            samples.iter().any(|sample| is_in(sample, function)),
            "no sample of {name} is in {function}"
        );
    }
}

#[test]
fn threads_with_forbidden_clocks_are_sampled() {
    isolated(|| check_threads_without_clocks(libc::EPERM));
}

#[test]
fn threads_with_invalid_clocks_are_sampled() {
    isolated(|| check_threads_without_clocks(libc::EINVAL));
}
