//! A program that signals control, as a child of the test: it obeys the lines of its standard input, so that the test can
//! wait for each thing.
#![allow(dead_code, reason = "each test uses its part of it")]

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

const ROLE: &str = "GEKKOTA_TEST_ROLE";
const LONGEST_WAIT: Duration = Duration::from_secs(60);

pub(crate) static HOSTS_CALLS: AtomicU32 = AtomicU32::new(0);

extern "C" fn hosts_handler(_: i32) {
    HOSTS_CALLS.fetch_add(1, Ordering::Relaxed);
    // SAFETY: the thread's own `errno`; the handlers have to put it back, this one does not.
    unsafe { *libc::__errno_location() = libc::ENOANO };
}

pub(crate) fn action_of(signal: i32) -> usize {
    // SAFETY: zeroed is a valid `sigaction`; the out-pointer is to a local.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        assert_eq!(libc::sigaction(signal, std::ptr::null(), &mut action), 0);
        action.sa_sigaction
    }
}

pub(crate) fn set_handler(signal: i32, handler: usize) {
    // SAFETY: the action is a local, and the handler takes a number.
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

/// The role that this process plays, where it is the child.
pub(crate) fn own_role() -> Option<String> {
    std::env::var(ROLE).ok()
}

/// The child's life: it answers each order, which has an argument after a colon.
pub(crate) fn obey(mut answer: impl FnMut(&str, &str) -> String) {
    println!("ready");
    for line in std::io::stdin().lines() {
        let line = line.expect("a line");
        let (order, argument) = line.split_once(": ").unwrap_or((&line, ""));
        println!("answer: {}", answer(order, argument));
    }
}

/// Sends the signal to the calling thread, which has handled it when this is back.
pub(crate) fn raise(signal: i32) {
    // SAFETY: touches no memory.
    assert_eq!(unsafe { libc::raise(signal) }, 0);
}

/// A running child, and what it says.
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

/// The lines up to the first with this part, which is the last.
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
    /// Runs the test `role_of_the_child` of the calling module, by its name in libtest.
    pub(crate) fn start(test: &str, role: &str, folder: &Path, variables: &[(&str, &str)]) -> Self {
        let mut command = Command::new(std::env::current_exe().expect("path"));
        command
            .args(["--exact", test, "--nocapture"])
            .env(ROLE, role);
        command
            .env("MOZ_PROFILER_SIGNALS", "1")
            .env_remove("MOZ_UPLOAD_DIR")
            .current_dir(folder);
        // Names take a while.
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
        // SAFETY: touches no memory.
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

    /// The file's name, by the child's process id.
    pub(crate) fn file_in(&self, folder: &Path) -> PathBuf {
        folder.join(format!("profile_default_{}.json", self.child.id()))
    }

    /// The child ends, and what is left of what it said.
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
        // Each file is brought to the disk, which has others to serve, too; a folder in memory has not.
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
