//! What a counter is, with a reading of its value, and the counters of this crate: CPU time and memory
//! of the process, and the energy that the machine uses.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::model::{PROCESS_CPU_CATEGORY, PROCESS_CPU_NAME};
use crate::platform::{EnergyDomain, process_cpu_ns};
use crate::types::{CounterUnit, Features, GraphColor};

/// The number of the next counter that is made. The constants below have lower ones.
static NEXT_ID: AtomicU64 = AtomicU64::new(64);
/// The category by which the viewer recognizes counters in picowatt-hours.
const ENERGY_CATEGORY: &str = "power";

/// What the value of a counter is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CounterKind {
    /// A level, such as memory. A profile without the beginning of the session begins with the whole
    /// level.
    Level,
    /// A sum that grows with time.
    Total,
}

/// The value of a counter, and the number of changes that made it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct CounterReading {
    pub(crate) count: i64,
    pub(crate) operations: u64,
}

/// A counter's identity and names. The viewer selects a track by category and name.
#[doc(alias = "BaseProfilerCount")]
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct CounterDescription {
    /// Identifies the counter in the buffer. Not used again in this process.
    pub(crate) id: u64,
    /// The feature with which the counter is sampled.
    pub(crate) feature: Features,
    pub(crate) name: Cow<'static, str>,
    pub(crate) category: Cow<'static, str>,
    pub(crate) description: Cow<'static, str>,
    pub(crate) kind: CounterKind,
    /// Whether the number of changes is recorded, too.
    pub(crate) counts_operations: bool,
    pub(crate) unit: CounterUnit,
    /// The color of the graph, where the format allows one.
    pub(crate) color: Option<GraphColor>,
}

impl CounterDescription {
    pub(crate) fn is_level(&self) -> bool {
        self.kind == CounterKind::Level
    }
}

/// Returns an id that no other counter has.
pub(crate) fn next_counter_id() -> u64 {
    NEXT_ID.fetch_add(1, Ordering::Relaxed)
}

/// The first counter of feature `processcpu`.
#[doc(alias = "processCPU")]
pub(crate) const PROCESS_CPU: CounterDescription = CounterDescription {
    id: 1,
    feature: Features::PROCESS_CPU,
    name: Cow::Borrowed(PROCESS_CPU_NAME),
    category: Cow::Borrowed(PROCESS_CPU_CATEGORY),
    description: Cow::Borrowed("CPU time of the process, in ns"),
    kind: CounterKind::Total,
    counts_operations: false,
    unit: CounterUnit::Number,
    color: None,
};

/// The second counter of feature `processcpu`: the bytes of memory that are in RAM. The viewer knows
/// the category `Memory`: the track shows the memory relative to its beginning.
pub(crate) const RESIDENT_MEMORY: CounterDescription = CounterDescription {
    id: 2,
    feature: Features::PROCESS_CPU,
    name: Cow::Borrowed("Resident memory"),
    category: Cow::Borrowed("Memory"),
    description: Cow::Borrowed("Memory of the process that is in RAM, in bytes"),
    kind: CounterKind::Level,
    counts_operations: false,
    unit: CounterUnit::Bytes,
    color: None,
};

/// The counter of feature `memory`: the bytes that the application has allocated and not freed since
/// the session began, without the profiler's buffer, and the number of allocations and frees. The
/// level may be negative, because the application may free what it allocated before.
///
/// The viewer knows the category `Memory` and the name.
#[doc(alias = "sMallocCounter")]
pub(crate) const ALLOCATED_MEMORY: CounterDescription = CounterDescription {
    id: 3,
    feature: Features::MEMORY,
    name: Cow::Borrowed("malloc"),
    category: Cow::Borrowed("Memory"),
    description: Cow::Borrowed("Amount of allocated memory"),
    kind: CounterKind::Level,
    counts_operations: true,
    unit: CounterUnit::Bytes,
    color: None,
};

/// Returns the CPU time of the process since it began, in ns. Makes one system call.
pub(crate) fn sample_process_cpu_ns() -> i64 {
    process_cpu_ns() as i64
}

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
        let (name, description) = energy_texts(*domain);
        let (separator, package) = match (has_several && !package.is_empty(), domain) {
            (false, _) => ("", ""),
            (true, EnergyDomain::Package) => (" ", *package),
            (true, _) => (", package ", *package),
        };
        Arc::new(CounterDescription {
            id: next_counter_id(),
            feature: Features::POWER,
            name: format!("{name}{separator}{package}").into(),
            category: ENERGY_CATEGORY.into(),
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
fn energy_texts(domain: EnergyDomain) -> (&'static str, &'static str) {
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

    #[test]
    fn process_cpu_grows_while_process_works() {
        let before = sample_process_cpu_ns();
        while sample_process_cpu_ns() < before + 1_000_000 {}
    }

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
