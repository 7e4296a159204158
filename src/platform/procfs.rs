//! Data from `/proc`: parsers over bytes, the functions that read the files, and the machine as the
//! profile's `meta` describes it.

use std::os::unix::fs::MetadataExt;

use crate::platform::shared_file::{read_bytes, read_text};
use crate::types::{ProcessId, Wait};

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

/// Returns the time at which the kernel started a process, in clock ticks since boot. Returns
/// `None` if the process does not exist, if it has ended and its parent has not waited for it, or
/// without `/proc`.
pub(crate) fn process_start_ticks(process: ProcessId) -> Option<u64> {
    let path = format!("/proc/{}/stat", process.to_number());
    let mut stat = read_bytes(&path);
    if is_zombie(&stat) {
        // The main thread may have ended alone: another thread runs on, or replaces the program by
        // `exec`. Then it becomes the main thread, perhaps between two of these looks.
        let tasks = std::fs::read_dir(format!("/proc/{}/task", process.to_number()));
        let is_alone = tasks.map_or(0, |tasks| tasks.count()) <= 1;
        stat = read_bytes(&path);
        if is_alone && is_zombie(&stat) {
            return None;
        }
    }
    parse_stat(&stat).map(|stat| stat.start_ticks)
}

fn is_zombie(stat: &[u8]) -> bool {
    matches!(stat_field(stat, 3), Some("Z" | "X" | "x"))
}

/// Returns whether the main thread has ended, and others of the process run on.
pub(crate) fn has_main_thread_ended() -> bool {
    is_zombie(&read_bytes("/proc/self/stat"))
}

/// Returns whether the process has only this thread. Returns false without `/proc`.
pub(crate) fn is_only_thread() -> bool {
    /// Links of a folder without folders in it.
    const OWN_LINKS: u64 = 2;
    let threads = std::fs::metadata("/proc/self/task").map(|tasks| tasks.nlink());
    threads.is_ok_and(|links| links == OWN_LINKS + 1)
}

/// Returns whether the process is the child of a fork, and has executed no program since. Returns
/// false without `/proc`.
pub(crate) fn has_forked() -> bool {
    is_forked(&read_bytes("/proc/self/stat")) == Some(true)
}

fn is_forked(stat: &[u8]) -> Option<bool> {
    /// The kernel's `PF_FORKNOEXEC`. Every thread begins with it, and the program's main thread loses
    /// it by `exec`.
    const FORKED: u32 = 0x40;
    Some(stat_field(stat, 9)?.parse::<u32>().ok()? & FORKED != 0)
}

/// Reads the nice value of the calling thread from its `stat` file.
pub(crate) fn own_nice() -> Option<i32> {
    parse_nice(&read_bytes("/proc/thread-self/stat"))
}

fn parse_nice(text: &[u8]) -> Option<i32> {
    stat_field(text, 19)?.parse().ok()
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
    /// Whether the thread waits for any handler to run, as `pause` does.
    pub(crate) awaits_handler: bool,
    /// Whether the thread waits for signals, as `sigwait` does. The kernel then reports the awaited
    /// signals as not blocked.
    pub(crate) awaits_signals: bool,
    /// What the thread waits for; `None` if the system call works for the thread, or if no call
    /// blocks it.
    pub(crate) wait: Option<Wait>,
}

impl BlockedAt {
    /// Returns whether a thread that a signal interrupted at this program counter was still blocked
    /// here: the system call has returned, or is to be made again.
    pub(crate) fn is_place_of(&self, pc: u64) -> bool {
        const CALL_BYTES: u64 = if cfg!(target_arch = "x86_64") { 2 } else { 4 };
        pc == self.pc || pc.wrapping_add(CALL_BYTES) == self.pc
    }
}

/// Parses a `syscall` file: `running`; or the number of the system call and its arguments, or -1,
/// followed by the stack pointer and the program counter.
pub(crate) fn parse_blocked(line: &[u8]) -> Option<BlockedAt> {
    let line_text = std::str::from_utf8(line).ok()?.trim_end();
    let number = call_number(line);
    let mut fields = line_text.rsplit(' ');
    let mut address = || u64::from_str_radix(fields.next()?.strip_prefix("0x")?, 16).ok();
    let (pc, sp) = (address()?, address()?);
    // Both are 0 for a thread that is exiting.
    let in_system_call = !line.starts_with(b"-1 ");
    let wait = number.filter(|_| in_system_call).and_then(|number| {
        let mut arguments = line_text.split(' ').skip(1);
        // The second argument: the operation on a futex, or of `fcntl`.
        let second = arguments.nth(1)?.strip_prefix("0x")?;
        wait_in(number, u64::from_str_radix(second, 16).ok()?)
    });
    (pc != 0 && sp != 0).then_some(BlockedAt {
        pc,
        sp,
        in_system_call,
        awaits_handler: number
            .is_some_and(|number| number == libc::SYS_rt_sigsuspend || PAUSE == Some(number)),
        awaits_signals: number == Some(libc::SYS_rt_sigtimedwait),
        wait,
    })
}

/// Returns the number of the system call that a `syscall` file begins with.
fn call_number(line: &[u8]) -> Option<libc::c_long> {
    let number = line.split(|&byte| byte == b' ').next()?;
    std::str::from_utf8(number).ok()?.parse().ok()
}

#[cfg(target_arch = "x86_64")]
const PAUSE: Option<libc::c_long> = Some(libc::SYS_pause);
#[cfg(not(target_arch = "x86_64"))]
const PAUSE: Option<libc::c_long> = None;

/// Returns what a thread waits for that is blocked in this system call.
fn wait_in(number: libc::c_long, second_argument: u64) -> Option<Wait> {
    #[cfg(target_arch = "x86_64")]
    const OLDER: &[libc::c_long] = &[
        libc::SYS_accept,
        libc::SYS_epoll_wait,
        libc::SYS_poll,
        libc::SYS_select,
    ];
    #[cfg(not(target_arch = "x86_64"))]
    const OLDER: &[libc::c_long] = &[libc::SYS_accept];
    const IO: [libc::c_long; 13] = [
        libc::SYS_accept4,
        libc::SYS_connect,
        libc::SYS_epoll_pwait,
        libc::SYS_epoll_pwait2,
        libc::SYS_io_getevents,
        libc::SYS_io_uring_enter,
        libc::SYS_ppoll,
        libc::SYS_pselect6,
        libc::SYS_recvfrom,
        libc::SYS_recvmsg,
        libc::SYS_recvmmsg,
        libc::SYS_sendmmsg,
        libc::SYS_sendmsg,
    ];
    const WORK: [libc::c_long; 5] = [
        libc::SYS_mq_timedreceive,
        libc::SYS_msgrcv,
        libc::SYS_semtimedop,
        libc::SYS_wait4,
        libc::SYS_waitid,
    ];
    const SIGNALS: [libc::c_long; 2] = [libc::SYS_rt_sigsuspend, libc::SYS_rt_sigtimedwait];
    const LOCKS: [i32; 3] = [
        libc::FUTEX_LOCK_PI,
        libc::FUTEX_LOCK_PI2,
        libc::FUTEX_WAIT_REQUEUE_PI,
    ];
    /// `futex_wait`, which the crate `libc` does not name.
    const FUTEX_WAIT: libc::c_long = 455;
    const FILE_LOCKS: [i32; 2] = [libc::F_SETLKW, libc::F_OFD_SETLKW];
    if number == libc::SYS_futex {
        let operation = second_argument as i32 & libc::FUTEX_CMD_MASK;
        return Some(if LOCKS.contains(&operation) {
            Wait::Lock
        } else {
            Wait::Futex
        });
    }
    match number {
        libc::SYS_nanosleep | libc::SYS_clock_nanosleep => Some(Wait::Timer),
        libc::SYS_sendto => Some(Wait::Io),
        libc::SYS_futex_waitv | FUTEX_WAIT => Some(Wait::Futex),
        libc::SYS_flock => Some(Wait::Lock),
        libc::SYS_fcntl if FILE_LOCKS.contains(&(second_argument as i32)) => Some(Wait::Lock),
        // A wait with a time limit that a stop has interrupted.
        libc::SYS_restart_syscall => Some(Wait::Other),
        // A process may wait for the child of `vfork`, or for signals.
        _ if SIGNALS.contains(&number) || PAUSE == Some(number) => Some(Wait::Other),
        _ if WORK.contains(&number) || number == libc::SYS_semop => Some(Wait::Work),
        _ if IO.contains(&number) || OLDER.contains(&number) => Some(Wait::Io),
        _ => None,
    }
}

/// Returns whether a `syscall` file says that the thread is in a call that reads or writes any kind
/// of file: it may wait for a pipe, a terminal or a connection, or for a disk.
pub(crate) fn may_wait_for_peer(line: &[u8]) -> bool {
    const CALLS: [libc::c_long; 6] = [
        libc::SYS_read,
        libc::SYS_readv,
        libc::SYS_splice,
        libc::SYS_tee,
        libc::SYS_write,
        libc::SYS_writev,
    ];
    call_number(line).is_some_and(|number| CALLS.contains(&number))
}

/// Returns whether a `syscall` file says that the thread waits for a child process.
pub(crate) fn waits_for_child(line: &[u8]) -> bool {
    matches!(call_number(line), Some(libc::SYS_wait4 | libc::SYS_waitid))
}

/// Parses from a `wchan` file whether the kernel names the function in which the thread sleeps. It names
/// none for a thread that runs or waits for a processor.
pub(crate) fn names_kernel_function(text: &[u8]) -> bool {
    !matches!(text, [] | b"0")
}

/// Parses from a thread's `stat` file whether it sleeps until something happens. A thread that
/// waits for a disk does not count.
pub(crate) fn parse_sleeps(text: &[u8]) -> Option<bool> {
    Some(stat_field(text, 3)? == "S")
}

/// Parses from a thread's `stat` file which of the signals below 32 it blocks: bit `n - 1` stands
/// for signal `n`.
pub(crate) fn parse_blocked_signals(text: &[u8]) -> Option<u32> {
    stat_field(text, 32)?.parse().ok()
}

/// Returns what a `status` file says after this key.
pub(super) fn status_value<'t>(text: &'t [u8], key: &[u8]) -> Option<&'t str> {
    let mut lines = text.split(|&byte| byte == b'\n');
    let value = lines.find_map(|line| line.strip_prefix(key))?;
    Some(std::str::from_utf8(value).ok()?.trim())
}

/// Parses a thread's `status` file for the signals that the thread blocks: bit `n - 1` is signal
/// `n`.
pub(crate) fn parse_all_blocked_signals(text: &[u8]) -> Option<u64> {
    u64::from_str_radix(status_value(text, b"SigBlk:")?, 16).ok()
}

/// Parses from a `statm` file how many pages of the process are in RAM.
pub(crate) fn parse_resident_pages(text: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(text).ok()?;
    text.split_ascii_whitespace().nth(1)?.parse().ok()
}

/// Parses from a `schedstat` file how long the thread has waited for a processor, in ns; `None` if
/// the kernel does not measure it, or if the thread has not run yet: then all three numbers are 0.
pub(crate) fn parse_waited_ns(text: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(text).ok()?;
    let mut numbers = text.split_ascii_whitespace().map(str::parse::<u64>);
    let mut number = || numbers.next()?.ok();
    let [ran_ns, waited_ns, timeslices] = [number()?, number()?, number()?];
    (ran_ns > 0 || timeslices > 0).then_some(waited_ns)
}

/// Parses from a `status` file how often the thread has left its processor to wait for something,
/// and how often the kernel has taken the processor from it.
pub(crate) fn parse_switches(text: &[u8]) -> Option<(u64, u64)> {
    let value = |key: &[u8]| status_value(text, key)?.parse().ok();
    let voluntary = value(b"voluntary_ctxt_switches:")?;
    Some((voluntary, value(b"nonvoluntary_ctxt_switches:")?))
}

/// Parses from a `status` file whether the thread runs or waits for a processor.
pub(crate) fn parse_is_runnable(text: &[u8]) -> bool {
    text.split(|&byte| byte == b'\n')
        .any(|line| line.starts_with(b"State:\tR"))
}

/// Returns the path of the file that is mapped at `address`, from the text of a `maps` file.
pub(crate) fn mapped_file_at(maps: &[u8], address: u64) -> Option<&[u8]> {
    let line = maps.split(|&byte| byte == b'\n').find(|line| {
        let range = line.split(|&byte| byte == b' ').next();
        let range = range.and_then(|range| std::str::from_utf8(range).ok());
        let number = |text| u64::from_str_radix(text, 16).ok();
        range
            .and_then(|range| range.split_once('-'))
            .and_then(|(start, end)| Some(number(start)?..number(end)?))
            .is_some_and(|range| range.contains(&address))
    })?;
    // The fields before the path contain no slash but the path begins with one.
    let path = &line[line.iter().position(|&byte| byte == b'/')?..];
    // A path with a line break, or of a removed file, is not one that can be opened.
    (!path.ends_with(b" (deleted)") && !path.windows(4).any(|text| text == b"\\012"))
        .then_some(path)
}

pub(crate) fn parse_stat(text: &[u8]) -> Option<ProcessStat> {
    Some(ProcessStat {
        start_ticks: stat_field(text, 22)?.parse().ok()?,
        start_stack: stat_field(text, 28)?.parse().ok()?,
    })
}

/// Returns a field of a `stat` file by its number, counted from 1 as in `proc(5)`, from the third
/// on. The second field is a name in parentheses that may contain any bytes, so fields are counted
/// from the last `)`.
fn stat_field(text: &[u8], number: usize) -> Option<&str> {
    let after_name = text.iter().rposition(|&byte| byte == b')')? + 1;
    let fields = std::str::from_utf8(&text[after_name..]).ok()?;
    fields.split_ascii_whitespace().nth(number.checked_sub(3)?)
}

/// Returns the first `model name` of `/proc/cpuinfo`, and the number of distinct physical cores,
/// each if present.
fn parse_cpuinfo(text: &str) -> (Option<String>, Option<usize>) {
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

/// Names and counts. A value that the system does not provide is empty or 0.
#[derive(Clone, Debug, Default)]
pub(crate) struct SystemInfo {
    pub(crate) os: String,
    pub(crate) cpu_name: String,
    pub(crate) logical_cpus: usize,
    pub(crate) physical_cpus: usize,
}

/// Reads the description of this machine.
pub(crate) fn system_info() -> SystemInfo {
    let (model, cores) = parse_cpuinfo(&read_text("/proc/cpuinfo"));
    let logical_cpus = usable_processors();
    SystemInfo {
        os: format!("Linux {}", read_text("/proc/sys/kernel/osrelease").trim()),
        cpu_name: model.unwrap_or_default(),
        logical_cpus,
        physical_cpus: cores.unwrap_or(logical_cpus),
    }
}

/// Returns the number of processors that the calling thread may use, by its affinity and by the
/// quota of its control group, whose files it reads; 0 if the system does not tell it.
pub(crate) fn usable_processors() -> usize {
    std::thread::available_parallelism().map_or(0, usize::from)
}

/// Returns whether the running kernel is Linux `major.minor` or later.
pub(crate) fn kernel_is_at_least(major: u32, minor: u32) -> bool {
    let release = read_text("/proc/sys/kernel/osrelease");
    release_is_at_least(&release, (major, minor))
}

fn release_is_at_least(release: &str, version: (u32, u32)) -> bool {
    let mut numbers = release
        .split(|c: char| !c.is_ascii_digit())
        .map(|number| number.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) >= version
}

/// Returns the kernel's name for the calling thread, at most 15 bytes. A longer name may have been
/// cut inside a character, which is left out.
pub(crate) fn current_thread_os_name() -> String {
    let name = read_bytes("/proc/thread-self/comm");
    let name = String::from_utf8_lossy(name.trim_ascii_end());
    name.trim_end_matches(char::REPLACEMENT_CHARACTER)
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mapped_file_at_reads_the_path_of_the_range() {
        let maps = b"7f00-7f10 r--p 00000000 fe:00 42                 /lib/a b.so\n\
                     7f10-7f20 r-xp 00010000 fe:00 42                 /lib/a b.so\n\
                     7f20-7f30 rw-p 00000000 00:00 0 \n\
                     7f30-7f40 r--p 00000000 fe:00 43                 /gone.so (deleted)\n\
                     7f40-7f50 r--p 00000000 fe:00 44                 /line\\012break.so\n\
                     7f50-7f60 r-xp 00000000 00:00 0                  [vdso]\n";
        let file_at = |address| mapped_file_at(maps, address);
        assert_eq!(file_at(0x7f00), Some(b"/lib/a b.so".as_slice()));
        assert_eq!(file_at(0x7f1f), Some(b"/lib/a b.so".as_slice()));
        for address in [0x7eff, 0x7f20, 0x7f30, 0x7f40, 0x7f50, 0x7f60] {
            assert_eq!(file_at(address), None, "{address:#x}");
        }
    }

    #[test]
    fn parse_all_blocked_signals_reads_the_mask() {
        let text = b"Name:\ta\\nSigBlk:\nSigPnd:\t0000000000000001\nSigBlk:\t8000000000010000\n\
                     SigIgn:\t0000000000001000\n";
        assert_eq!(parse_all_blocked_signals(text), Some(1 << 63 | 1 << 16));
        assert_eq!(parse_all_blocked_signals(b"SigBlk:\t80"), Some(0x80));
        for text in [&b"SigPnd:\t80\n"[..], b"SigBlk:\t8x\n", b""] {
            assert_eq!(parse_all_blocked_signals(text), None);
        }
    }

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
        assert_eq!(parse_nice(text), Some(0));
        assert_eq!(parse_stat(b"77 (a"), None);
        assert_eq!(parse_stat(b""), None);
    }

    #[test]
    fn parse_blocked_signals_reads_the_mask() {
        let text = b"77 (a) b) S 1 77 77 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 4242 1000 10 11 94 \
                     95 0 0 0 0 4194304 4096 17 0 0 17 1\n";
        assert_eq!(parse_blocked_signals(text), Some(1 << (libc::SIGURG - 1)));
        assert_eq!(parse_blocked_signals(b"77 (a) R 1"), None);
    }

    #[test]
    fn own_stat_reads_this_process() {
        let stat = own_stat().expect("/proc/self/stat");
        assert!(stat.start_ticks > 0 && stat.start_stack > 0, "{stat:?}");
    }

    #[test]
    fn parse_blocked_reads_the_place_and_whether_a_call_blocks() {
        let line =
            b"230 0x0 0x0 0x7ff69308cea0 0x0 0x0 0x7ffe1e2680b7 0x7ff69308ce60 0x7ff693160545\n";
        let at = BlockedAt {
            pc: 0x7ff6_9316_0545,
            sp: 0x7ff6_9308_ce60,
            in_system_call: true,
            awaits_handler: false,
            awaits_signals: false,
            wait: cfg!(target_arch = "x86_64").then_some(Wait::Timer),
        };
        assert_eq!(parse_blocked(line), Some(at));
        let waiting = [b"128 0x7ff6".as_slice(), &line[3..]].concat();
        let expected = cfg!(target_arch = "x86_64").then_some(true);
        assert_eq!(
            parse_blocked(&waiting).map(|at| at.awaits_signals),
            expected.or(Some(false))
        );
        assert_eq!(
            parse_blocked(b"-1 0x7ff69308ce60 0x7ff693160545\n"),
            Some(BlockedAt {
                in_system_call: false,
                wait: None,
                ..at
            })
        );
        for line in ["running\n", "", "0x1", "1 2", "0x1 x"] {
            assert_eq!(parse_blocked(line.as_bytes()), None);
        }
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn parse_blocked_tells_what_a_thread_waits_for() {
        let wait = |call: &str| {
            let line = format!("{call} 0x0 0x0 0x0 0x0 0x7ffe1e2680b7 0x7ff693160545\n");
            parse_blocked(line.as_bytes()).expect("blocked").wait
        };
        assert_eq!(
            wait("202 0x7ff6 0x189"),
            Some(Wait::Futex),
            "FUTEX_WAIT_BITSET"
        );
        assert_eq!(wait("202 0x7ff6 0x86"), Some(Wait::Lock), "FUTEX_LOCK_PI");
        assert_eq!(wait("232 0x3 0x7ff6"), Some(Wait::Io), "epoll_wait");
        assert_eq!(wait("61 0xffffffff 0x0"), Some(Wait::Work), "wait4");
        let awaits_handler = |call: &str| {
            let line = format!("{call} 0x0 0x0 0x0 0x0 0x7ffe1e2680b7 0x7ff693160545\n");
            parse_blocked(line.as_bytes())
                .expect("blocked")
                .awaits_handler
        };
        assert!(awaits_handler("34 0x0 0x0") && awaits_handler("130 0x7ff6 0x8"));
        assert!(!awaits_handler("35 0x0 0x0"), "nanosleep");
        assert!(waits_for_child(b"61 0x1 0x0") && waits_for_child(b"247 0x0 0x1"));
        assert!(!waits_for_child(b"running") && !waits_for_child(b"-1 0x0"));
        assert!(names_kernel_function(b"do_wait") && !names_kernel_function(b"0"));
        assert_eq!(wait("449 0x7ff6 0x2"), Some(Wait::Futex), "futex_waitv");
        assert_eq!(wait("72 0x3 0x7"), Some(Wait::Lock), "F_SETLKW");
        assert_eq!(wait("72 0x3 0x6"), None, "F_SETLK");
        assert_eq!(wait("219 0x7ff6 0x0"), Some(Wait::Other), "restart_syscall");
        assert_eq!(wait("0 0x3 0x7ff6"), None, "read, perhaps of a disk");
        assert_eq!(wait("74 0x3 0x7ff6"), None, "fsync");
        assert!(may_wait_for_peer(b"0 0x3 0x7ff6") && !may_wait_for_peer(b"74 0x3"));
        assert!(!may_wait_for_peer(b"running\n") && !may_wait_for_peer(b"-1 0x1 0x2"));
        assert_eq!(parse_sleeps(b"77 (a) S) S 1"), Some(true));
        assert_eq!(parse_sleeps(b"77 (a) D 1"), Some(false));
    }

    #[test]
    fn parse_waited_ns_reads_the_second_number() {
        assert_eq!(
            parse_waited_ns(b"1426050580 695679575 236\n"),
            Some(695_679_575)
        );
        assert_eq!(parse_waited_ns(b"500 0 1\n"), Some(0));
        for text in [&b"0 0 0\n"[..], b"", b"1 2", b"1 x 3"] {
            assert_eq!(parse_waited_ns(text), None);
        }
    }

    #[test]
    fn parse_switches_reads_both_counts() {
        let text = b"Name:\ta\nvoluntary_ctxt_switches:\t150\nnonvoluntary_ctxt_switches:\t545\n";
        assert_eq!(parse_switches(text), Some((150, 545)));
        assert_eq!(parse_switches(&text[..40]), None);
        assert!(
            !parse_is_runnable(text) && !parse_is_runnable(b"Name:\ta\nState:\tS (sleeping)\n")
        );
        assert!(parse_is_runnable(b"Name:\ta\nState:\tR (running)\n"));
        assert_eq!(parse_switches(b"nonvoluntary_ctxt_switches:\t545\n"), None);
    }

    #[test]
    fn parse_resident_pages_reads_the_second_number() {
        let text = b"210876 50549 1503 700 0 180000 0\n";
        assert_eq!(parse_resident_pages(text), Some(50_549));
        for text in [&b"210876"[..], b"210876 x", b""] {
            assert_eq!(parse_resident_pages(text), None);
        }
    }

    #[test]
    fn parse_cpuinfo_counts_cores_per_package() {
        let text = "model name\t: Fast CPU\nphysical id\t: 0\ncore id\t: 0\n\nmodel name\t: Fast CPU\n\
                    physical id\t: 0\ncore id\t: 0\n\nphysical id\t: 1\ncore id\t: 0\n";
        assert_eq!(parse_cpuinfo(text), (Some("Fast CPU".to_owned()), Some(2)));
        assert_eq!(parse_cpuinfo(""), (None, None));
        // Two packages of 64 cores with two processors each.
        let processor = |number: u32| {
            format!(
                "processor\t: {number}\nphysical id\t: {}\ncore id\t: {}\n\n",
                number / 64 % 2,
                number % 64
            )
        };
        let text: String = (0..256).map(processor).collect();
        assert_eq!(parse_cpuinfo(&text), (None, Some(128)));
    }

    #[test]
    fn release_is_at_least_compares_major_and_minor() {
        for (release, expected) in [
            ("6.18.44-fc", true),
            ("5.4.0", true),
            ("5.10", true),
            ("5.3.18-59", false),
            ("4.4.0", false),
            ("", false),
        ] {
            assert_eq!(release_is_at_least(release, (5, 4)), expected, "{release}");
        }
        assert!(kernel_is_at_least(2, 6));
    }
}
