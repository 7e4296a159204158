//! In a sandbox that kills for system calls that it does not know, the profiler does without them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::common::{Read, Sleeper, isolated, wait_until, work, work_for_cpu};
use gekkota::{ProfilerSession, StartParams};

const LOAD_WORD: u16 = 0x20;
const JUMP_IF_EQUAL: u16 = 0x15;
const JUMP_IF_ANY_BIT: u16 = 0x45;
const RETURN: u16 = 0x06;

fn instruction(code: u16, jt: u8, jf: u8, k: u32) -> libc::sock_filter {
    libc::sock_filter { code, jt, jf, k }
}

/// Installs a filter for the whole process that kills for each of these, and allows everything else.
fn kill_for(calls: &[libc::c_long]) {
    let mut program = vec![instruction(LOAD_WORD, 0, 0, 0)];
    for call in calls {
        program.push(instruction(JUMP_IF_EQUAL, 0, 1, *call as u32));
        program.push(instruction(RETURN, 0, 0, libc::SECCOMP_RET_KILL_PROCESS));
    }
    program.push(instruction(RETURN, 0, 0, libc::SECCOMP_RET_ALLOW));
    install(&mut program);
}

/// Installs a filter for the whole process that refuses to read the CPU clocks of other threads, with
/// this error number. Their clock ids are negative.
fn refuse_thread_clocks(error: i32) {
    const SIGN: u32 = 1 << 31;
    // Offsets in `struct seccomp_data`.
    let (number, first_argument) = (0, 16);
    install(&mut [
        instruction(LOAD_WORD, 0, 0, number),
        instruction(JUMP_IF_EQUAL, 0, 3, libc::SYS_clock_gettime as u32),
        instruction(LOAD_WORD, 0, 0, first_argument),
        instruction(JUMP_IF_ANY_BIT, 0, 1, SIGN),
        instruction(RETURN, 0, 0, libc::SECCOMP_RET_ERRNO | error as u32),
        instruction(RETURN, 0, 0, libc::SECCOMP_RET_ALLOW),
    ]);
}

fn install(program: &mut [libc::sock_filter]) {
    let filter = libc::sock_fprog {
        len: program.len() as u16,
        filter: program.as_mut_ptr(),
    };
    // SAFETY: the program lives until the calls are over.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        let (mode, all_threads) = (
            libc::SECCOMP_SET_MODE_FILTER,
            libc::SECCOMP_FILTER_FLAG_TSYNC,
        );
        assert_eq!(
            libc::syscall(libc::SYS_seccomp, mode, all_threads, &raw const filter),
            0
        );
    }
}

/// The CPU timers of this process.
fn timers() -> String {
    std::fs::read_to_string("/proc/self/timers").expect("the kernel lists them")
}

/// A session beside many sleepers, which has a timer.
fn start_with_timer() -> ProfilerSession {
    let session = ProfilerSession::start(StartParams::default()).expect("start");
    wait_until("it is asked whether anybody runs", || {
        timers().contains("ID:")
    });
    session
}

#[test]
fn nothing_unusual_is_called_in_a_sandbox() {
    isolated(|| {
        // Beside many that sleep it is asked whether anybody has run at all.
        let sleepers: Vec<_> = (0..50).map(|_| Sleeper::start("sleeper")).collect();
        for _ in 0..3 {
            start_with_timer().finish().expect("profile");
            assert_eq!(timers(), "", "it is given back");
        }
        let session = start_with_timer();
        kill_for(&[
            libc::SYS_perf_event_open,
            libc::SYS_process_vm_readv,
            libc::SYS_process_vm_writev,
            libc::SYS_ptrace,
            libc::SYS_timer_create,
            libc::SYS_timer_delete,
            libc::SYS_membarrier,
        ]);
        // The sandbox came while it ran.
        session.finish().expect("profile");
        let session = ProfilerSession::start(StartParams::default()).expect("start");
        let thread = std::thread::spawn(|| {
            gekkota::register_thread("in the sandbox");
            for _ in 0..20 {
                work_for_cpu(Duration::from_millis(5));
                std::thread::sleep(Duration::from_millis(10));
            }
        });
        wait_until("it has ended", || thread.is_finished());
        thread.join().expect("thread");
        drop(sleepers);
        let read = Read::from_profile(&session.finish().expect("profile"));
        let samples = read.samples("in the sandbox");
        let asleep = samples
            .iter()
            .filter(|sample| sample.stack.iter().any(|frame| frame.contains("sleep")))
            .count();
        println!(
            "{} samples, {asleep} asleep, {} from outside",
            samples.len(),
            read.count("samples_from_outside")
        );
        assert!(samples.len() > 80 && asleep > 50);
        assert!(
            read.count("samples_from_outside") > 5,
            "by the file of the memory"
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

fn threads_without_clocks_are_sampled(error: i32) {
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
        end.store(true, Ordering::Relaxed);
        session.finish().expect("profile")
    });
    drop((sleeper, before));
    let read = Read::from_profile(&profile);
    assert_eq!(read.count("threads_found_dead"), 0);
    assert_eq!(read.count("sampler_panics"), 0);
    assert!(read.count("threads_without_clock") >= 3);
    for (name, function) in [("working", "works_until"), ("asleep", "recv")] {
        let samples = read.samples(name);
        assert!(samples.iter().all(|sample| sample.cpu_ns.is_none()));
        let is_in = |frame: &String| frame.contains(function);
        assert!(
            samples.iter().any(|sample| sample.stack.iter().any(is_in)),
            "no sample of {name} is in {function}"
        );
    }
}

#[test]
fn threads_whose_clocks_are_not_permitted_are_sampled() {
    isolated(|| threads_without_clocks_are_sampled(libc::EPERM));
}

#[test]
fn threads_whose_clocks_are_invalid_are_sampled() {
    isolated(|| threads_without_clocks_are_sampled(libc::EINVAL));
}
