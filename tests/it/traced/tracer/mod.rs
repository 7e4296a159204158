//! Traces a child process by ptrace. The child is the same test in the same program; an environment
//! variable names its role.
//!
//! The child's threads run freely, except while the tracer follows one of them. A child that
//! outlives its tracer or runs longer than [`TIME_LIMIT`] is killed.
#![allow(dead_code, unreachable_pub, reason = "each test uses a part of it")]

pub mod code;
pub mod workload;

use std::collections::{HashMap, HashSet};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Duration;

use nix::sys::ptrace;
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

const ROLE: &str = "GEKKOTA_TEST_TRACED_AS";

/// Maximum time of tracing a child. Only a hang reaches it.
pub const TIME_LIMIT: Duration = Duration::from_secs(240);

/// Returns the role of this process if it is a traced child.
pub fn role() -> Option<String> {
    std::env::var(ROLE).ok()
}

/// Waits for the next change of a thread, without the children of other threads, which run other
/// tests.
fn wait() -> WaitStatus {
    let flags = WaitPidFlag::__WALL | WaitPidFlag::__WNOTHREAD;
    waitpid(None, Some(flags)).expect("a traced thread")
}

/// How a stopped thread continues.
#[derive(Clone, Copy, Debug)]
pub enum Go {
    /// Until a signal arrives.
    On,
    /// Until it enters or leaves the kernel.
    ToSystemCall,
    /// For one instruction.
    OneStep,
}

/// Why a thread has stopped. It stays stopped until [`Traced::go`].
#[derive(Debug)]
pub enum StopReason {
    /// A signal is about to be delivered.
    Signal { signal: i32, request: bool },
    /// The thread enters or leaves a system call.
    SystemCall(StopPoint),
    /// The step is done.
    Stepped,
}

/// The point of the program at which a thread has stopped.
#[derive(Clone, Copy, Debug)]
pub struct StopPoint {
    pub pc: u64,
    pub sp: u64,
    /// Number and arguments of the system call that the thread is entering.
    pub entered: Option<(i64, [u64; 6])>,
}

pub struct Traced {
    child: Child,
    /// Open while the child shall work.
    stdin: Option<ChildStdin>,
    known: HashSet<i32>,
    stepping: HashSet<i32>,
    names: HashMap<i32, String>,
}

impl Traced {
    /// Runs `test` of this program in a child process, in a role.
    pub fn start(test: &str, role: &str) -> Self {
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command
            .args([test, "--exact", "--nocapture"])
            .env(ROLE, role)
            .stdin(Stdio::piped())
            .stdout(Stdio::null());
        let trace_me = || ptrace::traceme().map_err(Into::into);
        // SAFETY: the closure makes one system call and does not allocate.
        unsafe { command.pre_exec(trace_me) };
        let child = command.spawn().unwrap_or_else(|error| {
            panic!("cannot trace a child: {error}. This test needs ptrace of its own child; a container may forbid it")
        });
        let mut traced = Self {
            child,
            stdin: None,
            known: HashSet::new(),
            stepping: HashSet::new(),
            names: HashMap::new(),
        };
        traced.stdin = traced.child.stdin.take();
        let process = traced.process();
        let status = wait();
        assert!(
            matches!(status, WaitStatus::Stopped(thread, _) if thread.as_raw() == process),
            "the child does not start: {status:?}"
        );
        let options = ptrace::Options::PTRACE_O_TRACECLONE
            | ptrace::Options::PTRACE_O_TRACESYSGOOD
            | ptrace::Options::PTRACE_O_EXITKILL;
        ptrace::setoptions(Pid::from_raw(process), options).expect("ptrace options");
        traced.known.insert(process);
        traced.go(process, Go::On, 0);
        traced
    }

    pub fn process(&self) -> i32 {
        self.child.id() as i32
    }

    /// Asks the child to end.
    pub fn finish(&mut self) {
        self.stdin = None;
    }

    /// Returns the name that the program gave the thread.
    pub fn name_of(&mut self, thread: i32) -> &str {
        let path = format!("/proc/{}/task/{thread}/comm", self.process());
        let read = || {
            std::fs::read_to_string(path)
                .unwrap_or_default()
                .trim()
                .to_owned()
        };
        self.names.entry(thread).or_insert_with(read)
    }

    /// Waits until a thread stops. Returns `None` once the child has ended.
    ///
    /// # Panics
    /// If the child fails.
    pub fn next_stop(&mut self) -> Option<(i32, StopReason)> {
        loop {
            let status = wait();
            let thread = status.pid().expect("the status of a thread").as_raw();
            let stop = match status {
                WaitStatus::Exited(..) | WaitStatus::Signaled(..) => {
                    self.known.remove(&thread);
                    self.stepping.remove(&thread);
                    if thread == self.process() {
                        assert!(
                            matches!(status, WaitStatus::Exited(_, 0)),
                            "status of the child: {status:?}"
                        );
                        return None;
                    }
                    continue;
                }
                WaitStatus::PtraceEvent(..) => {
                    self.go(thread, Go::On, 0);
                    continue;
                }
                // The first stop of a new thread, which may still have its creator's name.
                _ if self.known.insert(thread) => {
                    self.go(thread, Go::On, 0);
                    continue;
                }
                WaitStatus::PtraceSyscall(_) => StopReason::SystemCall(self.stop_point(thread)),
                WaitStatus::Stopped(_, Signal::SIGTRAP) if self.stepping.contains(&thread) => {
                    StopReason::Stepped
                }
                WaitStatus::Stopped(_, signal) => StopReason::Signal {
                    signal: signal as i32,
                    request: self.is_request(thread),
                },
                other => panic!("unexpected status of a traced thread: {other:?}"),
            };
            return Some((thread, stop));
        }
    }

    /// Lets a stopped thread continue, and delivers `signal` unless it is 0.
    pub fn go(&mut self, thread: i32, how: Go, signal: i32) {
        match how {
            Go::OneStep => self.stepping.insert(thread),
            _ => self.stepping.remove(&thread),
        };
        let signal = (signal != 0).then(|| Signal::try_from(signal).expect("a standard signal"));
        let pid = Pid::from_raw(thread);
        // `wait` reports a thread that was killed while it was stopped.
        let _ = match how {
            Go::On => ptrace::cont(pid, signal),
            Go::ToSystemCall => ptrace::syscall(pid, signal),
            Go::OneStep => ptrace::step(pid, signal),
        };
    }

    pub fn stop_point(&self, thread: i32) -> StopPoint {
        let info = ptrace::syscall_info(Pid::from_raw(thread))
            .unwrap_or_else(|error| panic!("cannot read the registers of a thread: {error}"));
        let entered = (info.op == libc::PTRACE_SYSCALL_INFO_ENTRY).then(|| {
            // SAFETY: `op` says that the kernel has filled this field of the union.
            let entry = unsafe { info.u.entry };
            (entry.nr as i64, entry.args)
        });
        StopPoint {
            pc: info.instruction_pointer,
            sp: info.stack_pointer,
            entered,
        }
    }

    /// Returns whether the signal to be delivered looks like the sampler's: queued by the child
    /// process.
    fn is_request(&self, thread: i32) -> bool {
        let Ok(info) = ptrace::getsiginfo(Pid::from_raw(thread)) else {
            return false;
        };
        // SAFETY: a queued signal carries a sender.
        info.si_code == libc::SI_QUEUE && unsafe { info.si_pid() } == self.process()
    }
}
