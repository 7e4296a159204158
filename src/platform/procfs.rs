//! Data from `/proc`: parsers over bytes, and the functions that read the files.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicI32, Ordering};

use crate::platform::shared_file::read_bytes;
use crate::types::ThreadId;

/// Fields of `/proc/self/stat`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ProcessStat {
    /// Start of the process, in clock ticks since boot.
    pub(crate) start_ticks: u64,
    /// Address at which the main thread's stack begins, as set by `exec`.
    pub(crate) start_stack: u64,
}

/// Reads `/proc/self/stat`.
pub(crate) fn own_stat() -> Option<ProcessStat> {
    parse_stat(&read_bytes("/proc/self/stat"))
}

/// Returns whether the calling thread has a seccomp filter.
pub(crate) fn is_sandboxed() -> bool {
    has_filter(&read_bytes("/proc/thread-self/status"))
}

fn has_filter(status: &[u8]) -> bool {
    let key = b"Seccomp:";
    let value = status
        .split(|&byte| byte == b'\n')
        .find_map(|line| line.strip_prefix(key));
    value.is_some_and(|value| value.trim_ascii() == b"2")
}

/// Program counter and stack pointer of a thread that is blocked in the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct BlockedAt {
    /// Address of the instruction after the system call, or of the faulting one if the thread waits
    /// for a page.
    pub(crate) pc: u64,
    pub(crate) sp: u64,
    /// Whether a system call blocks the thread. Otherwise it waits for a page, for example.
    pub(crate) in_system_call: bool,
}

/// State of a thread, as reported by the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ProbeResult {
    Blocked(BlockedAt),
    /// The thread is running, waits for a processor, or has exited. Or its state cannot be read at the
    /// moment, because the process has no free descriptor, for example.
    NotBlocked,
    /// The state cannot be read: `/proc` is not mounted, or the process is not dumpable and does not
    /// run as root.
    Hidden,
}

/// Descriptors that [`ThreadProbe`]s keep open, so that the child of a fork can close them; -1 in a
/// free entry. The number is limited to leave descriptors for the application.
static CACHED_DESCRIPTORS: [AtomicI32; 64] = [const { AtomicI32::new(-1) }; 64];

/// Takes all cached descriptors out of the table. Called in the child of a fork, where no other
/// thread uses them.
pub(crate) fn take_cached_descriptors() -> impl Iterator<Item = i32> {
    CACHED_DESCRIPTORS
        .iter()
        .map(|entry| entry.swap(-1, Ordering::AcqRel))
        .filter(|&descriptor| descriptor >= 0)
}

/// A probe of one thread of this process: reads from the thread's `syscall` file in `/proc` whether
/// and where the thread is blocked. The file stays open after the first read if the table of
/// descriptors has a free entry.
#[derive(Debug)]
pub(crate) struct ThreadProbe {
    thread: ThreadId,
    /// The open file, and its entry in the table of descriptors.
    cached: Option<(File, &'static AtomicI32)>,
}

impl ThreadProbe {
    pub(crate) fn new(thread: ThreadId) -> Self {
        Self {
            thread,
            cached: None,
        }
    }

    /// Returns whether the thread is blocked, and where. Cost: about 2 µs.
    pub(crate) fn probe(&mut self) -> ProbeResult {
        let mut text = [0; 256];
        let read = match &self.cached {
            Some((file, _)) => file.read_at(&mut text, 0),
            None => self.open().and_then(|file| {
                let read = file.read_at(&mut text, 0);
                self.cache(file);
                read
            }),
        };
        match read {
            Ok(length) => {
                parse_blocked(&text[..length]).map_or(ProbeResult::NotBlocked, ProbeResult::Blocked)
            }
            // The next attempt may succeed.
            Err(error) if is_short_of_resources(&error) => ProbeResult::NotBlocked,
            Err(_)
                if Path::new("/proc/self/task")
                    .join(self.thread.to_number().to_string())
                    .exists() =>
            {
                ProbeResult::Hidden
            }
            Err(_) if Path::new("/proc/self/task").exists() => ProbeResult::NotBlocked,
            Err(_) => ProbeResult::Hidden,
        }
    }

    fn open(&self) -> std::io::Result<File> {
        File::open(format!(
            "/proc/self/task/{}/syscall",
            self.thread.to_number()
        ))
    }

    /// Keeps the file open if the table of descriptors has a free entry.
    fn cache(&mut self, file: File) {
        let descriptor = file.as_raw_fd();
        let claim = |entry: &&AtomicI32| {
            entry
                .compare_exchange(-1, descriptor, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
        };
        self.cached = CACHED_DESCRIPTORS
            .iter()
            .find(claim)
            .map(|entry| (file, entry));
    }
}

impl Drop for ThreadProbe {
    fn drop(&mut self) {
        if let Some((_, entry)) = &self.cached {
            entry.store(-1, Ordering::Release);
        }
    }
}

/// Returns whether a file could not be opened because the process or the system has too few free
/// descriptors or too little memory at the moment.
fn is_short_of_resources(error: &std::io::Error) -> bool {
    let shortages = [libc::EMFILE, libc::ENFILE, libc::ENOMEM];
    error
        .raw_os_error()
        .is_some_and(|number| shortages.contains(&number))
}

/// Parses a `syscall` file: `running`; or the number of the system call and its arguments, or -1,
/// followed by the stack pointer and the program counter.
fn parse_blocked(line: &[u8]) -> Option<BlockedAt> {
    let mut fields = std::str::from_utf8(line).ok()?.trim_end().rsplit(' ');
    let mut address = || u64::from_str_radix(fields.next()?.strip_prefix("0x")?, 16).ok();
    let (pc, sp) = (address()?, address()?);
    // Both are 0 for a thread that is exiting.
    (pc != 0 && sp != 0).then_some(BlockedAt {
        pc,
        sp,
        in_system_call: !line.starts_with(b"-1 "),
    })
}

/// Parses a `stat` file. The second field is a name in parentheses that may contain any bytes, so
/// fields are counted from the last `)`.
fn parse_stat(text: &[u8]) -> Option<ProcessStat> {
    let after_name = text.iter().rposition(|&byte| byte == b')')? + 1;
    let mut fields = std::str::from_utf8(&text[after_name..])
        .ok()?
        .split_ascii_whitespace();
    let start_ticks = fields.nth(22 - 3)?.parse().ok()?;
    let start_stack = fields.nth(28 - 23)?.parse().ok()?;
    Some(ProcessStat {
        start_ticks,
        start_stack,
    })
}

/// Returns the first `model name` of `/proc/cpuinfo`, and the number of distinct physical cores,
/// each if present.
pub(crate) fn parse_cpuinfo(text: &str) -> (Option<String>, Option<usize>) {
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
    fn parse_stat_skips_a_name_with_parentheses() {
        let text = b"77 (a) b) 1 2) S 1 77 77 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 4242 1000 10 \
                     18446744073709551615 94 95 140737000000016 0 0";
        assert_eq!(
            parse_stat(text),
            Some(ProcessStat {
                start_ticks: 4242,
                start_stack: 140_737_000_000_016
            })
        );
        assert_eq!(parse_stat(b"77 (a"), None);
        assert_eq!(parse_stat(b""), None);
    }

    #[test]
    fn own_stat_reads_this_process() {
        let stat = own_stat().expect("/proc/self/stat");
        assert!(stat.start_ticks > 0 && stat.start_stack > 0, "{stat:?}");
    }

    #[test]
    fn has_filter_requires_seccomp_mode_2() {
        assert!(has_filter(
            b"Name:\tSeccomp:\t2\nSeccomp:\t2\nSeccomp_filters:\t1\n"
        ));
        assert!(!has_filter(b"Seccomp:\t0\nSeccomp_filters:\t2\n") && !has_filter(b""));
    }

    #[test]
    fn parse_blocked_reads_the_place_and_whether_a_call_blocks() {
        let line =
            b"230 0x0 0x0 0x7ff69308cea0 0x0 0x0 0x7ffe1e2680b7 0x7ff69308ce60 0x7ff693160545\n";
        let at = BlockedAt {
            pc: 0x7ff6_9316_0545,
            sp: 0x7ff6_9308_ce60,
            in_system_call: true,
        };
        assert_eq!(parse_blocked(line), Some(at));
        assert_eq!(
            parse_blocked(b"-1 0x7ff69308ce60 0x7ff693160545\n"),
            Some(BlockedAt {
                in_system_call: false,
                ..at
            })
        );
        for line in ["running\n", "", "0x1", "1 2", "0x1 x"] {
            assert_eq!(parse_blocked(line.as_bytes()), None);
        }
    }

    #[test]
    fn thread_probe_distinguishes_sleeping_from_running() {
        static STOP_SPINNING: std::sync::atomic::AtomicBool =
            std::sync::atomic::AtomicBool::new(false);
        let (id_sender, id_receiver) = std::sync::mpsc::channel();
        let (wake, woken) = std::sync::mpsc::channel::<()>();
        let sleeper = std::thread::spawn(move || {
            id_sender
                .send(crate::platform::identity::current_thread_id())
                .expect("the test waits for the id");
            let _ = woken.recv();
            while !STOP_SPINNING.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        });
        let mut probe = ThreadProbe::new(id_receiver.recv().expect("the thread"));
        let at = loop {
            if let ProbeResult::Blocked(at) = probe.probe() {
                break at;
            }
        };
        assert!(at.pc > 4096 && at.sp > 4096);
        drop(wake);
        // The thread may block once more on its way, and then spins for good.
        while probe.probe() != ProbeResult::NotBlocked {}
        STOP_SPINNING.store(true, Ordering::Relaxed);
        sleeper.join().expect("thread");
        assert_eq!(probe.probe(), ProbeResult::NotBlocked);
    }

    #[test]
    fn parse_cpuinfo_counts_cores_per_package() {
        let text = "model name\t: Fast CPU\nphysical id\t: 0\ncore id\t: 0\n\nmodel name\t: Fast CPU\n\
                    physical id\t: 0\ncore id\t: 0\n\nphysical id\t: 1\ncore id\t: 0\n";
        assert_eq!(parse_cpuinfo(text), (Some("Fast CPU".to_owned()), Some(2)));
        assert_eq!(parse_cpuinfo(""), (None, None));
    }
}
