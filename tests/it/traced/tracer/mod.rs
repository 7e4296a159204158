//! Traces a child process by ptrace. The child is the same test in the same program; an environment
//! variable names its role.
//!
//! The child's threads run freely, except while the tracer follows one of them. A child that
//! outlives its tracer or runs longer than [`TIME_LIMIT`] is killed.
//!
//! **Contract** (cited below):
//! - *own memory*: the kernel writes to a local of this function, within its size;
//! - *stopped*: ptrace returns an error, and accesses no memory, if the thread is not a stopped
//!   tracee of the calling thread.
#![allow(dead_code, unreachable_pub, reason = "each test uses a part of it")]

pub mod code;
pub mod workload;

use std::collections::{HashMap, HashSet};
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Duration;

const ROLE: &str = "GEKKOTA_TEST_TRACED_AS";

/// Maximum time of tracing a child. Only a hang reaches it.
pub const TIME_LIMIT: Duration = Duration::from_secs(240);

/// Returns the role of this process if it is a traced child.
pub fn role() -> Option<String> {
    std::env::var(ROLE).ok()
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
pub enum Stop {
    /// A signal is about to be delivered.
    Signal { signal: i32, request: bool },
    /// The thread enters or leaves a system call.
    SystemCall(Place),
    /// The step is done.
    Stepped,
}

/// Where a stopped thread is.
#[derive(Clone, Copy, Debug)]
pub struct Place {
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
        let trace_me = || {
            // SAFETY: the call only makes the process its parent's tracee.
            let result = unsafe { libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) };
            if result == 0 {
                Ok(())
            } else {
                Err(io::Error::last_os_error())
            }
        };
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
        let (process, status) = traced.wait();
        assert!(
            process == traced.process() && libc::WIFSTOPPED(status),
            "the child does not start: {status:#x}"
        );
        let options =
            libc::PTRACE_O_TRACECLONE | libc::PTRACE_O_TRACESYSGOOD | libc::PTRACE_O_EXITKILL;
        // SAFETY: *stopped*.
        let result = unsafe { libc::ptrace(libc::PTRACE_SETOPTIONS, process, 0, options) };
        assert_eq!(result, 0, "{}", io::Error::last_os_error());
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

    fn wait(&self) -> (i32, i32) {
        let mut status = 0;
        // Without the children of other threads, which run other tests.
        // SAFETY: *own memory*.
        let thread = unsafe { libc::waitpid(-1, &mut status, libc::__WALL | libc::__WNOTHREAD) };
        assert!(thread > 0, "waitpid: {}", io::Error::last_os_error());
        (thread, status)
    }

    /// Waits until a thread stops. Returns `None` once the child has ended.
    ///
    /// # Panics
    /// If the child fails.
    pub fn next_stop(&mut self) -> Option<(i32, Stop)> {
        loop {
            let (thread, status) = self.wait();
            if !libc::WIFSTOPPED(status) {
                self.known.remove(&thread);
                self.stepping.remove(&thread);
                if thread == self.process() {
                    assert!(
                        libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0,
                        "status of the child: {status:#x}"
                    );
                    return None;
                }
                continue;
            }
            let signal = libc::WSTOPSIG(status);
            if status >> 16 != 0 {
                self.go(thread, Go::On, 0);
            } else if self.known.insert(thread) {
                // The first stop of a new thread, which may still have its creator's name.
                self.go(thread, Go::On, 0);
            } else if signal == libc::SIGTRAP | 0x80 {
                return Some((thread, Stop::SystemCall(self.place(thread))));
            } else if signal == libc::SIGTRAP && self.stepping.contains(&thread) {
                return Some((thread, Stop::Stepped));
            } else {
                return Some((
                    thread,
                    Stop::Signal {
                        signal,
                        request: self.is_request(thread),
                    },
                ));
            }
        }
    }

    /// Lets a stopped thread continue, and delivers `signal` unless it is 0.
    pub fn go(&mut self, thread: i32, how: Go, signal: i32) {
        let request = match how {
            Go::On => libc::PTRACE_CONT,
            Go::ToSystemCall => libc::PTRACE_SYSCALL,
            Go::OneStep => libc::PTRACE_SINGLESTEP,
        };
        match how {
            Go::OneStep => self.stepping.insert(thread),
            _ => self.stepping.remove(&thread),
        };
        // `wait` reports a thread that was killed while it was stopped.
        // SAFETY: *stopped*.
        unsafe { libc::ptrace(request, thread, 0, signal) };
    }

    pub fn place(&self, thread: i32) -> Place {
        // SAFETY: *own memory*, *stopped*; zeroed is a valid `ptrace_syscall_info`.
        unsafe {
            let mut info: libc::ptrace_syscall_info = std::mem::zeroed();
            let size = size_of_val(&info);
            let result = libc::ptrace(libc::PTRACE_GET_SYSCALL_INFO, thread, size, &raw mut info);
            assert!(
                result > 0,
                "cannot read the registers of a thread: {}",
                io::Error::last_os_error()
            );
            let entered = (info.op == libc::PTRACE_SYSCALL_INFO_ENTRY)
                .then_some((info.u.entry.nr as i64, info.u.entry.args));
            Place {
                pc: info.instruction_pointer,
                sp: info.stack_pointer,
                entered,
            }
        }
    }

    /// Returns whether the signal to be delivered looks like the sampler's: queued by the child
    /// process.
    fn is_request(&self, thread: i32) -> bool {
        // SAFETY: *own memory*, *stopped*; zeroed is a valid `siginfo_t`, and a queued signal
        // carries a sender.
        unsafe {
            let mut info: libc::siginfo_t = std::mem::zeroed();
            let result = libc::ptrace(libc::PTRACE_GETSIGINFO, thread, 0, &raw mut info);
            result == 0 && info.si_code == libc::SI_QUEUE && info.si_pid() == self.process()
        }
    }
}
