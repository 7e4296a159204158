//! Enters a sandbox that kills the process for each system call that is not on its list, and goes
//! on. The filter holds for all threads or for one, and comes before a session or during one.

use std::time::Duration;

use gekkota::ProfilerSession;
use gekkota::profile::Symbolicate;

use super::Orders;
use super::profiled::{
    Workers, choose_names, mark, save_and_read, start_session, wait_for_samples,
};
use crate::random::Random;
use crate::seccomp::{Filtered, answer_calls};
use crate::work::spend_cpu;

/// Maximum time in the sandbox. The sampler has some tasks that it does once a second.
const MAX_STAY_MS: u64 = 2500;

/// The system calls of an ordinary program of the standard library: files, memory, threads, signals
/// and time.
const ORDINARY: &[libc::c_long] = &[
    libc::SYS_brk,
    libc::SYS_clock_getres,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_clone,
    libc::SYS_clone3,
    libc::SYS_close,
    libc::SYS_dup,
    libc::SYS_dup3,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_faccessat,
    libc::SYS_fcntl,
    libc::SYS_fstat,
    libc::SYS_futex,
    libc::SYS_getcwd,
    libc::SYS_getdents64,
    libc::SYS_getegid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getpid,
    libc::SYS_getppid,
    libc::SYS_getrandom,
    libc::SYS_getrusage,
    libc::SYS_gettid,
    libc::SYS_getuid,
    libc::SYS_lseek,
    libc::SYS_madvise,
    libc::SYS_mmap,
    libc::SYS_mprotect,
    libc::SYS_mremap,
    libc::SYS_munmap,
    libc::SYS_nanosleep,
    libc::SYS_newfstatat,
    libc::SYS_openat,
    libc::SYS_pipe2,
    libc::SYS_ppoll,
    libc::SYS_prctl,
    libc::SYS_pread64,
    libc::SYS_prlimit64,
    libc::SYS_pwrite64,
    libc::SYS_read,
    libc::SYS_readlinkat,
    libc::SYS_restart_syscall,
    libc::SYS_rseq,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigpending,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_yield,
    libc::SYS_set_robust_list,
    libc::SYS_sigaltstack,
    libc::SYS_statx,
    libc::SYS_tgkill,
    libc::SYS_uname,
    libc::SYS_unlinkat,
    libc::SYS_write,
    libc::SYS_writev,
];

/// The ordinary calls that only older architectures have.
#[cfg(target_arch = "x86_64")]
const OLDER: &[libc::c_long] = &[
    libc::SYS_access,
    libc::SYS_arch_prctl,
    libc::SYS_dup2,
    libc::SYS_getdents,
    libc::SYS_lstat,
    libc::SYS_open,
    libc::SYS_pipe,
    libc::SYS_poll,
    libc::SYS_readlink,
    libc::SYS_rename,
    libc::SYS_stat,
    libc::SYS_unlink,
];
#[cfg(not(target_arch = "x86_64"))]
const OLDER: &[libc::c_long] = &[];

/// The further calls that the profiler makes in a sandbox, as ARCHITECTURE.md lists them: to send
/// signals, and to save a file.
const OF_THE_PROFILER: &[libc::c_long] = &[
    libc::SYS_fallocate,
    libc::SYS_fdatasync,
    libc::SYS_flock,
    libc::SYS_fsync,
    libc::SYS_ftruncate,
    libc::SYS_linkat,
    libc::SYS_memfd_create,
    libc::SYS_renameat,
    libc::SYS_renameat2,
    libc::SYS_rt_tgsigqueueinfo,
];

/// Installs the filter for the calling thread or for all.
fn enter(threads: Filtered) {
    let calls = [ORDINARY, OLDER, OF_THE_PROFILER].concat();
    let (allow, kill) = (libc::SECCOMP_RET_ALLOW, libc::SECCOMP_RET_KILL_PROCESS);
    answer_calls(threads, &calls, allow, kill);
}

pub fn main(orders: &mut Orders) -> Result<(), String> {
    let random = &mut orders.random;
    gekkota::register_thread("main");
    match random.below(4) {
        0 => {
            enter(Filtered::AllThreads);
            go_on(start_session(random)?, random)
        }
        1 => {
            let session = start_session(random)?;
            with_one_confined_thread(&session, random)?;
            session
                .finish()
                .map_err(|error| error.to_string())
                .map(drop)
        }
        2 => midway(Filtered::CallingThread, random),
        _ => midway(Filtered::AllThreads, random),
    }
}

/// Enters the sandbox during a session, which the threads from before share.
fn midway(threads: Filtered, random: &mut Random) -> Result<(), String> {
    let session = start_session(random)?;
    let workers = Workers::start(3);
    wait_for_samples(&session, 2)?;
    enter(threads);
    if random.once_in(2) {
        workers.end();
    }
    go_on(session, random)
}

/// Does in the sandbox what a program does with the profiler.
fn go_on(session: ProfilerSession, random: &mut Random) -> Result<(), String> {
    let workers = Workers::start(2);
    wait_for_samples(&session, 2)?;
    mark();
    std::thread::sleep(Duration::from_millis(random.below(MAX_STAY_MS)));
    gekkota::stack::profiler_capture_backtrace();
    save_and_read(&session, choose_names(random))?;
    workers.end();
    if random.once_in(2) {
        session.finish().map_err(|error| error.to_string())?;
        let session = start_session(random)?;
        let _workers = Workers::start(2);
        wait_for_samples(&session, 2)?;
        save_and_read(&session, Symbolicate::No)?;
    } else if random.once_in(2) {
        // The process ends during the session.
        std::mem::forget(session);
    }
    Ok(())
}

/// Lets one thread enter the sandbox, and uses the profiler there and elsewhere.
fn with_one_confined_thread(session: &ProfilerSession, random: &mut Random) -> Result<(), String> {
    let stay = Duration::from_millis(random.below(MAX_STAY_MS));
    let _workers = Workers::start(2);
    std::thread::scope(|scope| {
        let confined = scope.spawn(|| {
            gekkota::register_thread("confined");
            enter(Filtered::CallingThread);
            mark();
            wait_for_samples(session, 2)?;
            std::thread::sleep(stay);
            spend_cpu(Duration::from_millis(5));
            gekkota::stack::profiler_capture_backtrace();
            save_and_read(session, Symbolicate::No)
        });
        wait_for_samples(session, 5)?;
        confined.join().expect("the thread does not panic")
    })
    .and_then(|()| save_and_read(session, Symbolicate::No))
}
