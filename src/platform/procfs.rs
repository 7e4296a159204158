//! Data from `/proc`: parsers over bytes, and the functions that read the files.

use crate::platform::identity::has_seccomp_filter;
use crate::platform::shared_file::read_bytes;

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

/// Returns whether the calling thread has a seccomp filter. Asks the kernel without `/proc`, or
/// without a free descriptor. Some filters kill the process for that call, so it is the last resort.
pub(crate) fn may_be_sandboxed() -> bool {
    let status = read_bytes("/proc/thread-self/status");
    if status.is_empty() {
        has_seccomp_filter()
    } else {
        has_filter(&status)
    }
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

/// Parses a `syscall` file: `running`; or the number of the system call and its arguments, or -1,
/// followed by the stack pointer and the program counter.
pub(crate) fn parse_blocked(line: &[u8]) -> Option<BlockedAt> {
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
    fn parse_cpuinfo_counts_cores_per_package() {
        let text = "model name\t: Fast CPU\nphysical id\t: 0\ncore id\t: 0\n\nmodel name\t: Fast CPU\n\
                    physical id\t: 0\ncore id\t: 0\n\nphysical id\t: 1\ncore id\t: 0\n";
        assert_eq!(parse_cpuinfo(text), (Some("Fast CPU".to_owned()), Some(2)));
        assert_eq!(parse_cpuinfo(""), (None, None));
    }
}
