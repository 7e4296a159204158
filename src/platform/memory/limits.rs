//! How much memory the limits of the control groups (cgroups), and the machine, leave.
//!
//! The kernel grants addresses beyond a group's limit, and kills a process of the group when the
//! pages are used. So the files of the group, and of each group around it, have to be asked. A
//! container sees only its own group and those within it.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use once_cell::race::OnceBox;

use crate::platform::clock::system_clock::monotonic_now;
use crate::platform::memory::mapping::is_mappable;
use crate::platform::shared_file::read_text;
use crate::types::TimeStamp;

/// What the last look found, in bytes. Before it, no limit is known.
static LEFT_BYTES: AtomicU64 = AtomicU64::new(u64::MAX);
/// Time of the last look, in ns.
static LOOKED_AT: AtomicU64 = AtomicU64::new(0);
/// The lines of `mountinfo` about groups, as the first look found them.
static MOUNTS: OnceBox<String> = OnceBox::new();

/// How long a look counts for requests of a small share of what it found, in ns.
const SMALL_REQUESTS_NS: u64 = 20_000_000;
/// A request is small if so many of its size are left.
const SMALL_SHARE: u64 = 64;
/// Smallest limit of a cgroup that means “no limit”.
const NO_LIMIT_BYTES: u64 = 1 << 60;

/// Looks how much memory is left, in bytes, for this process and all others that share its limits.
/// File pages that the kernel can drop count as left, except for half of those that are in use.
///
/// Opens files. Cost: some 100 µs in a container.
pub(crate) fn look_at_memory_limits() -> u64 {
    let mounts = MOUNTS.get_or_init(|| Box::new(group_mounts(&read_text("/proc/self/mountinfo"))));
    let folders = group_folders(mounts, &read_text("/proc/self/cgroup"));
    let of_groups = folders.iter().filter_map(|folder| left_in_group(folder));
    let of_machine = left_on_machine(&read_text("/proc/meminfo"));
    let left_bytes = of_groups.chain(of_machine).min().unwrap_or(u64::MAX);
    LEFT_BYTES.store(left_bytes, Ordering::Relaxed);
    LOOKED_AT.store(monotonic_now().0, Ordering::Relaxed);
    left_bytes
}

/// Returns whether the process may use `bytes` bytes more, by its limits and by [`is_mappable`].
/// Opens files.
pub(crate) fn is_memory_available(bytes: usize) -> bool {
    is_mappable(bytes) && limits_leave(bytes)
}

/// Works like [`is_memory_available`], with what the last look found. Opens no file.
pub(crate) fn was_memory_available(bytes: usize) -> bool {
    bytes as u64 <= LEFT_BYTES.load(Ordering::Relaxed) && is_mappable(bytes)
}

/// Returns whether the limits leave this many bytes: looks, unless it has just looked, and found
/// many times as much.
pub(crate) fn limits_leave(bytes: usize) -> bool {
    let looked_at = TimeStamp(LOOKED_AT.load(Ordering::Relaxed));
    let is_recent = monotonic_now().since_ns(looked_at) < SMALL_REQUESTS_NS;
    let many = (bytes as u64).saturating_mul(SMALL_SHARE);
    (is_recent && many <= LEFT_BYTES.load(Ordering::Relaxed))
        || bytes as u64 <= look_at_memory_limits()
}

/// Returns the lines of a `mountinfo` file about hierarchies of groups.
fn group_mounts(mountinfo: &str) -> String {
    let lines = mountinfo.split_inclusive('\n');
    lines.filter(|line| line.contains(" - cgroup")).collect()
}

/// Returns the folders of the groups that limit the memory of a process with this `cgroup` file,
/// and of those around them, as far as they are mounted.
fn group_folders(mounts: &str, groups: &str) -> Vec<PathBuf> {
    let of_mount = |line: &str| {
        let (place, kind) = line.split_once(" - ")?;
        let mut place = place.split(' ').skip(3);
        let (root, point) = (place.next()?, Path::new(place.next()?));
        // Version 2 has one hierarchy, and `0::` before the group. In version 1, each hierarchy has
        // its controllers there, and among the options of the mount.
        let is_first_version = kind.starts_with("cgroup ");
        let has_memory = |list: &str| list.split(',').any(|name| name.trim_end() == "memory");
        if is_first_version && !has_memory(kind.split(' ').nth(2)?) {
            return None;
        }
        let group = groups.lines().find_map(|line| {
            let (controllers, group) = line.split_once(':')?.1.split_once(':')?;
            let is_of_mount = match is_first_version {
                true => has_memory(controllers),
                false => controllers.is_empty(),
            };
            is_of_mount.then_some(group)
        })?;
        let below = Path::new(group).strip_prefix(root).unwrap_or(Path::new(""));
        let folder = point.join(below);
        let folders = folder
            .ancestors()
            .take_while(|folder| folder.starts_with(point));
        Some(folders.map(Path::to_owned).collect::<Vec<_>>())
    };
    mounts.lines().filter_map(of_mount).flatten().collect()
}

/// Returns how much memory a group leaves, in bytes; `None` if it has no limit.
fn left_in_group(folder: &Path) -> Option<u64> {
    let text = |name: &str| read_text(&folder.join(name).to_string_lossy());
    let number = |name: &str| text(name).trim().parse::<u64>().ok();
    let limits = ["memory.max", "memory.high", "memory.limit_in_bytes"];
    let limit = limits.into_iter().filter_map(number).min()?;
    if limit >= NO_LIMIT_BYTES {
        return None;
    }
    let used = number("memory.current").or_else(|| number("memory.usage_in_bytes"))?;
    let statistics = text("memory.stat");
    // In version 1, `total` is with the groups within.
    let count = |name| {
        let of = |name: &str| number_after(&statistics, name);
        of(&format!("total_{name} ")).or_else(|| of(&format!("{name} ")))
    };
    let (inactive, active) = (count("inactive_file"), count("active_file"));
    let droppable = inactive.unwrap_or(0) + active.unwrap_or(0) / 2;
    Some(limit.saturating_sub(used.saturating_sub(droppable)))
}

/// Returns how much memory the machine has left, in bytes, from a `meminfo` file.
fn left_on_machine(meminfo: &str) -> Option<u64> {
    let kib = |name| number_after(meminfo, name);
    let swap = kib("SwapFree:").unwrap_or(0);
    Some((kib("MemAvailable:")? + swap) << 10)
}

/// Returns the number on the line that begins with this name.
fn number_after(text: &str, name: &str) -> Option<u64> {
    let value = text.lines().find_map(|line| line.strip_prefix(name))?;
    value.split_ascii_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::test_library::TestFolder;

    fn folders(mounts: &str, groups: &str) -> Vec<String> {
        let folders = group_folders(&group_mounts(mounts), groups);
        // A slash at the end means nothing.
        let text = |folder: &PathBuf| folder.components().as_path().display().to_string();
        folders.iter().map(text).collect()
    }

    #[test]
    fn groups_are_found_with_all_around_them() {
        let unified = "29 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n\
                       30 23 0:27 / /tmp rw - tmpfs tmpfs rw\n";
        assert_eq!(
            folders(unified, "0::/user.slice/app\n"),
            [
                "/sys/fs/cgroup/user.slice/app",
                "/sys/fs/cgroup/user.slice",
                "/sys/fs/cgroup"
            ]
        );
        // A container of version 1. The hierarchy of version 2 is mounted, too, but empty.
        let hybrid = "31 30 0:29 /docker/ab /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n\
                      32 30 0:30 /docker/ab /sys/fs/cgroup/memory rw shared:9 - cgroup cgroup rw,memory\n\
                      33 30 0:31 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
        let groups = "5:cpu,cpuacct:/docker/ab\n4:memory:/docker/ab/job\n0::/\n";
        assert_eq!(
            folders(hybrid, groups),
            [
                "/sys/fs/cgroup/memory/job",
                "/sys/fs/cgroup/memory",
                "/sys/fs/cgroup/unified"
            ]
        );
        // The group lies outside of what is mounted.
        let outside = hybrid.replace("/docker/ab", "/docker/abc");
        assert_eq!(folders(&outside, groups)[0], "/sys/fs/cgroup/memory");
        assert!(folders("", groups).is_empty() && folders("x - cgroup2\n", groups).is_empty());
    }

    #[test]
    fn group_leaves_its_lowest_limit_less_what_cannot_be_dropped() {
        let group = TestFolder::new("limits");
        let left = |files: &[(&str, &str)]| {
            for (name, text) in files {
                std::fs::write(group.path().join(name), text).expect("written");
            }
            left_in_group(group.path())
        };
        assert_eq!(left(&[]), None);
        let current = ("memory.current", "900\n");
        assert_eq!(left(&[("memory.max", "max\n"), current]), None);
        assert_eq!(left(&[("memory.max", "1000\n")]), Some(100));
        let statistics = "anon 400\nfile 300\ninactive_file 50\nactive_file 40\n";
        assert_eq!(left(&[("memory.stat", statistics)]), Some(170));
        assert_eq!(left(&[("memory.high", "800\n")]), Some(0));
        for name in ["memory.max", "memory.high", "memory.current"] {
            std::fs::remove_file(group.path().join(name)).expect("written before");
        }
        // Version 1 counts a group's own pages, too.
        let both = format!("{statistics}total_inactive_file 60\ntotal_active_file 80\n");
        let used = ("memory.usage_in_bytes", "900\n");
        let none = ("memory.limit_in_bytes", "9223372036854771712\n");
        assert_eq!(left(&[none, used, ("memory.stat", &both)]), None);
        assert_eq!(left(&[("memory.limit_in_bytes", "1000\n")]), Some(200));
    }

    #[test]
    fn machine_leaves_its_free_swap_too() {
        let meminfo = "MemTotal: 9 kB\nMemAvailable:   700 kB\nSwapFree:   300 kB\n";
        assert_eq!(left_on_machine(meminfo), Some(1_024_000));
        assert_eq!(left_on_machine("MemFree: 9 kB\n"), None);
        assert!(look_at_memory_limits() > 0 && limits_leave(1));
        assert!(!limits_leave(usize::MAX) && was_memory_available(1));
    }
}
