//! Threads, descriptors and memory of the process, to see whether anything is left behind.
#![allow(dead_code, reason = "each test binary uses some of the helpers")]

/// What the process holds at one moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Holdings {
    pub(crate) threads: usize,
    pub(crate) descriptors: usize,
    resident_kib: usize,
    /// The resident memory that no file backs, and the part of that memory that the program has
    /// allocated: printed to explain a growth.
    anonymous_kib: usize,
    allocated_kib: usize,
    /// Address space, with or without memory behind it. Only this shows pages that were freed but
    /// not unmapped.
    mapped_kib: usize,
    pub(crate) mappings: usize,
}

impl Holdings {
    /// Keeps the C library from reserving memory for each thread, and from keeping memory that is
    /// free. Called first.
    ///
    /// The test harness has begun threads with memory of their own before. From there the C library
    /// returns free memory only beyond a threshold, which it raises to up to 64 MiB when large
    /// allocations are freed, unless it is set.
    pub(crate) fn prepare() {
        const TRIM_BYTES: libc::c_int = 128 << 10;
        // SAFETY: the calls set options of the allocator.
        unsafe {
            libc::mallopt(libc::M_ARENA_MAX, 1);
            libc::mallopt(libc::M_TRIM_THRESHOLD, TRIM_BYTES);
        }
    }

    pub(crate) fn now() -> Self {
        // SAFETY: the call returns free memory to the kernel.
        unsafe { libc::malloc_trim(0) };
        Self {
            threads: threads(),
            descriptors: entries("/proc/self/fd"),
            resident_kib: status_kib("VmRSS:"),
            anonymous_kib: status_kib("RssAnon:"),
            allocated_kib: allocated_kib(),
            mapped_kib: status_kib("VmSize:"),
            mappings: std::fs::read_to_string("/proc/self/maps")
                .expect("maps")
                .lines()
                .count(),
        }
    }

    /// Panics if the number of threads or descriptors differs from `before`, or if memory grew by more
    /// than the slacks.
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

/// Returns the memory in use by allocations; 0 where the C library does not say.
fn allocated_kib() -> usize {
    #[cfg(target_env = "gnu")]
    {
        // SAFETY: the call reads the allocator's own counts.
        let counts = unsafe { libc::mallinfo2() };
        (counts.uordblks + counts.hblkhd) >> 10
    }
    #[cfg(not(target_env = "gnu"))]
    0
}

/// Returns a number of KiB from `/proc/self/status`.
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
