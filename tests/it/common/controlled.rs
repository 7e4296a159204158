//! A child process of the test, whose profiler is controlled by signals. It follows the orders on its
//! standard input and answers each, so that the test can wait for it.
#![allow(dead_code, reason = "each test uses some of the helpers")]

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, channel};

use crate::common::LONGEST_WAIT;

const ROLE: &str = "GEKKOTA_TEST_ROLE";

pub(crate) static HOSTS_CALLS: AtomicU32 = AtomicU32::new(0);

extern "C" fn hosts_handler(_: i32) {
    HOSTS_CALLS.fetch_add(1, Ordering::Relaxed);
    // SAFETY: `errno` of this thread. A handler should restore it; this one does not, on purpose.
    unsafe { *libc::__errno_location() = libc::ENOANO };
}

pub(crate) fn action_of(signal: i32) -> usize {
    action_with_mask(signal).sa_sigaction
}

pub(crate) fn action_with_mask(signal: i32) -> libc::sigaction {
    // SAFETY: zeroes are a valid `sigaction`, and the kernel writes to a local.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        assert_eq!(libc::sigaction(signal, std::ptr::null(), &mut action), 0);
        action
    }
}

pub(crate) fn set_handler(signal: i32, handler: usize) {
    // SAFETY: the action is a local, and the handler takes the signal's number.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler;
        action.sa_flags = libc::SA_RESTART;
        assert_eq!(libc::sigaction(signal, &action, std::ptr::null_mut()), 0);
    }
}

pub(crate) fn hosts_handler_address() -> usize {
    hosts_handler as extern "C" fn(i32) as usize
}

pub(crate) fn open_pipes() -> Vec<String> {
    let descriptors = std::fs::read_dir("/proc/self/fd")
        .expect("descriptors")
        .map_while(Result::ok);
    let targets = descriptors.filter_map(|entry| std::fs::read_link(entry.path()).ok());
    targets
        .map(|target| target.display().to_string())
        .filter(|target| target.starts_with("pipe:"))
        .collect()
}

/// Returns the role of this process if it is the child of a test.
pub(crate) fn own_role() -> Option<String> {
    std::env::var(ROLE).ok()
}

/// Runs the child: answers each order, whose argument follows a colon.
pub(crate) fn obey(mut answer: impl FnMut(&str, &str) -> String) {
    println!("ready");
    for line in std::io::stdin().lines() {
        let line = line.expect("a line");
        let (order, argument) = line.split_once(": ").unwrap_or((&line, ""));
        println!("answer: {}", answer(order, argument));
    }
}

/// Sends a signal to the calling thread, and returns after it was handled.
pub(crate) fn raise(signal: i32) {
    // SAFETY: the call accesses no memory of the process.
    assert_eq!(unsafe { libc::raise(signal) }, 0);
}

/// A running child, and its output.
pub(crate) struct Controlled {
    pub(crate) child: Child,
    orders: ChildStdin,
    answers: Receiver<String>,
    notices: Receiver<String>,
}

fn lines_of(from: impl std::io::Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(from).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    receiver
}

/// Returns the lines up to and including the first that contains `part`.
#[track_caller]
fn lines_until(lines: &Receiver<String>, part: &str) -> Vec<String> {
    let mut seen = Vec::new();
    loop {
        match lines.recv_timeout(LONGEST_WAIT) {
            Ok(line) => seen.push(line),
            Err(error) => panic!("no line with {part:?}, {error}: {seen:?}"),
        }
        if seen.last().is_some_and(|line| line.contains(part)) {
            return seen;
        }
    }
}

#[track_caller]
fn wait_for(lines: &Receiver<String>, part: &str) -> String {
    lines_until(lines, part).pop().expect("the line")
}

impl Controlled {
    /// Runs the test with this name as the child, in this role.
    pub(crate) fn start(test: &str, role: &str, folder: &Path, variables: &[(&str, &str)]) -> Self {
        let mut command = Command::new(std::env::current_exe().expect("path"));
        command
            .args(["--exact", test, "--include-ignored", "--nocapture"])
            .env(ROLE, role);
        command
            .env("MOZ_PROFILER_SIGNALS", "1")
            .env_remove("MOZ_UPLOAD_DIR")
            .current_dir(folder);
        // Symbolication would only cost time.
        command
            .env("MOZ_PROFILER_SYMBOLICATE", "0")
            .envs(variables.iter().copied());
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the child");
        let answers = lines_of(child.stdout.take().expect("standard output"));
        let notices = lines_of(child.stderr.take().expect("standard error"));
        wait_for(&answers, "ready");
        let orders = child.stdin.take().expect("standard input");
        Self {
            child,
            orders,
            answers,
            notices,
        }
    }

    pub(crate) fn ask(&mut self, order: &str) -> String {
        writeln!(self.orders, "{order}").expect("the child reads");
        wait_for(&self.answers, "answer: ")
            .split_once("answer: ")
            .expect("an answer")
            .1
            .to_owned()
    }

    pub(crate) fn signal(&self, signal: i32) {
        // SAFETY: the call accesses no memory of the process.
        assert_eq!(unsafe { libc::kill(self.child.id() as i32, signal) }, 0);
    }

    #[track_caller]
    pub(crate) fn notices_until(&self, part: &str) -> Vec<String> {
        lines_until(&self.notices, part)
    }

    #[track_caller]
    pub(crate) fn notice(&self, part: &str) -> String {
        wait_for(&self.notices, part)
    }

    /// Returns the path of the child's profile.
    pub(crate) fn file_in(&self, folder: &Path) -> PathBuf {
        folder.join(format!("profile_default_{}.json", self.child.id()))
    }

    /// Waits until the child exits, and returns the rest of its notices.
    pub(crate) fn end(mut self) -> Vec<String> {
        drop(self.orders);
        let status = self.child.wait().expect("the child's end");
        let left: Vec<_> = self.notices.iter().collect();
        assert!(status.success(), "{status}: {left:?}");
        left
    }
}

pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    pub(crate) fn new(name: &str) -> Self {
        // Saving a profile waits for the disk, which may be busy. A folder in memory does not.
        let memory = PathBuf::from("/dev/shm");
        let place = if memory.is_dir() {
            memory
        } else {
            std::env::temp_dir()
        };
        let folder = place.join(format!("gekkota-signals-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("folder");
        Self(folder.canonicalize().expect("folder"))
    }

    pub(crate) fn files(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.0).expect("folder");
        entries
            .map(|file| {
                file.expect("file")
                    .file_name()
                    .to_string_lossy()
                    .into_owned()
            })
            .collect()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
