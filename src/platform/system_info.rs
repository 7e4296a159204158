//! The machine as the profile's `meta` describes it, the kernel's version, and names of threads.
//! Each function reads files.

use crate::platform::procfs;
use crate::platform::shared_file::{read_bytes, read_text};

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
    let (model, cores) = procfs::parse_cpuinfo(&read_text("/proc/cpuinfo"));
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
