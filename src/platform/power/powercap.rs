//! Energy counters in `/sys/class/powercap`: a folder for each zone, with its name and its energy in
//! µJ.
//!
//! The zones of a processor are `intel-rapl:N`, and their parts `intel-rapl:N:M`, also on AMD's
//! processors. `intel-rapl-mmio:N` are the same counters by another way. The kernel's documentation
//! is `Documentation/power/powercap/powercap.rst`.

use std::io;
use std::path::{Path, PathBuf};

use crate::platform::power::energy_counter::{EnergyCounter, EnergyDomain, EnergySource};
use crate::platform::sysfs::{NumberAttribute, read_attribute, read_number, unreadable};

/// Numbers of zones that are looked for.
const MAX_ZONES: u32 = 64;
/// Numbers of parts that are looked for in each zone. The kernel knows four.
const MAX_PARTS: u32 = 8;
const JOULES_PER_UNIT: f64 = 1e-6;

/// Returns the counters of all zones that can be read.
///
/// # Errors
/// The first reason why one cannot be read, if none can.
pub(super) fn find(sys: &Path) -> Result<Vec<EnergyCounter>, String> {
    let mut search = Search::default();
    let folder = sys.join("class/powercap");
    for zone in 0..MAX_ZONES {
        let name = format!("intel-rapl:{zone}");
        let Some(package) = search.zone(&folder.join(&name), &zone.to_string(), zone == 0) else {
            continue;
        };
        for part in 0..MAX_PARTS {
            search.zone(&folder.join(format!("{name}:{part}")), &package, false);
        }
    }
    match (search.found.is_empty(), search.reason) {
        (false, _) => Ok(search.found),
        (true, Some(reason)) => Err(reason),
        (true, None) => Err(format!(
            "no zone in {} measures a known part of the machine",
            folder.display()
        )),
    }
}

#[derive(Default)]
struct Search {
    found: Vec<EnergyCounter>,
    /// Why the first zone that exists, or is expected, cannot be read.
    reason: Option<String>,
}

impl Search {
    /// Adds the counter of a zone. Returns the package in the zone's name, or else `package`. Returns
    /// `None` if the zone does not exist.
    fn zone(&mut self, folder: &Path, package: &str, is_expected: bool) -> Option<String> {
        let path = folder.join("name");
        let name = match read_attribute(&path) {
            Ok(name) => name,
            Err(error) => {
                if is_expected || error.kind() != io::ErrorKind::NotFound {
                    self.refuse(unreadable(&path, &error));
                }
                return None;
            }
        };
        let named = package_in(&name).unwrap_or_else(|| package.to_owned());
        if let Some(domain) = domain_of(&name) {
            // The platform belongs to one package only if its name says so.
            let label = match (domain, name.contains('-')) {
                (EnergyDomain::System, false) => String::new(),
                _ => named.clone(),
            };
            self.counter(folder, domain, label);
        }
        Some(named)
    }

    fn counter(&mut self, folder: &Path, domain: EnergyDomain, package: String) {
        let mut energy = NumberAttribute::new(PathBuf::from(folder).join("energy_uj"));
        if let Err(reason) = energy.read() {
            return self.refuse(reason);
        }
        let range = read_number(&folder.join("max_energy_range_uj")).ok();
        let source = EnergySource::Zone { energy, range };
        let counter = EnergyCounter::new(domain, package, source, JOULES_PER_UNIT);
        self.found.push(counter);
    }

    fn refuse(&mut self, reason: String) {
        self.reason.get_or_insert(reason);
    }
}

/// Returns the package in a zone's name: `package-1`, `package-0-die-1` or `psys-1`.
fn package_in(name: &str) -> Option<String> {
    let number = name
        .strip_prefix("package-")
        .or_else(|| name.strip_prefix("psys-"))?;
    Some(number.replace('-', " "))
}

fn domain_of(name: &str) -> Option<EnergyDomain> {
    match name.split('-').next()? {
        "package" => Some(EnergyDomain::Package),
        "core" => Some(EnergyDomain::Cores),
        "uncore" => Some(EnergyDomain::Gpu),
        "dram" => Some(EnergyDomain::Dram),
        "psys" => Some(EnergyDomain::System),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::sysfs::TestTree;
    use crate::platform::thread::use_own_descriptors;

    const RANGE: &str = "262143328850";

    fn add_zone(tree: &TestTree, zone: &str, name: &str, energy: &str) {
        let folder = format!("class/powercap/{zone}");
        tree.set(&format!("{folder}/name"), name);
        tree.set(&format!("{folder}/energy_uj"), energy);
        tree.set(&format!("{folder}/max_energy_range_uj"), RANGE);
        // What else the kernel has there.
        tree.set(&format!("{folder}/enabled"), "1");
        tree.set(&format!("{folder}/constraint_0_name"), "long_term");
    }

    fn names(counters: &[EnergyCounter]) -> Vec<(EnergyDomain, &str)> {
        let names = counters.iter();
        names
            .map(|counter| (counter.domain, counter.package.as_str()))
            .collect()
    }

    /// The zones of a machine with two processors.
    fn server(name: &str) -> TestTree {
        let tree = TestTree::new(name);
        tree.set("class/powercap/intel-rapl/enabled", "1");
        for package in 0..2 {
            let zone = format!("intel-rapl:{package}");
            add_zone(&tree, &zone, &format!("package-{package}"), "1000000");
            add_zone(&tree, &format!("{zone}:0"), "core", "500000");
            add_zone(&tree, &format!("{zone}:1"), "dram", "200000");
        }
        // Another way to the counters of intel-rapl:0.
        add_zone(&tree, "intel-rapl-mmio:0", "package-0", "1000000");
        tree
    }

    #[test]
    fn zones_of_all_packages_are_found_once() {
        use EnergyDomain::{Cores, Dram, Package};
        let tree = server("zones");
        let found = find(tree.root()).expect("counters");
        assert_eq!(
            names(&found),
            [
                (Package, "0"),
                (Cores, "0"),
                (Dram, "0"),
                (Package, "1"),
                (Cores, "1"),
                (Dram, "1")
            ]
        );
    }

    #[test]
    fn zones_of_a_notebook_and_of_dies_are_named() {
        use EnergyDomain::{Cores, Gpu, Package, System};
        let tree = TestTree::new("notebook");
        add_zone(&tree, "intel-rapl:0", "package-0", "1");
        add_zone(&tree, "intel-rapl:0:0", "core", "1");
        add_zone(&tree, "intel-rapl:0:1", "uncore", "1");
        add_zone(&tree, "intel-rapl:1", "psys", "1");
        add_zone(&tree, "intel-rapl:3", "package-0-die-1", "1");
        add_zone(&tree, "intel-rapl:4", "psys-1", "1");
        add_zone(&tree, "intel-rapl:5", "something new", "1");
        let found = find(tree.root()).expect("counters");
        assert_eq!(
            names(&found),
            [
                (Package, "0"),
                (Cores, "0"),
                (Gpu, "0"),
                (System, ""),
                (Package, "0 die 1"),
                (System, "1")
            ]
        );
    }

    fn check_readings(tree: &TestTree) {
        let energy = "class/powercap/intel-rapl:0/energy_uj";
        tree.set(energy, "1000000");
        let mut found = find(tree.root()).expect("counters");
        let counter = &mut found[0];
        assert_eq!(counter.read(), Some(0));
        // 1 µJ is 277.8 pWh.
        tree.set(energy, "1000001");
        assert_eq!(counter.read(), Some(277));
        tree.set(energy, "4600000");
        assert_eq!(counter.read(), Some(1_000_000_000));
        // Two readings that fail do not matter.
        tree.set(energy, "garbage");
        assert_eq!(counter.read(), None);
        tree.set(energy, "");
        assert_eq!(counter.read(), None);
        tree.set(energy, "8200000");
        assert_eq!(counter.read(), Some(2_000_000_000));
        // Begins anew: first as after a reset, then after its range.
        tree.set(energy, "5");
        assert_eq!(counter.read(), Some(2_000_000_000));
        tree.set(energy, "262139728855");
        let before = counter.read().expect("a reading");
        tree.set(energy, "5");
        assert_eq!(counter.read(), Some(before + 1_000_000_000));
    }

    #[test]
    fn readings_add_up_over_errors_and_wrap_around() {
        let tree = server("readings");
        // First in the shared table, where each reading opens the file.
        check_readings(&tree);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                assert!(use_own_descriptors());
                check_readings(&tree);
            });
        });
    }

    #[test]
    fn unreadable_zones_are_left_out_and_the_first_reason_is_told() {
        use EnergyDomain::{Cores, Package};
        let tree = TestTree::new("unreadable");
        add_zone(&tree, "intel-rapl:0", "package-0", "1");
        add_zone(&tree, "intel-rapl:0:0", "core", "1");
        add_zone(&tree, "intel-rapl:0:1", "dram", "1");
        tree.remove("class/powercap/intel-rapl:0/max_energy_range_uj");
        tree.set("class/powercap/intel-rapl:0:0/energy_uj", "-7");
        tree.remove("class/powercap/intel-rapl:0:1/energy_uj");
        tree.make_unreadable("class/powercap/intel-rapl:1/name");
        let mut found = find(tree.root()).expect("counters");
        assert_eq!(names(&found), [(Package, "0")]);
        // Without a range, a smaller number is a new beginning.
        let energy = "class/powercap/intel-rapl:0/energy_uj";
        for (number, expected) in [("3600000", 0), ("100", 0), ("3600100", 1_000_000_000)] {
            tree.set(energy, number);
            assert_eq!(found[0].read(), Some(expected), "{number}");
        }
        tree.remove(energy);
        assert_eq!(found[0].read(), None);
        tree.make_unreadable(energy);
        let reason = find(tree.root()).expect_err("no zone can be read");
        assert!(
            reason.contains("intel-rapl:0/energy_uj: Is a directory"),
            "{reason}"
        );
        tree.set("class/powercap/intel-rapl:0:0/energy_uj", "7");
        let found = find(tree.root()).expect("counters");
        assert_eq!(names(&found), [(Cores, "0")]);
    }

    #[test]
    fn zones_that_measure_something_else_are_told() {
        let tree = TestTree::new("others");
        add_zone(&tree, "intel-rapl:0", "battery", "1");
        let reason = find(tree.root()).expect_err("no known zone");
        assert!(reason.contains("measures a known part"), "{reason}");
    }
}
