//! What machine this is, for the profile's `meta`. Reads files; asked once a profile.

use crate::platform::procfs;

/// Names and counts; empty or 0 where the system does not tell.
#[derive(Clone, Debug, Default)]
pub(crate) struct SystemInfo {
    pub(crate) os: String,
    pub(crate) cpu_name: String,
    pub(crate) logical_cpus: usize,
    pub(crate) physical_cpus: usize,
}

pub(crate) fn system_info() -> SystemInfo {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let (model, cores) = procfs::parse_cpuinfo(&read("/proc/cpuinfo"));
    let logical_cpus = std::thread::available_parallelism().map_or(0, usize::from);
    SystemInfo {
        os: format!("Linux {}", read("/proc/sys/kernel/osrelease").trim()),
        cpu_name: model.unwrap_or_default(),
        logical_cpus,
        physical_cpus: cores.unwrap_or(logical_cpus),
    }
}

/// The calling thread's name as the kernel has it, at most 15 bytes.
pub(crate) fn current_thread_os_name() -> String {
    std::fs::read_to_string("/proc/thread-self/comm").unwrap_or_default().trim_end().to_owned()
}
