//! What the kernel says in `/proc`: pure parsers over bytes, and the files that they are fed from.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicI32, Ordering};

use crate::base::ThreadId;

/// Two fields of `/proc/self/stat`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Stat {
    /// When the process began, in clock ticks since boot.
    pub(super) start_ticks: u64,
    /// Where the main thread's stack begins: the address that the kernel gave it at `exec`.
    pub(super) start_stack: u64,
}

pub(super) fn own_stat() -> Option<Stat> {
    parse_stat(&std::fs::read("/proc/self/stat").ok()?)
}

/// Whether a filter of system calls is on the calling thread.
pub(crate) fn is_sandboxed() -> bool {
    std::fs::read("/proc/thread-self/status").is_ok_and(|status| has_filter(&status))
}

fn has_filter(status: &[u8]) -> bool {
    let key = b"Seccomp:";
    let value = status
        .split(|&byte| byte == b'\n')
        .find_map(|line| line.strip_prefix(key));
    value.is_some_and(|value| value.trim_ascii() == b"2")
}

/// Where a thread stands that is blocked in the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct BlockedAt {
    /// The instruction behind the one that called the kernel; the faulting one, when it waits for memory.
    pub(crate) pc: u64,
    pub(crate) sp: u64,
}

/// What the kernel says of a thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Look {
    Blocked(BlockedAt),
    /// It runs, or waits for a processor, or is no more.
    Not,
    /// The kernel does not tell: there is no `/proc`, or the process is not dumpable and not the superuser's.
    Hidden,
}

/// The files that stay open, by their numbers, so that the child of a fork can close them; -1 where there is none. No more
/// do, so that the host's own files find room.
static KEPT: [AtomicI32; 64] = [const { AtomicI32::new(-1) }; 64];

/// The numbers of all files that stay open, which are forgotten. In the child of a fork, where nobody uses them.
pub(super) fn take_kept_files() -> impl Iterator<Item = i32> {
    KEPT.iter()
        .map(|place| place.swap(-1, Ordering::AcqRel))
        .filter(|&number| number >= 0)
}

/// The file of the kernel that says whether a thread of this process is blocked, and where. It stays open from the first
/// look on, if not too many are.
#[derive(Debug)]
pub(crate) struct ThreadWindow {
    thread: ThreadId,
    /// The file, and its place among those that stay open.
    kept: Option<(File, &'static AtomicI32)>,
}

impl ThreadWindow {
    pub(crate) fn new(thread: ThreadId) -> Self {
        Self { thread, kept: None }
    }

    /// Whether the thread is blocked, and where. About 2 µs.
    pub(crate) fn look(&mut self) -> Look {
        let mut text = [0; 256];
        let read = match &self.kept {
            Some((file, _)) => file.read_at(&mut text, 0),
            None => self.open().and_then(|file| {
                let read = file.read_at(&mut text, 0);
                self.keep(file);
                read
            }),
        };
        match read {
            Ok(length) => parse_blocked(&text[..length]).map_or(Look::Not, Look::Blocked),
            Err(_)
                if Path::new("/proc/self/task")
                    .join(self.thread.to_number().to_string())
                    .exists() =>
            {
                Look::Hidden
            }
            Err(_) if Path::new("/proc/self/task").exists() => Look::Not,
            Err(_) => Look::Hidden,
        }
    }

    fn open(&self) -> std::io::Result<File> {
        File::open(format!(
            "/proc/self/task/{}/syscall",
            self.thread.to_number()
        ))
    }

    fn keep(&mut self, file: File) {
        let number = file.as_raw_fd();
        let is_taken = |place: &&AtomicI32| {
            place
                .compare_exchange(-1, number, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
        };
        self.kept = KEPT.iter().find(is_taken).map(|place| (file, place));
    }
}

impl Drop for ThreadWindow {
    fn drop(&mut self) {
        if let Some((_, place)) = &self.kept {
            place.store(-1, Ordering::Release);
        }
    }
}

/// `running`, or the call's number and arguments, or -1, and always the stack pointer and the program counter at the end.
fn parse_blocked(line: &[u8]) -> Option<BlockedAt> {
    let mut fields = std::str::from_utf8(line).ok()?.trim_end().rsplit(' ');
    let mut address = || u64::from_str_radix(fields.next()?.strip_prefix("0x")?, 16).ok();
    let (pc, sp) = (address()?, address()?);
    // A thread that is ending has neither.
    (pc != 0 && sp != 0).then_some(BlockedAt { pc, sp })
}

/// The second field is a name in parentheses that may hold anything, so fields are counted from the last `)`.
fn parse_stat(text: &[u8]) -> Option<Stat> {
    let after_name = text.iter().rposition(|&byte| byte == b')')? + 1;
    let mut fields = std::str::from_utf8(&text[after_name..])
        .ok()?
        .split_ascii_whitespace();
    let start_ticks = fields.nth(22 - 3)?.parse().ok()?;
    let start_stack = fields.nth(28 - 23)?.parse().ok()?;
    Some(Stat {
        start_ticks,
        start_stack,
    })
}

/// The first `model name` of `/proc/cpuinfo`, and the number of distinct physical cores, where the kernel tells.
pub(super) fn parse_cpuinfo(text: &str) -> (Option<String>, Option<usize>) {
    let value = |line: &str| {
        line.split_once(':')
            .map(|(_, value)| value.trim().to_owned())
    };
    let model = text
        .lines()
        .find(|line| line.starts_with("model name"))
        .and_then(value);
    let mut cores = std::collections::BTreeSet::new();
    let mut package = None;
    for line in text.lines() {
        if line.starts_with("physical id") {
            package = value(line);
        } else if line.starts_with("core id") {
            cores.insert((package.clone(), value(line)));
        }
    }
    (model, (!cores.is_empty()).then_some(cores.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stat_is_read_past_a_hostile_name() {
        let text = b"77 (a) b) 1 2) S 1 77 77 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 4242 1000 10 \
                     18446744073709551615 94 95 140737000000016 0 0";
        assert_eq!(
            parse_stat(text),
            Some(Stat {
                start_ticks: 4242,
                start_stack: 140_737_000_000_016
            })
        );
        assert_eq!(parse_stat(b"77 (a"), None);
        assert_eq!(parse_stat(b""), None);
    }

    #[test]
    fn the_kernel_tells_of_this_process() {
        let stat = own_stat().expect("/proc/self/stat");
        assert!(stat.start_ticks > 0 && stat.start_stack > 0, "{stat:?}");
    }

    #[test]
    fn a_filter_is_told_from_none() {
        assert!(has_filter(
            b"Name:\tSeccomp:\t2\nSeccomp:\t2\nSeccomp_filters:\t1\n"
        ));
        assert!(!has_filter(b"Seccomp:\t0\nSeccomp_filters:\t2\n") && !has_filter(b""));
    }

    #[test]
    fn a_blocked_thread_is_told_by_its_place() {
        let line =
            b"230 0x0 0x0 0x7ff69308cea0 0x0 0x0 0x7ffe1e2680b7 0x7ff69308ce60 0x7ff693160545\n";
        let at = BlockedAt {
            pc: 0x7ff6_9316_0545,
            sp: 0x7ff6_9308_ce60,
        };
        assert_eq!(parse_blocked(line), Some(at));
        assert_eq!(
            parse_blocked(b"-1 0x7ff69308ce60 0x7ff693160545\n"),
            Some(at)
        );
        for nothing in ["running\n", "", "0x1", "1 2", "0x1 x"] {
            assert_eq!(parse_blocked(nothing.as_bytes()), None);
        }
    }

    #[test]
    fn a_sleeper_is_seen_and_a_runner_not() {
        static ENDS: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);
        let (tell, told) = std::sync::mpsc::channel();
        let (end, wait) = std::sync::mpsc::channel::<()>();
        let sleeper = std::thread::spawn(move || {
            tell.send(crate::platform::current_thread_id())
                .expect("somebody listens");
            let _ = wait.recv();
            while !ENDS.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        });
        let mut window = ThreadWindow::new(told.recv().expect("the thread"));
        let end_of_wait = std::time::Instant::now() + std::time::Duration::from_secs(10);
        let at = loop {
            if let Look::Blocked(at) = window.look() {
                break at;
            }
            assert!(std::time::Instant::now() < end_of_wait, "it does not sleep");
        };
        assert!(at.pc > 4096 && at.sp > 4096);
        drop(end);
        while window.look() == Look::Blocked(at) {}
        // Now it spins, or waits for a processor to do so.
        assert_eq!(window.look(), Look::Not);
        ENDS.store(true, Ordering::Relaxed);
        sleeper.join().expect("thread");
        assert_eq!(window.look(), Look::Not);
    }

    #[test]
    fn cores_are_counted_over_packages() {
        let text = "model name\t: Fast CPU\nphysical id\t: 0\ncore id\t: 0\n\nmodel name\t: Fast CPU\n\
                    physical id\t: 0\ncore id\t: 0\n\nphysical id\t: 1\ncore id\t: 0\n";
        assert_eq!(parse_cpuinfo(text), (Some("Fast CPU".to_owned()), Some(2)));
        assert_eq!(parse_cpuinfo(""), (None, None));
    }
}
