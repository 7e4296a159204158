//! What the kernel says in `/proc`: pure parsers over bytes, and the files that they are fed from.

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

/// How often a thread of this process has gone to sleep.
pub(super) fn thread_sleeps(thread: ThreadId) -> Option<u64> {
    let status = std::fs::read(format!("/proc/self/task/{}/status", thread.to_number())).ok()?;
    parse_sleeps(&status)
}

fn parse_sleeps(status: &[u8]) -> Option<u64> {
    let key = b"voluntary_ctxt_switches:";
    let value = status.split(|&byte| byte == b'\n').find_map(|line| line.strip_prefix(key))?;
    std::str::from_utf8(value).ok()?.trim().parse().ok()
}

/// The second field is a name in parentheses that may hold anything, so fields are counted from the last `)`.
fn parse_stat(text: &[u8]) -> Option<Stat> {
    let after_name = text.iter().rposition(|&byte| byte == b')')? + 1;
    let mut fields = std::str::from_utf8(&text[after_name..]).ok()?.split_ascii_whitespace();
    let start_ticks = fields.nth(22 - 3)?.parse().ok()?;
    let start_stack = fields.nth(28 - 23)?.parse().ok()?;
    Some(Stat { start_ticks, start_stack })
}

/// The first `model name` of `/proc/cpuinfo`, and the number of distinct physical cores, where the kernel tells.
pub(super) fn parse_cpuinfo(text: &str) -> (Option<String>, Option<usize>) {
    let value = |line: &str| line.split_once(':').map(|(_, value)| value.trim().to_owned());
    let model = text.lines().find(|line| line.starts_with("model name")).and_then(value);
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
        assert_eq!(parse_stat(text), Some(Stat { start_ticks: 4242, start_stack: 140_737_000_000_016 }));
        assert_eq!(parse_stat(b"77 (a"), None);
        assert_eq!(parse_stat(b""), None);
    }

    #[test]
    fn the_kernel_tells_of_this_process() {
        let stat = own_stat().expect("/proc/self/stat");
        assert!(stat.start_ticks > 0 && stat.start_stack > 0, "{stat:?}");
    }

    #[test]
    fn sleeps_are_the_voluntary_switches() {
        let text = b"Name:\tvoluntary\nvoluntary_ctxt_switches:\t1150\nnonvoluntary_ctxt_switches:\t545\n";
        assert_eq!(parse_sleeps(text), Some(1150));
        assert_eq!(parse_sleeps(b"nonvoluntary_ctxt_switches:\t545\n"), None);
        let own = crate::platform::current_thread_id();
        let before = thread_sleeps(own).expect("status");
        std::thread::sleep(std::time::Duration::from_millis(1));
        assert!(thread_sleeps(own).expect("status") > before);
    }

    #[test]
    fn cores_are_counted_over_packages() {
        let text = "model name\t: Fast CPU\nphysical id\t: 0\ncore id\t: 0\n\nmodel name\t: Fast CPU\n\
                    physical id\t: 0\ncore id\t: 0\n\nphysical id\t: 1\ncore id\t: 0\n";
        assert_eq!(parse_cpuinfo(text), (Some("Fast CPU".to_owned()), Some(2)));
        assert_eq!(parse_cpuinfo(""), (None, None));
    }
}
