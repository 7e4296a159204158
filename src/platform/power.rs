//! Energy counters as events of the kernel's device `power`, one for each domain of each package.
//!
//! An event is open for as long as it is read. So only a thread with a descriptor table of its own
//! opens events.

use std::os::fd::AsRawFd;
use std::path::Path;

use nix::errno::Errno;

use crate::platform::perf_event::{EventAttributes, EventPlace, open_event};
use crate::platform::power::energy_counter::{EnergyCounter, EnergyDomain, EnergySource};
use crate::platform::sandbox::may_make_uncommon_call;
use crate::platform::sysfs::{
    FIRST_CLOSED, parse_list, read_attribute, read_number, unexpected, unreadable,
};
use crate::platform::thread::{first_number_to_close, has_own_descriptors};

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
pub(super) fn find(sys: &Path) -> Result<Vec<EnergyCounter>, String> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::sysfs::TestTree;
    use crate::platform::thread::use_own_descriptors;

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
            let mut found = match find(tree.root()) {
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
        let reason = find(tree.root()).expect_err("the shared table");
        assert!(reason.contains("beside a message queue"), "{reason}");
        on_own_table(|| {
            let set = |path: &str, text: &str| tree.set(&format!("{DEVICE}/{path}"), text);
            let is_told = |part: &str| {
                let reason = find(tree.root()).expect_err(part);
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
}
