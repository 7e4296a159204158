//! The energy that the machine uses, as its processors count it (Intel's and AMD's “running average
//! power limit”, RAPL).
//!
//! The kernel offers the counters in two ways. The first are events of its device `power`, one for
//! each domain of each package, which a machine may allow to every user. They come first, as in
//! Gecko, which knows no others. An event is open for as long as it is read. So only a thread with
//! a descriptor table of its own opens events.
//!
//! The second are files in `/sys/class/powercap`, which usually only a privileged user reads: a
//! folder for each zone, with its name and its energy in µJ. The zones of a processor are
//! `intel-rapl:N`, and their parts `intel-rapl:N:M`, also on AMD's processors. `intel-rapl-mmio:N`
//! are the same counters by another way. The kernel's documentation is
//! `Documentation/power/powercap/powercap.rst`.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::unistd::read;

use crate::platform::perf_event::{EventAttributes, EventPlace, open_event};
use crate::platform::sandbox::may_make_uncommon_call;
use crate::platform::sysfs::{
    FIRST_CLOSED, NumberAttribute, parse_list, read_attribute, read_number, unexpected, unreadable,
};
use crate::platform::thread::own_descriptors::{first_number_to_close, has_own_descriptors};

/// Returns the machine's energy counters, which only the calling thread may read. `sys` is the
/// folder of the system's attributes. Cost: some 10 µs for each counter.
///
/// # Errors
/// The reason why there are none, for the user.
pub(crate) fn find_energy_counters(sys: &Path) -> Result<Vec<EnergyCounter>, String> {
    find_events(sys)
        .or_else(|events| find_zones(sys).map_err(|powercap| format!("{events}; {powercap}")))
}

/// Picowatt-hours of a joule.
const PWH_PER_JOULE: f64 = 1e12 / 3600.0;

/// What a counter measures.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum EnergyDomain {
    /// A processor with all that is in its package.
    Package,
    /// The cores of a processor.
    Cores,
    /// The graphics unit of a processor.
    Gpu,
    /// The memory.
    Dram,
    /// The whole platform.
    System,
}

/// Where the number comes from.
#[derive(Debug)]
enum EnergySource {
    /// A file. Its number begins anew after `range`.
    Zone {
        energy: NumberAttribute,
        range: Option<u64>,
    },
    /// An event, which is read as 8 bytes.
    Event(OwnedFd),
}

impl EnergySource {
    fn read(&mut self) -> Option<u64> {
        match self {
            Self::Zone { energy, .. } => energy.read().ok(),
            Self::Event(event) => {
                let mut bytes = [0; 8];
                let length = read(&*event, &mut bytes).ok()?;
                (length == bytes.len()).then(|| u64::from_ne_bytes(bytes))
            }
        }
    }

    /// Returns how much was used between two readings.
    fn growth(&self, before: u64, now: u64) -> u64 {
        match (now.checked_sub(before), self) {
            (Some(growth), _) => growth,
            (None, Self::Zone { range, .. }) => growth_around(before, now, *range).unwrap_or(0),
            (None, Self::Event(_)) => 0,
        }
    }
}

/// Returns the growth of a number that has become smaller, if it has begun anew after `range`.
///
/// A file's number also begins anew if a user resets it, or when the machine wakes. That looks like
/// a large growth. The time between two readings is too short for half of the range.
fn growth_around(before: u64, now: u64, range: Option<u64>) -> Option<u64> {
    let range = range?;
    let growth = range.checked_sub(before)?.checked_add(now)?;
    (growth < range / 2).then_some(growth)
}

/// An energy counter of the machine. Only the thread that has found it may read it.
#[derive(Debug)]
pub(crate) struct EnergyCounter {
    pub(crate) domain: EnergyDomain,
    /// The number of the processor's package, with that of its die if there are several. Empty if
    /// the counter is that of the whole machine.
    pub(crate) package: String,
    source: EnergySource,
    pwh_per_unit: f64,
    last: Option<u64>,
    /// The sum of the growth since the first reading, in the source's unit.
    used: u64,
}

impl EnergyCounter {
    fn new(
        domain: EnergyDomain,
        package: String,
        source: EnergySource,
        joules_per_unit: f64,
    ) -> Self {
        Self {
            domain,
            package,
            source,
            pwh_per_unit: joules_per_unit * PWH_PER_JOULE,
            last: None,
            used: 0,
        }
    }

    /// Returns the energy that was used since the first reading, in pWh; `None` if the kernel does
    /// not tell it now. Cost: some µs, because the kernel may ask another processor.
    pub(crate) fn read(&mut self) -> Option<i64> {
        let now = self.source.read()?;
        let before = self.last.replace(now).unwrap_or(now);
        self.used = self.used.saturating_add(self.source.growth(before, now));
        Some((self.used as f64 * self.pwh_per_unit) as i64)
    }
}

const EVENTS: [(&str, EnergyDomain); 5] = [
    ("energy-pkg", EnergyDomain::Package),
    ("energy-cores", EnergyDomain::Cores),
    ("energy-gpu", EnergyDomain::Gpu),
    ("energy-ram", EnergyDomain::Dram),
    ("energy-psys", EnergyDomain::System),
];
/// Maximum number of packages that are counted.
const MAX_PACKAGES: usize = 64;
/// Joules of a unit, if the kernel does not tell it.
const USUAL_SCALE: f64 = 1.0 / 4_294_967_296.0;

/// Opens the events of all packages.
///
/// # Errors
/// The first reason why one cannot be opened, if none can.
fn find_events(sys: &Path) -> Result<Vec<EnergyCounter>, String> {
    let device = sys.join("bus/event_source/devices/power");
    let kind = read_number(&device.join("type"))?;
    let kind = u32::try_from(kind).map_err(|_| format!("cannot open events of type {kind}"))?;
    let packages = packages(sys, &device);
    let (mut found, mut reason) = (Vec::new(), None);
    for (name, domain) in EVENTS {
        let (config, scale) = match read_event(&device, name) {
            Ok(Some(event)) => event,
            Ok(None) => continue,
            Err(text) => {
                reason.get_or_insert(text);
                continue;
            }
        };
        for (processor, package) in &packages {
            match open(kind, config, *processor) {
                Ok(source) => {
                    let counter = EnergyCounter::new(domain, package.clone(), source, scale);
                    found.push(counter);
                }
                Err(text) => {
                    reason.get_or_insert(format!("cannot open the event {name}: {text}"));
                }
            }
        }
    }
    if found.is_empty() {
        Err(reason.unwrap_or_else(|| format!("{} has no energy events", device.display())))
    } else {
        Ok(found)
    }
}

/// Returns the processors that count for their packages, with the names of these.
fn packages(sys: &Path, device: &Path) -> Vec<(u32, String)> {
    let list = read_attribute(&device.join("cpumask")).unwrap_or_default();
    let mut processors = parse_list(&list, MAX_PACKAGES);
    if processors.is_empty() {
        processors.push(0);
    }
    let number = |processor: u32, attribute: &str| {
        let path = format!("devices/system/cpu/cpu{processor}/topology/{attribute}");
        read_number(&sys.join(path)).ok()
    };
    let package = |processor| number(processor, "physical_package_id").unwrap_or(processor.into());
    let named: Vec<_> = processors
        .iter()
        .map(|processor| (*processor, package(*processor)))
        .collect();
    let name = |(processor, package): &(u32, u64)| {
        let has_dies = named.iter().filter(|(_, other)| other == package).count() > 1;
        match number(*processor, "die_id").filter(|_| has_dies) {
            Some(die) => format!("{package} die {die}"),
            None => package.to_string(),
        }
    };
    named.iter().map(|named| (named.0, name(named))).collect()
}

/// Returns the number of an event and the joules of its unit; `None` if the machine has no such
/// event.
fn read_event(device: &Path, name: &str) -> Result<Option<(u64, f64)>, String> {
    let path = device.join("events").join(name);
    let text = match read_attribute(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(unreadable(&path, &error)),
    };
    let number = text.strip_prefix("event=0x");
    let config = number
        .and_then(|number| u64::from_str_radix(number, 16).ok())
        .ok_or_else(|| unexpected(&path, &text, "event=0x and a number"))?;
    let path = device.join("events").join(format!("{name}.scale"));
    let scale = match read_attribute(&path) {
        Ok(text) => {
            let scale: Option<f64> = text.parse().ok();
            scale
                .filter(|scale| scale.is_finite() && *scale > 0.0)
                .ok_or_else(|| unexpected(&path, &text, "the joules of a unit"))?
        }
        Err(_) => USUAL_SCALE,
    };
    Ok(Some((config, scale)))
}

fn open(kind: u32, config: u64, processor: u32) -> Result<EnergySource, String> {
    if !has_own_descriptors() || !may_make_uncommon_call() {
        return Err("events are not opened in a sandbox or beside a message queue".to_owned());
    }
    let attributes = EventAttributes {
        kind,
        size: size_of::<EventAttributes>() as u32,
        config,
        ..EventAttributes::default()
    };
    let event = open_event(&attributes, EventPlace::Processor(processor)).map_err(refusal)?;
    if event.as_raw_fd() >= first_number_to_close(FIRST_CLOSED) {
        return Err("too many files are open".to_owned());
    }
    Ok(EnergySource::Event(event))
}

fn refusal(error: Errno) -> String {
    match error {
        Errno::EACCES | Errno::EPERM => format!(
            "{}; it needs kernel.perf_event_paranoid of 0 or less, or the capability CAP_PERFMON",
            error.desc()
        ),
        _ => error.desc().to_owned(),
    }
}

/// Numbers of zones that are looked for.
const MAX_ZONES: u32 = 64;
/// Numbers of parts that are looked for in each zone. The kernel knows four.
const MAX_PARTS: u32 = 8;
const JOULES_PER_UNIT: f64 = 1e-6;

/// Returns the counters of all zones that can be read.
///
/// # Errors
/// The first reason why one cannot be read, if none can.
fn find_zones(sys: &Path) -> Result<Vec<EnergyCounter>, String> {
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
    use crate::platform::thread::own_descriptors::use_own_descriptors;

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

    #[test]
    fn smaller_number_counts_only_if_it_went_around() {
        assert_eq!(growth_around(990, 5, Some(1000)), Some(15));
        assert_eq!(growth_around(1000, 0, Some(1000)), Some(0));
        // A reset.
        assert_eq!(growth_around(400, 5, Some(1000)), None);
        assert_eq!(growth_around(990, 5, None), None);
        assert_eq!(growth_around(2000, 5, Some(1000)), None);
        assert_eq!(growth_around(1, 0, Some(u64::MAX)), None);
        assert_eq!(growth_around(0, u64::MAX, Some(u64::MAX)), None);
    }

    const DEVICE: &str = "bus/event_source/devices/power";

    /// A device whose type is that of the kernel's software events: `energy-pkg` is the clock of a
    /// processor, in ns.
    fn clock_device(name: &str) -> TestTree {
        let tree = TestTree::new(name);
        tree.set(&format!("{DEVICE}/type"), "1");
        tree.set(&format!("{DEVICE}/cpumask"), "0");
        tree.set(&format!("{DEVICE}/events/energy-pkg"), "event=0x00");
        tree.set(&format!("{DEVICE}/events/energy-pkg.unit"), "Joules");
        tree.set(&format!("{DEVICE}/events/energy-pkg.scale"), "3.6e-9");
        tree
    }

    fn on_own_table(body: impl FnOnce() + Send) {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                assert!(use_own_descriptors());
                body();
            });
        });
    }

    #[test]
    fn event_of_the_kernel_is_opened_and_read() {
        let tree = clock_device("event");
        on_own_table(|| {
            let mut found = match find_events(tree.root()) {
                Ok(found) => found,
                Err(reason) => {
                    println!("!!! SKIPPED: {reason}");
                    assert!(reason.contains("perf_event_paranoid"), "{reason}");
                    return;
                }
            };
            assert_eq!(found.len(), 1);
            assert_eq!(found[0].domain, EnergyDomain::Package);
            assert_eq!(found[0].package, "0");
            let begin = std::time::Instant::now();
            let first = found[0].read().expect("a reading");
            assert_eq!(first, 0);
            std::thread::sleep(std::time::Duration::from_millis(20));
            let pwh = found[0].read().expect("a reading");
            // 3.6 nJ are 1 pWh, so each ns counts as 1 pWh. The clock of a processor does not stop.
            let elapsed_ns = begin.elapsed().as_nanos() as i64;
            assert!((19_000_000..=elapsed_ns).contains(&pwh), "{pwh} pWh");
        });
    }

    #[test]
    fn device_that_cannot_be_used_is_told() {
        let tree = clock_device("device");
        let reason = find_events(tree.root()).expect_err("the shared table");
        assert!(reason.contains("beside a message queue"), "{reason}");
        on_own_table(|| {
            let set = |path: &str, text: &str| tree.set(&format!("{DEVICE}/{path}"), text);
            let is_told = |part: &str| {
                let reason = find_events(tree.root()).expect_err(part);
                assert!(reason.contains(part), "{part} in {reason}");
            };
            // No processor has this number.
            set("cpumask", "4000000");
            is_told("cannot open the event energy-pkg: ");
            set("cpumask", "0");
            set("events/energy-pkg.scale", "-1");
            is_told("energy-pkg.scale: got \"-1\", expected the joules of a unit");
            set("events/energy-pkg", "config=1");
            is_told("got \"config=1\", expected event=0x and a number");
            tree.remove(&format!("{DEVICE}/events/energy-pkg"));
            is_told("has no energy events");
            set("type", "4294967296");
            is_told("cannot open events of type 4294967296");
            set("type", "x");
            is_told("got \"x\", expected a number");
        });
    }

    #[test]
    fn packages_are_named_by_the_topology() {
        let tree = clock_device("packages");
        let cpu = |number: u32, package: &str, die: &str| {
            let folder = format!("devices/system/cpu/cpu{number}/topology");
            tree.set(&format!("{folder}/physical_package_id"), package);
            tree.set(&format!("{folder}/die_id"), die);
        };
        let names = || {
            let device = tree.root().join(DEVICE);
            packages(tree.root(), &device)
        };
        let expected = |list: &[(u32, &str)]| -> Vec<(u32, String)> {
            let list = list.iter();
            list.map(|(number, name)| (*number, (*name).to_owned()))
                .collect()
        };
        assert_eq!(names(), expected(&[(0, "0")]));
        cpu(0, "0", "0");
        cpu(18, "1", "0");
        tree.set(&format!("{DEVICE}/cpumask"), "0,18");
        assert_eq!(names(), expected(&[(0, "0"), (18, "1")]));
        cpu(18, "0", "1");
        assert_eq!(names(), expected(&[(0, "0 die 0"), (18, "0 die 1")]));
        tree.set(&format!("{DEVICE}/cpumask"), "nothing");
        assert_eq!(names(), expected(&[(0, "0")]));
    }

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
        let found = find_zones(tree.root()).expect("counters");
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
        let found = find_zones(tree.root()).expect("counters");
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
        let mut found = find_zones(tree.root()).expect("counters");
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
        let mut found = find_zones(tree.root()).expect("counters");
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
        let reason = find_zones(tree.root()).expect_err("no zone can be read");
        assert!(
            reason.contains("intel-rapl:0/energy_uj: Is a directory"),
            "{reason}"
        );
        tree.set("class/powercap/intel-rapl:0:0/energy_uj", "7");
        let found = find_zones(tree.root()).expect("counters");
        assert_eq!(names(&found), [(Cores, "0")]);
    }

    #[test]
    fn zones_that_measure_something_else_are_told() {
        let tree = TestTree::new("others");
        add_zone(&tree, "intel-rapl:0", "battery", "1");
        let reason = find_zones(tree.root()).expect_err("no known zone");
        assert!(reason.contains("measures a known part"), "{reason}");
    }
}
