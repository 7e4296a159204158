//! The frequencies of the processors' cores, as the kernel tells them in
//! `/sys/devices/system/cpu/cpuN/cpufreq/scaling_cur_freq`, in kHz.

use std::path::Path;

use crate::platform::sysfs::{NumberAttribute, parse_list, read_attribute, unreadable};

/// Maximum number of cores whose frequency is read.
const MAX_CORES: usize = 1024;
/// Maximum number of cores that are asked whether they tell their frequency. The first ones may be
/// switched off.
const MAX_ASKED: usize = 8;

#[derive(Debug)]
struct Core {
    number: u32,
    khz: NumberAttribute,
}

/// The cores of the machine. Only the thread that has found them may read them.
#[derive(Debug)]
pub(crate) struct CpuFrequencies {
    cores: Vec<Core>,
}

impl CpuFrequencies {
    /// Returns whether the first cores tell a frequency. Cost: some µs for each of at most eight. A
    /// kernel before 5.18 may sleep for 10 ms in the first read of a core.
    ///
    /// # Errors
    /// The reason why no frequency can be read, for the user.
    pub(crate) fn are_readable(sys: &Path) -> Result<(), String> {
        Self::of_cores(sys, MAX_ASKED).map(drop)
    }

    /// Finds the cores. `sys` is the folder of the system's attributes. Costs as much as
    /// [`Self::are_readable`], and a path for each core.
    ///
    /// # Errors
    /// The reason why no frequency can be read, for the user.
    pub(crate) fn find(sys: &Path) -> Result<Self, String> {
        Self::of_cores(sys, MAX_CORES)
    }

    /// Finds at most this number of cores.
    fn of_cores(sys: &Path, max_cores: usize) -> Result<Self, String> {
        let folder = sys.join("devices/system/cpu");
        let path = folder.join("present");
        let list = read_attribute(&path).map_err(|error| unreadable(&path, &error))?;
        let core = |number| {
            let path = folder.join(format!("cpu{number}/cpufreq/scaling_cur_freq"));
            Core {
                number,
                khz: NumberAttribute::new(path),
            }
        };
        let cores = parse_list(&list, max_cores).into_iter().map(core);
        let mut cores: Vec<Core> = cores.collect();
        let mut reason = None;
        let is_readable = cores
            .iter_mut()
            .take(MAX_ASKED)
            .any(|core| match core.khz.read() {
                Ok(_) => true,
                Err(error) => {
                    reason.get_or_insert(error);
                    false
                }
            });
        match is_readable {
            true => Ok(Self { cores }),
            false => Err(reason.unwrap_or_else(|| format!("no processor in {}", path.display()))),
        }
    }

    /// Returns the number of cores, at least 1.
    pub(crate) fn len(&self) -> usize {
        self.cores.len()
    }

    /// Returns the kernel's number of a core.
    pub(crate) fn number(&self, index: usize) -> u32 {
        self.cores[index].number
    }

    /// Returns the frequency of a core, in kHz; `None` if the kernel does not tell it now. Cost: some
    /// µs.
    pub(crate) fn khz(&mut self, index: usize) -> Option<u64> {
        self.cores[index].khz.read().ok().filter(|khz| *khz > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::sysfs::TestTree;

    const FOLDER: &str = "devices/system/cpu";

    fn frequency_of(core: u32) -> String {
        format!("{FOLDER}/cpu{core}/cpufreq/scaling_cur_freq")
    }

    #[test]
    fn frequencies_of_all_cores_are_read() {
        let tree = TestTree::new("frequencies");
        tree.set(&format!("{FOLDER}/present"), "0-1,4");
        tree.set(&frequency_of(0), "2400000");
        tree.set(&frequency_of(1), "<unknown>");
        let mut found = CpuFrequencies::find(tree.root()).expect("frequencies");
        let all = |found: &mut CpuFrequencies| -> Vec<_> {
            let cores = 0..found.len();
            cores
                .map(|index| (found.number(index), found.khz(index)))
                .collect()
        };
        assert_eq!(
            all(&mut found),
            [(0, Some(2_400_000)), (1, None), (4, None)]
        );
        tree.set(&frequency_of(0), "0");
        tree.set(&frequency_of(4), "800000");
        assert_eq!(all(&mut found), [(0, None), (1, None), (4, Some(800_000))]);
    }

    #[test]
    fn cores_of_a_large_machine_with_gaps_are_found() {
        let tree = TestTree::new("many-frequencies");
        let numbers: Vec<u32> = (0..256).map(|number| 2 * number).collect();
        let list: Vec<String> = numbers.iter().map(u32::to_string).collect();
        tree.set(&format!("{FOLDER}/present"), &list.join(","));
        tree.set(&frequency_of(0), "2400000");
        let found = CpuFrequencies::find(tree.root()).expect("frequencies");
        let found: Vec<u32> = (0..found.len()).map(|index| found.number(index)).collect();
        assert_eq!(found, numbers);
    }

    #[test]
    fn machine_without_frequencies_is_told_the_first_reason() {
        let tree = TestTree::new("no-frequencies");
        let reason = || CpuFrequencies::find(tree.root()).expect_err("nothing is told");
        assert!(reason().contains("cpu/present: No such file"));
        tree.set(&format!("{FOLDER}/present"), "");
        assert!(reason().contains("no processor in "));
        tree.set(&format!("{FOLDER}/present"), "0-1");
        let missing = reason();
        assert!(missing.contains("cpu0/cpufreq/scaling_cur_freq: No such file"));
        tree.set(&frequency_of(0), "fast");
        assert!(reason().contains("got \"fast\", expected a number"));
        tree.make_unreadable(&frequency_of(1));
        assert!(reason().contains("got \"fast\""));
    }

    #[test]
    fn cores_are_bounded() {
        let tree = TestTree::new("many-cores");
        tree.set(&format!("{FOLDER}/present"), "0-8191");
        tree.set(&frequency_of(0), "1000000");
        let found = CpuFrequencies::find(tree.root()).expect("frequencies");
        assert_eq!(found.len(), MAX_CORES);
        // Of many cores, only the first ones are asked.
        tree.remove(&frequency_of(0));
        tree.set(&frequency_of(7), "1000000");
        assert_eq!(CpuFrequencies::are_readable(tree.root()), Ok(()));
        tree.remove(&frequency_of(7));
        tree.set(&frequency_of(8), "1000000");
        assert!(CpuFrequencies::are_readable(tree.root()).is_err());
        assert!(CpuFrequencies::find(tree.root()).is_err());
    }
}
