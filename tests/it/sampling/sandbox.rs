//! In a sandbox that kills for system calls that it does not know, the profiler does without them.

use std::time::Duration;

use crate::common::{Read, Sleeper, isolated, wait_until, work_for_cpu};
use gekkota::{ProfilerSession, StartParams};

/// A filter for the whole process that kills for each of these, and allows everything else.
fn kill_for(calls: &[libc::c_long]) {
    const LOAD_WORD: u16 = 0x20;
    const JUMP_IF_EQUAL: u16 = 0x15;
    const RETURN: u16 = 0x06;
    let instruction = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let mut program = vec![instruction(LOAD_WORD, 0, 0, 0)];
    for call in calls {
        program.push(instruction(JUMP_IF_EQUAL, 0, 1, *call as u32));
        program.push(instruction(RETURN, 0, 0, libc::SECCOMP_RET_KILL_PROCESS));
    }
    program.push(instruction(RETURN, 0, 0, libc::SECCOMP_RET_ALLOW));
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
