//! What of the process may be left behind by what ran in it.
#![allow(dead_code, reason = "each test uses its part of it")]

/// What the process has, of all that is to be given back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Holdings {
    pub(crate) threads: usize,
    pub(crate) descriptors: usize,
    resident_kib: usize,
    /// Of addresses, whether there is memory behind them or not: where pages are given back and their addresses are not,
    /// this alone tells.
    mapped_kib: usize,
    pub(crate) mappings: usize,
}

impl Holdings {
    /// Memory that the C library would keep for each thread that was, it does not keep from now on.
    pub(crate) fn prepare() {
        // SAFETY: sets a number of the allocator's.
        unsafe { libc::mallopt(libc::M_ARENA_MAX, 1) };
    }

    pub(crate) fn now() -> Self {
        // SAFETY: gives back what is free.
        unsafe { libc::malloc_trim(0) };
        Self {
            threads: threads(),
            descriptors: entries("/proc/self/fd"),
            resident_kib: status_kib("VmRSS:"),
            mapped_kib: status_kib("VmSize:"),
            mappings: std::fs::read_to_string("/proc/self/maps")
                .expect("maps")
                .lines()
                .count(),
        }
    }

    /// Panics if there are other threads or descriptors than `before`, or more memory, by the slacks.
    pub(crate) fn assert_as_before(
        &self,
        before: &Self,
        resident_slack_kib: usize,
        mapped_slack_kib: usize,
    ) {
        println!("{before:?}, then {self:?}");
        assert_eq!(
            (before.threads, before.descriptors),
            (self.threads, self.descriptors)
        );
        for (what, before, now, slack) in [
            (
                "resident",
                before.resident_kib,
                self.resident_kib,
                resident_slack_kib,
            ),
            (
                "mapped",
                before.mapped_kib,
                self.mapped_kib,
                mapped_slack_kib,
            ),
        ] {
            assert!(
                now < before + slack,
                "{what} memory went from {before} to {now} KiB"
            );
        }
    }
}

pub(crate) fn threads() -> usize {
    entries("/proc/self/task")
}

fn entries(folder: &str) -> usize {
    std::fs::read_dir(folder).expect(folder).count()
}

/// A number of KiB in the process's status.
pub(crate) fn status_kib(key: &str) -> usize {
    let status = std::fs::read_to_string("/proc/self/status").expect("status");
    let line = status
        .lines()
        .find(|line| line.starts_with(key))
        .expect(key);
    line.split_whitespace()
        .nth(1)
        .and_then(|number| number.parse().ok())
        .expect("a number")
}
