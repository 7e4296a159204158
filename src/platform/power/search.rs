//! Finds the machine's energy counters, in the first of the two ways that works.

use std::path::Path;

use crate::platform::power::energy_counter::EnergyCounter;
use crate::platform::power::{energy_events, powercap};

/// Returns the machine's energy counters, which only the calling thread may read. `sys` is the
/// folder of the system's attributes. Cost: some 10 µs for each counter.
///
/// # Errors
/// The reason why there are none, for the user.
pub(crate) fn find_energy_counters(sys: &Path) -> Result<Vec<EnergyCounter>, String> {
    energy_events::find(sys)
        .or_else(|events| powercap::find(sys).map_err(|powercap| format!("{events}; {powercap}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::sysfs::TestTree;

    #[test]
    fn machine_without_counters_is_told_both_reasons() {
        let tree = TestTree::new("no-energy");
        let reason = find_energy_counters(tree.root()).expect_err("an empty folder");
        let parts = [
            "bus/event_source/devices/power/type",
            "class/powercap/intel-rapl:0/name",
        ];
        for part in parts {
            assert!(
                reason.contains(&format!("{part}: No such file")),
                "{reason}"
            );
        }
    }
}
