//! A child of the test's own, run under ptrace: the same test in the same program, told by the environment to work.
//!
//! Its threads run free, but where somebody follows one through a signal's handler. A child that outlives its tracer, or
//! a minute, is killed.
//!
//! **Contract** (cited below):
//! - *own memory*: the kernel writes to a local of this function, whose size it is told or knows;
//! - *stopped*: ptrace answers with an error, and touches nothing, where the thread is not a stopped tracee of this one.
#![allow(dead_code, unreachable_pub, reason = "each test uses its part of it")]

pub mod code;
pub mod workload;

use std::collections::{HashMap, HashSet};
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, Stdio};

const ROLE: &str = "GEKKOTA_TEST_TRACED_AS";

/// What this process is to do, if it is such a child.
pub fn role() -> Option<String> {
    std::env::var(ROLE).ok()
}

/// How a stopped thread goes on.
#[derive(Clone, Copy, Debug)]
pub enum Go {
    /// Until a signal comes.
    On,
    /// Until it enters or leaves the kernel.
    ToSystemCall,
    /// For one instruction.
    OneStep,
}

/// Why a thread stands still. It does so until it is told to go on.
#[derive(Debug)]
pub enum Stop {
    /// A signal is about to be delivered.
    Signal { signal: i32, request: bool },
    /// It enters a system call, or leaves it.
    SystemCall(Place),
    /// The step is done.
    Stepped,
}

/// Where a stopped thread is.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    pub pc: u64,
    pub sp: u64,
    /// The system call that it is about to make, with what it hands over.
    pub entered: Option<(i64, [u64; 6])>,
}

pub struct Traced {
    child: Child,
    /// Open while the child is to work.
    stdin: Option<ChildStdin>,
    known: HashSet<i32>,
    stepping: HashSet<i32>,
    names: HashMap<i32, String>,
}

impl Traced {
    /// Starts this program again, to run `test` in a role.
    pub fn start(test: &str, role: &str) -> Self {
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command
            .args([test, "--exact", "--nocapture"])
            .env(ROLE, role)
            .stdin(Stdio::piped())
            .stdout(Stdio::null());
        let trace_me = || {
            // SAFETY: *stopped*: only marks the calling process as its parent's tracee.
            let answer = unsafe { libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) };
            if answer == 0 {
                Ok(())
            } else {
                Err(io::Error::last_os_error())
            }
        };
        // SAFETY: one system call, no allocation.
        unsafe { command.pre_exec(trace_me) };
        let child = command.spawn().unwrap_or_else(|error| {
            panic!("a child could not be traced: {error}. This test needs ptrace of its own child; a container may forbid it")
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
            "the child begins: {status:#x}"
        );
        let options =
            libc::PTRACE_O_TRACECLONE | libc::PTRACE_O_TRACESYSGOOD | libc::PTRACE_O_EXITKILL;
        // SAFETY: *stopped*.
        let answer = unsafe { libc::ptrace(libc::PTRACE_SETOPTIONS, process, 0, options) };
        assert_eq!(answer, 0, "{}", io::Error::last_os_error());
        traced.known.insert(process);
        traced.go(process, Go::On, 0);
        traced
    }

    pub fn process(&self) -> i32 {
        self.child.id() as i32
    }

    /// Tells the child that it has worked enough.
    pub fn finish(&mut self) {
        self.stdin = None;
    }

    /// The name that the program gave the thread.
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
        // SAFETY: *own memory*. Children of other threads, which run other tests, are not waited for.
        let thread = unsafe { libc::waitpid(-1, &mut status, libc::__WALL | libc::__WNOTHREAD) };
        assert!(thread > 0, "waitpid: {}", io::Error::last_os_error());
        (thread, status)
    }

    /// The next thread that stops. `None` at the child's end, which must be a good one.
    pub fn next_stop(&mut self) -> Option<(i32, Stop)> {
        loop {
            let (thread, status) = self.wait();
            if !libc::WIFSTOPPED(status) {
                self.known.remove(&thread);
                self.stepping.remove(&thread);
                if thread == self.process() {
                    assert!(
                        libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0,
                        "the child: {status:#x}"
                    );
                    return None;
                }
                continue;
            }
            let signal = libc::WSTOPSIG(status);
            if status >> 16 != 0 {
                self.go(thread, Go::On, 0);
            } else if self.known.insert(thread) {
                // How a new thread begins; its name, if it has one yet, is its maker's.
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

    /// Lets a stopped thread go on, with a signal if one was about to be delivered.
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
        // SAFETY: *stopped*. A thread that was killed meanwhile is reported by `wait`.
        unsafe { libc::ptrace(request, thread, 0, signal) };
    }

    pub fn place(&self, thread: i32) -> Place {
        // SAFETY: *own memory*, *stopped*; zeroed is a valid answer, of which every part is numbers.
        unsafe {
            let mut info: libc::ptrace_syscall_info = std::mem::zeroed();
            let size = size_of_val(&info);
            let answer = libc::ptrace(libc::PTRACE_GET_SYSCALL_INFO, thread, size, &raw mut info);
            assert!(
                answer > 0,
                "where a thread is: {}",
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

    /// Whether the signal that is about to be delivered looks like the sampler's: queued, by the process to itself.
    fn is_request(&self, thread: i32) -> bool {
        // SAFETY: *own memory*, *stopped*; zeroed is a valid `siginfo_t`, and a queued signal carries a sender.
        unsafe {
            let mut info: libc::siginfo_t = std::mem::zeroed();
            let answer = libc::ptrace(libc::PTRACE_GETSIGINFO, thread, 0, &raw mut info);
            answer == 0 && info.si_code == libc::SI_QUEUE && info.si_pid() == self.process()
        }
    }
}
