//! Asks the machine whether it has what a feature records.

use std::path::Path;

use crate::platform::cpu_frequency::CpuFrequencies;
use crate::platform::power::find_energy_counters;
use crate::platform::sysfs::SYS_FOLDER;
use crate::platform::thread::own_descriptors::on_own_descriptors;
use crate::types::{Features, UnavailableFeature};

/// Returns those of the features that this machine has no data for, with the reasons. Only `power`
/// and `cpufreq` depend on the machine. Cost: some 100 µs on another thread if the features contain
/// one of these, otherwise none. A kernel before 5.18 may sleep for 10 ms to tell a frequency.
pub(crate) fn lacking_features(features: Features) -> Vec<UnavailableFeature> {
    const DEPENDENT: [Features; 2] = [Features::POWER, Features::CPU_FREQ];
    if !DEPENDENT.iter().any(|one| features.contains(*one)) {
        return Vec::new();
    }
    // There, because energy events need such a table, as the sampler has it.
    on_own_descriptors(move || lacking_in(features, Path::new(SYS_FOLDER)))
}

fn lacking_in(features: Features, sys: &Path) -> Vec<UnavailableFeature> {
    let power = || find_energy_counters(sys).err();
    let frequency = || CpuFrequencies::are_readable(sys).err();
    let asked: [(Features, &dyn Fn() -> Option<String>); 2] =
        [(Features::POWER, &power), (Features::CPU_FREQ, &frequency)];
    let chosen = asked
        .into_iter()
        .filter(|(feature, _)| features.contains(*feature));
    chosen
        .filter_map(|(feature, ask)| ask().map(|reason| UnavailableFeature { feature, reason }))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::sysfs::TestTree;

    #[test]
    fn only_chosen_features_that_the_machine_lacks_are_returned() {
        let tree = TestTree::new("availability");
        let both = Features::POWER | Features::CPU_FREQ | Features::CPU;
        let lacking = |features| {
            let lacking = lacking_in(features, tree.root());
            let features = lacking.iter();
            features.map(|lack| lack.feature).collect::<Vec<_>>()
        };
        assert_eq!(lacking(both), [Features::POWER, Features::CPU_FREQ]);
        assert_eq!(lacking(Features::CPU), []);
        assert_eq!(lacking(Features::CPU_FREQ), [Features::CPU_FREQ]);
        tree.set("devices/system/cpu/present", "0");
        tree.set("devices/system/cpu/cpu0/cpufreq/scaling_cur_freq", "1");
        assert_eq!(lacking(both), [Features::POWER]);
        tree.set("class/powercap/intel-rapl:0/name", "package-0");
        tree.set("class/powercap/intel-rapl:0/energy_uj", "1");
        assert_eq!(lacking(both), []);
        assert_eq!(lacking_features(Features::CPU), []);
    }
}
