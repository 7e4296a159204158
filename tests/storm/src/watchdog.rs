//! Checks that every worker makes progress. If one does not, reports where all threads are, and
//! aborts.

use std::collections::HashMap;
use std::fs;
use std::process::Command;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::{crew, shortage};

const STALL: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(500);

/// Watches until it is dropped, on a thread that is not registered with the profiler.
pub struct Watchdog {
    end: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Watchdog {
    pub fn start() -> Self {
        let (end, ended) = mpsc::channel();
        let watch = move || {
            let mut seen: HashMap<String, (u64, Instant)> = HashMap::new();
            while ended.recv_timeout(LOOK) == Err(RecvTimeoutError::Timeout) {
                look(&mut seen);
            }
        };
        let thread = std::thread::Builder::new()
            .name("watchdog".to_owned())
            .spawn(watch);
        Self {
            end: Some(end),
            thread: Some(thread.expect("a thread")),
        }
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.end.take();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn look(seen: &mut HashMap<String, (u64, Instant)>) {
    let posts = crew::posts();
    seen.retain(|name, _| posts.iter().any(|post| post.name == *name));
    for post in posts {
        let beats = post.beats();
        let (last, since) = seen
            .entry(post.name.clone())
            .or_insert_with(|| (beats, Instant::now()));
        if *last != beats {
            (*last, *since) = (beats, Instant::now());
        } else if since.elapsed() > STALL {
            eprintln!(
                "storm: {} made no progress for {STALL:?}, after {beats} steps",
                post.name
            );
            shortage::end_by_force();
            describe_process(std::process::id() as i32);
            std::process::abort();
        }
    }
}

/// Reports where all threads of a process are, according to the kernel, and to gdb if it is
/// installed. A debugger that hangs, too, is stopped.
pub fn describe_process(process: i32) {
    let folder = format!("/proc/{process}/task");
    for task in fs::read_dir(&folder).into_iter().flatten().flatten() {
        let read = |name: &str| fs::read_to_string(task.path().join(name)).unwrap_or_default();
        let (comm, wchan, syscall) = (read("comm"), read("wchan"), read("syscall"));
        eprintln!(
            "{} {} in {} ({})",
            task.file_name().display(),
            comm.trim(),
            wchan.trim(),
            syscall.trim()
        );
        let status = read("status");
        let fields = [
            "State",
            "SigPnd",
            "ShdPnd",
            "SigBlk",
            "voluntary",
            "nonvoluntary",
        ];
        for line in status
            .lines()
            .filter(|line| fields.iter().any(|word| line.starts_with(word)))
        {
            eprintln!("    {line}");
        }
        for line in read("stack").lines() {
            eprintln!("    {line}");
        }
    }
    // A debugger may attach to its parent only with the parent's permission.
    // SAFETY: the call only takes numbers.
    unsafe { libc::prctl(libc::PR_SET_PTRACER, libc::PR_SET_PTRACER_ANY) };
    let arguments = [
        "-batch",
        "-nx",
        "-ex",
        "set pagination off",
        "-ex",
        "thread apply all bt 40",
    ];
    match Command::new("timeout")
        .args(["-s", "KILL", "60", "gdb", "-p", &process.to_string()])
        .args(arguments)
        .output()
    {
        Ok(output) => eprintln!("{}", String::from_utf8_lossy(&output.stdout)),
        Err(error) => eprintln!("cannot run gdb: {error}"),
    }
}
