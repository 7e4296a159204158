//! Reads from `/proc` whether and where a thread of this process is blocked, and which signals it
//! blocks.

use std::io;

use crate::platform::clock::system_clock::age_of_start_ns;
use crate::platform::identity::{current_process_id, thread_exists};
use crate::platform::procfs::{
    BlockedAt, may_wait_for_peer, names_kernel_function, parse_all_blocked_signals, parse_blocked,
    parse_blocked_signals, parse_is_runnable, parse_sleeps, parse_stat, parse_switches,
    parse_waited_ns, waits_for_child,
};
use crate::platform::sandbox::{STRICT_MODE, has_mode};
use crate::platform::thread::kept_file::KeptFile;
use crate::types::{ThreadId, Wait};

/// Size of the buffer for a file, in bytes. A `stat` file is a line of 52 numbers.
const FILE_BYTES: usize = 1024;
/// Size of the buffer for a `status` file, in bytes. The process's groups, up to 11 bytes each, come
/// before the blocked signals: of more than 1,000 groups, the file does not fit.
const STATUS_BYTES: usize = 16 << 10;
/// Size of the buffer for a `wchan` file, in bytes: the beginning of a function's name suffices.
const WCHAN_BYTES: usize = 16;
/// Maximum number of successive probes of a thread that falls asleep that do not look where it sleeps.
/// After so many, the kernel probably names no functions any more.
const MAX_FALLING_ASLEEP: u32 = 10_000;
/// Signals from this one on are real-time signals, which a `stat` file does not list, but a `status`
/// file does. That takes the kernel longer.
const FIRST_REAL_TIME: i32 = 32;

/// Resolution of the age that [`ThreadProbe::age_ns`] returns, and some more, in ns.
pub(crate) const AGE_RESOLUTION_NS: u64 = 20_000_000;

/// State of a thread, as reported by the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ProbeResult {
    Blocked(BlockedAt),
    /// The thread has announced that it sleeps, but still runs or waits for a processor. Only of a thread
    /// that has waited for a child process before.
    FallingAsleep,
    /// The thread is running, waits for a processor, or has exited. Or its state cannot be read at
    /// the moment, because the process has no free descriptor, for example.
    NotBlocked,
    /// The state cannot be read: `/proc` is not mounted or that of another PID namespace, or the
    /// process is not dumpable and does not run as root.
    Hidden,
}

/// What the kernel has counted of a thread since the thread began.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SwitchCounts {
    /// How often the thread has left its processor to wait for something.
    pub(crate) voluntary: u64,
    /// How often the kernel has taken the processor from the thread.
    pub(crate) involuntary: u64,
    /// Time in which the thread could have run and had no processor, in ns; `None` if the kernel does
    /// not report it. The kernel adds a wait when it ends.
    pub(crate) waited_ns: Option<u64>,
    /// Whether the thread runs or waits for a processor now.
    pub(crate) is_runnable: bool,
}

/// The answer to the question for a thread's context switches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SwitchResult {
    Counted(SwitchCounts),
    /// The thread has exited, or its file cannot be read at the moment.
    Missing,
    /// The file cannot be read: see [`ProbeResult::Hidden`].
    Hidden,
}

/// A probe of one thread of this process, which reads the thread's files `syscall`, `wchan`, `stat`,
/// `status` and `schedstat` in `/proc`.
#[derive(Debug)]
pub(crate) struct ThreadProbe {
    thread: ThreadId,
    syscall: ProbedFile,
    wchan: ProbedFile,
    stat: ProbedFile,
    status: ProbedFile,
    schedstat: ProbedFile,
    /// Whether the thread waited for a child process when it was last blocked, and the kernel named the
    /// function in which it slept.
    waited_for_child: bool,
    /// Number of successive probes that found that the thread falls asleep.
    falling_asleep: u32,
}

impl ThreadProbe {
    pub(crate) fn new(thread: ThreadId) -> Self {
        Self {
            thread,
            syscall: ProbedFile::new("syscall"),
            wchan: ProbedFile::new("wchan"),
            stat: ProbedFile::new("stat"),
            status: ProbedFile::new("status"),
            schedstat: ProbedFile::new("schedstat"),
            waited_for_child: false,
            falling_asleep: 0,
        }
    }

    /// Returns whether the thread is blocked, and where. Always called by the same thread. Cost:
    /// about 1.5 µs if the file is open, otherwise 6 µs; twice that in a call that reads or writes, and
    /// for a thread that waits for children.
    ///
    /// In `wait4`, a thread announces that it sleeps before the kernel removes the files of an ended
    /// child from `/proc`. That takes up to seconds on a busy machine. A read of `syscall` waits until
    /// the thread really sleeps, so it would take as long. A read of `wchan` does not wait. But other
    /// threads, too, may stay in the queue of their processor for some time after they have fallen
    /// asleep. So only threads are asked for it that have waited for a child.
    pub(crate) fn probe(&mut self) -> ProbeResult {
        if self.waited_for_child && self.falling_asleep < MAX_FALLING_ASLEEP && !self.is_off_queue()
        {
            if !self.sleeps() {
                return ProbeResult::NotBlocked;
            }
            self.falling_asleep += 1;
            return ProbeResult::FallingAsleep;
        }
        self.falling_asleep = 0;
        let mut text = [0; FILE_BYTES];
        match self.syscall.read(self.thread, &mut text) {
            Ok(line) => {
                let Some(mut at) = parse_blocked(line) else {
                    return ProbeResult::NotBlocked;
                };
                // The thread may have woken up in the meantime, so the kernel is asked until it names
                // a function.
                self.waited_for_child =
                    waits_for_child(line) && (self.waited_for_child || self.is_off_queue());
                if may_wait_for_peer(line) && self.sleeps() {
                    at.wait = Some(Wait::Io);
                }
                ProbeResult::Blocked(at)
            }
            // The next attempt may succeed.
            Err(error) if is_temporary(&error) => ProbeResult::NotBlocked,
            Err(_) if thread_exists(current_process_id(), self.thread) => ProbeResult::Hidden,
            Err(_) => ProbeResult::NotBlocked,
        }
    }

    /// Returns whether the thread neither runs nor waits for a processor; false if the kernel does not
    /// tell it.
    fn is_off_queue(&mut self) -> bool {
        let mut text = [0; WCHAN_BYTES];
        let read = self.wchan.read(self.thread, &mut text);
        read.is_ok_and(names_kernel_function)
    }

    /// Returns how long ago the thread started, in ns, up to 10 ms more; `None` if the kernel does not
    /// say. Called by the same thread as [`probe`](Self::probe). Cost: about 7 µs.
    pub(crate) fn age_ns(&self) -> Option<u64> {
        let mut text = [0; FILE_BYTES];
        // Asked once, so the file does not stay open.
        let stat = ProbedFile::new("stat").read(self.thread, &mut text).ok()?;
        age_of_start_ns(parse_stat(stat)?.start_ticks)
    }

    /// Returns whether the thread blocks this signal; false if the kernel does not say. Called by
    /// the same thread as [`probe`](Self::probe). Cost: about 3 µs if the file is open, otherwise
    /// 7 µs; some 20 µs for a real-time signal.
    pub(crate) fn blocks(&mut self, signal: i32) -> bool {
        let blocked = match signal {
            1..FIRST_REAL_TIME => {
                let mut text = [0; FILE_BYTES];
                let stat = self.stat.read(self.thread, &mut text);
                stat.ok().and_then(parse_blocked_signals).map(u64::from)
            }
            FIRST_REAL_TIME..=64 => {
                let mut text = [0; STATUS_BYTES];
                let status = self.status.read(self.thread, &mut text);
                status.ok().and_then(parse_all_blocked_signals)
            }
            _ => None,
        };
        blocked.is_some_and(|blocked| blocked & 1 << (signal - 1) != 0)
    }

    /// Returns whether the thread is in seccomp's strict mode, in which a handler may read no clock, and
    /// how often it has left its processor to wait for something; false and `None` if the kernel does
    /// not say. Called by the same thread as [`probe`](Self::probe). Cost: some 7 µs if the file is open,
    /// otherwise 12 µs.
    pub(crate) fn strict_mode_and_sleeps(&mut self) -> (bool, Option<u64>) {
        let mut text = [0; STATUS_BYTES];
        let text = self.status.read(self.thread, &mut text).unwrap_or_default();
        let sleeps = parse_switches(text).map(|(voluntary, _)| voluntary);
        (has_mode(text, STRICT_MODE), sleeps)
    }

    /// Returns how often the thread has left its processor, and how long it has waited for one. Called
    /// by the same thread as [`probe`](Self::probe). Cost: some 20 µs if the files are open, otherwise
    /// 50 µs.
    pub(crate) fn switches(&mut self) -> SwitchResult {
        let mut text = [0; STATUS_BYTES];
        let counts = match self.status.read(self.thread, &mut text) {
            Ok(text) => parse_switches(text).map(|counts| (counts, parse_is_runnable(text))),
            Err(error) if is_temporary(&error) => return SwitchResult::Missing,
            Err(_) => None,
        };
        let Some(((voluntary, involuntary), is_runnable)) = counts else {
            return match thread_exists(current_process_id(), self.thread) {
                true => SwitchResult::Hidden,
                false => SwitchResult::Missing,
            };
        };
        let mut text = [0; FILE_BYTES];
        let read = self.schedstat.read(self.thread, &mut text);
        SwitchResult::Counted(SwitchCounts {
            voluntary,
            involuntary,
            is_runnable,
            waited_ns: read.ok().and_then(parse_waited_ns),
        })
    }

    /// Returns whether the thread sleeps until something happens that is not the work of a disk.
    fn sleeps(&mut self) -> bool {
        let mut text = [0; FILE_BYTES];
        let stat = self.stat.read(self.thread, &mut text);
        stat.is_ok_and(|stat| parse_sleeps(stat) == Some(true))
    }
}

/// A file of a thread in `/proc`. It may stay open.
#[derive(Debug)]
struct ProbedFile {
    name: &'static str,
    file: KeptFile,
}

impl ProbedFile {
    fn new(name: &'static str) -> Self {
        let file = KeptFile::default();
        Self { name, file }
    }

    /// Reads the file into `text`, and returns the part that was read.
    fn read<'t>(&mut self, thread: ThreadId, text: &'t mut [u8]) -> io::Result<&'t [u8]> {
        let path = || format!("/proc/self/task/{}/{}", thread.to_number(), self.name);
        let length = self.file.read(path, text)?;
        Ok(&text[..length])
    }
}

/// Returns whether a file could not be read because the process or the system has too few free
/// descriptors or too little memory at the moment, or because the application has just closed the
/// descriptor.
fn is_temporary(error: &io::Error) -> bool {
    let shortages = [libc::EMFILE, libc::ENFILE, libc::ENOMEM, libc::EBADF];
    match error.raw_os_error() {
        Some(number) => shortages.contains(&number),
        // Not from the system: the file is another one by now.
        None => true,
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::path::Path;
    use std::process::{Command, Stdio};
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;
    use crate::platform::identity::current_thread_id;
    use crate::platform::test_library::TestFolder;
    use crate::platform::thread::own_descriptors::use_own_descriptors;

    /// Probes a thread that sleeps and then spins, until the probe has seen both.
    fn probe_sleeping_and_spinning() {
        let stop_spinning = AtomicBool::new(false);
        let (id_sender, id_receiver) = std::sync::mpsc::channel();
        let (wake, woken) = std::sync::mpsc::channel::<()>();
        let mut probe = std::thread::scope(|scope| {
            let stop_spinning = &stop_spinning;
            let sleeper = scope.spawn(move || {
                id_sender
                    .send(current_thread_id())
                    .expect("the test waits for the id");
                let _ = woken.recv();
                while !stop_spinning.load(Ordering::Relaxed) {
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
            stop_spinning.store(true, Ordering::Relaxed);
            sleeper.join().expect("thread");
            probe
        });
        assert_eq!(probe.probe(), ProbeResult::NotBlocked);
    }

    #[test]
    fn thread_probe_distinguishes_sleeping_from_running() {
        probe_sleeping_and_spinning();
        let beside_own_descriptors = std::thread::spawn(|| {
            assert!(use_own_descriptors());
            probe_sleeping_and_spinning();
        });
        beside_own_descriptors.join().expect("thread");
    }

    /// A program with many files in `/proc`, which ends when its input does.
    const CHILD: &str = r#"
        #include <dirent.h>
        #include <sys/resource.h>
        #include <unistd.h>
        int main(void) {
            struct rlimit limit;
            char byte = 0;
            getrlimit(RLIMIT_NOFILE, &limit);
            limit.rlim_cur = limit.rlim_max;
            setrlimit(RLIMIT_NOFILE, &limit);
            DIR *files = opendir("/proc/self/fd");
            for (int i = 0; i < 20000; i++) dup(0);
            while (readdir(files)) {}
            write(1, &byte, 1);
            read(0, &byte, 1);
        }
    "#;

    /// Lets a thread wait for a child, ends the child, and returns whether a probe of the thread found that
    /// it falls asleep while the kernel removes the child's files.
    fn is_seen_falling_asleep(program: &Path) -> bool {
        let mut child = Command::new(program)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a child");
        let input = child.stdin.take();
        let mut output = child.stdout.take().expect("a pipe");
        output.read_exact(&mut [0]).expect("the child is ready");
        let (id_sender, id_receiver) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(move || {
                id_sender
                    .send(current_thread_id())
                    .expect("the test waits for the id");
                child.wait().expect("a child")
            });
            let mut probe = ThreadProbe::new(id_receiver.recv().expect("the thread"));
            while !probe.waited_for_child {
                probe.probe();
            }
            drop(input);
            let mut is_seen = false;
            while !waiting.is_finished() {
                is_seen |= probe.probe() == ProbeResult::FallingAsleep;
            }
            is_seen
        })
    }

    #[test]
    fn thread_probe_does_not_wait_for_the_removal_of_a_child() {
        let folder = TestFolder::new("child-removal");
        let (source, program) = (folder.path().join("child.c"), folder.path().join("child"));
        std::fs::write(&source, CHILD).expect("the source is written");
        let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".to_owned());
        let compiled = Command::new(compiler)
            .args(["-w", "-o"])
            .args([&program, &source])
            .status();
        assert!(compiled.expect("a C compiler").success());
        // The removal may be over before the first probe.
        let is_seen = (0..50).any(|_| is_seen_falling_asleep(&program));
        assert!(is_seen);
    }

    #[test]
    fn thread_probe_counts_the_switches_of_a_thread() {
        let mut probe = ThreadProbe::new(current_thread_id());
        let mut counts = || match probe.switches() {
            SwitchResult::Counted(counts) => counts,
            other => panic!("{other:?}"),
        };
        let before = counts();
        for _ in 0..5 {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        let after = counts();
        assert!(
            after.voluntary >= before.voluntary + 5,
            "{before:?} {after:?}"
        );
        assert!(after.is_runnable);
        assert!(after.involuntary >= before.involuntary && after.waited_ns >= before.waited_ns);
        let no_thread = ThreadId::from_number(i32::MAX);
        assert_eq!(
            ThreadProbe::new(no_thread).switches(),
            SwitchResult::Missing
        );
    }

    #[test]
    fn thread_probe_reads_which_signals_are_blocked() {
        let mut probe = ThreadProbe::new(current_thread_id());
        let blocks = |probe: &mut ThreadProbe| {
            let [first, last] = [libc::SIGRTMIN(), libc::SIGRTMAX()];
            [libc::SIGURG, libc::SIGPROF, first, last, last + 1].map(|signal| probe.blocks(signal))
        };
        assert_eq!(blocks(&mut probe), [false; 5]);
        let mut set = nix::sys::signal::SigSet::empty();
        set.add(nix::sys::signal::Signal::SIGURG);
        set.thread_block().expect("a mask");
        assert_eq!(blocks(&mut probe), [true, false, false, false, false]);
        nix::sys::signal::SigSet::all()
            .thread_block()
            .expect("a mask");
        assert_eq!(blocks(&mut probe), [true, true, true, true, false]);
    }
}
