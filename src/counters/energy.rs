//! The energy that the machine uses, for the feature `power`.

use std::sync::Arc;

use crate::counters::description::{CounterDescription, CounterKind, next_counter_id};
use crate::platform::EnergyDomain;
use crate::types::{CounterUnit, Features};

/// The category by which the viewer recognizes counters in picowatt-hours.
const CATEGORY: &str = "power";

/// Returns the names of energy counters with these domains and packages. The package is named if
/// there are several. The names without it are Gecko's.
#[doc(alias = "PowerCounters")]
pub(crate) fn energy_descriptions(
    counters: &[(EnergyDomain, &str)],
) -> Vec<Arc<CounterDescription>> {
    let packages = counters.iter().map(|(_, package)| *package);
    let mut named = packages.filter(|package| !package.is_empty());
    let first = named.next();
    let has_several = named.any(|package| Some(package) != first);
    let describe = |(domain, package): &(EnergyDomain, &str)| {
        let (name, description) = texts(*domain);
        let (separator, package) = match (has_several && !package.is_empty(), domain) {
            (false, _) => ("", ""),
            (true, EnergyDomain::Package) => (" ", *package),
            (true, _) => (", package ", *package),
        };
        Arc::new(CounterDescription {
            id: next_counter_id(),
            feature: Features::POWER,
            name: format!("{name}{separator}{package}").into(),
            category: CATEGORY.into(),
            description: description.into(),
            kind: CounterKind::Total,
            counts_operations: false,
            unit: CounterUnit::Number,
            color: None,
        })
    };
    counters.iter().map(describe).collect()
}

/// Returns the name and the description of a domain's counter.
fn texts(domain: EnergyDomain) -> (&'static str, &'static str) {
    match domain {
        EnergyDomain::Package => (
            "Power: CPU package",
            "Energy of the processor with all in its package, in pWh",
        ),
        EnergyDomain::Cores => (
            "Power: CPU cores",
            "Energy of the processor's cores, in pWh",
        ),
        EnergyDomain::Gpu => (
            "Power: iGPU",
            "Energy of the processor's graphics unit, in pWh",
        ),
        EnergyDomain::Dram => ("Power: DRAM", "Energy of the memory, in pWh"),
        EnergyDomain::System => ("Power: System", "Energy of the whole platform, in pWh"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(counters: &[(EnergyDomain, &str)]) -> Vec<String> {
        let descriptions = energy_descriptions(counters);
        let names = descriptions.iter().map(|counter| counter.name.to_string());
        names.collect()
    }

    #[test]
    fn package_is_named_if_there_are_several() {
        use EnergyDomain::{Cores, Dram, Gpu, Package, System};
        let one = [
            (Package, "0"),
            (Cores, "0"),
            (Gpu, "0"),
            (Dram, "0"),
            (System, ""),
        ];
        let expected = [
            "Power: CPU package",
            "Power: CPU cores",
            "Power: iGPU",
            "Power: DRAM",
            "Power: System",
        ];
        assert_eq!(names(&one), expected);
        let two = [(Package, "0"), (Cores, "1 die 0"), (System, "")];
        let expected = [
            "Power: CPU package 0",
            "Power: CPU cores, package 1 die 0",
            "Power: System",
        ];
        assert_eq!(names(&two), expected);
        assert_eq!(names(&[]), [""; 0]);
    }

    #[test]
    fn each_session_has_counters_of_its_own() {
        let one = [(EnergyDomain::Package, "0")];
        assert_ne!(
            energy_descriptions(&one)[0].id,
            energy_descriptions(&one)[0].id
        );
    }
}
