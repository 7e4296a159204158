//! What is recorded of the machine: its energy and the frequencies of its cores. Where it lacks
//! them, the profile says why.

use std::ffi::CString;
use std::fs;
use std::path::PathBuf;

use gekkota::counter::profiler_count_bandwidth_bytes;
use gekkota::{Features, ProfilerSession, StartParams, profiler_feature_active};
use serde_json::Value;

use crate::common::{Read, isolated, one_loop, wait_until};

/// A folder that takes the place of `/sys` for the calling thread and the threads that it creates.
struct Machine(PathBuf);

impl Machine {
    fn new(name: &str) -> Self {
        let folder = format!("gekkota-machine-{name}-{}", std::process::id());
        let folder = std::env::temp_dir().join(folder);
        fs::create_dir_all(&folder).expect("a folder");
        Self(folder)
    }

    fn set(&self, path: &str, text: &str) {
        let path = self.0.join(path);
        fs::create_dir_all(path.parent().expect("a folder")).expect("created");
        fs::write(path, format!("{text}\n")).expect("written");
    }

    /// Returns false if the process may not mount anything.
    fn replace_sys(&self) -> bool {
        let path = |path: &str| CString::new(path).expect("no zero");
        let (root, sys) = (path("/"), path("/sys"));
        let folder = path(self.0.to_str().expect("UTF-8"));
        let mount = |from: &CString, to: &CString, flags| {
            let nothing = std::ptr::null();
            // SAFETY: the texts end with a zero; the call needs nothing else.
            let answer =
                unsafe { libc::mount(from.as_ptr(), to.as_ptr(), nothing, flags, nothing.cast()) };
            answer == 0
        };
        // SAFETY: changes the calling thread's view of the file system.
        let is_apart = unsafe { libc::unshare(libc::CLONE_NEWNS) } == 0;
        is_apart
            && mount(&root, &root, libc::MS_REC | libc::MS_PRIVATE)
            && mount(&folder, &sys, libc::MS_BIND)
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn start() -> ProfilerSession {
    let params = StartParams::default();
    let features = params.features | Features::POWER | Features::CPU_FREQ;
    ProfilerSession::start(params.features(features)).expect("start")
}

fn counter<'a>(read: &'a Read, name: &str) -> Option<&'a Value> {
    let counters = read.0["counters"].as_array().expect("counters");
    counters.iter().find(|counter| counter["name"] == name)
}

/// Returns the sum of a counter's rows; `None` if there are none.
fn sum(read: &Read, name: &str) -> Option<i64> {
    let rows = counter(read, name)?["samples"]["data"].as_array();
    let rows = rows.expect("rows").iter();
    Some(rows.map(|row| row[1].as_i64().expect("a count")).sum())
}

/// Returns the markers of a core in the order of time: `Some` speed in GHz begins, `None` ends.
fn speeds(read: &Read, core: u32) -> Vec<Option<f64>> {
    let markers = read.markers("GeckoMain").into_iter();
    let name = format!("CPU {core}");
    let markers = markers.filter(|marker| marker.0 == name);
    markers
        .map(|(_, _, _, phase, _, data)| match phase {
            2 => {
                assert_eq!(data["type"], "CPUSpeed");
                Some(data["speed"].as_f64().expect("a speed"))
            }
            3 => None,
            _ => panic!("phase {phase}"),
        })
        .collect()
}

fn unavailable_features(read: &Read) -> &Value {
    &read.0["profilingLog"][std::process::id().to_string()]["unavailableFeatures"]
}

#[test]
fn energy_and_frequencies_of_the_machine_are_recorded() {
    isolated(|| {
        let machine = Machine::new("full");
        for package in 0..2 {
            let zone = format!("class/powercap/intel-rapl:{package}");
            machine.set(&format!("{zone}/name"), &format!("package-{package}"));
            machine.set(&format!("{zone}/energy_uj"), "262143328000");
            machine.set(&format!("{zone}/max_energy_range_uj"), "262143328850");
            machine.set(
                &format!("class/powercap/intel-rapl:{package}:0/name"),
                "dram",
            );
            machine.set(
                &format!("class/powercap/intel-rapl:{package}:0/energy_uj"),
                "5",
            );
            machine.set(
                &format!("devices/system/cpu/cpu{package}/cpufreq/scaling_cur_freq"),
                "2400000",
            );
        }
        machine.set("devices/system/cpu/present", "0-1");
        if !machine.replace_sys() {
            println!("!!! SKIPPED: the process may not mount a folder");
            return;
        }
        let session = start();
        assert!(profiler_feature_active(
            Features::POWER | Features::CPU_FREQ
        ));
        wait_until("the machine is known", || {
            one_loop();
            let read = Read::of_running();
            sum(&read, "Power: DRAM, package 1").is_some() && !speeds(&read, 1).is_empty()
        });
        // 3,600 µJ are a million pWh. The first counter begins anew.
        machine.set("class/powercap/intel-rapl:0/energy_uj", "2750");
        machine.set("class/powercap/intel-rapl:1:0/energy_uj", "7205");
        machine.set("devices/system/cpu/cpu1/cpufreq/scaling_cur_freq", "800000");
        wait_until("the changes are recorded", || {
            one_loop();
            let read = Read::of_running();
            let dram = sum(&read, "Power: DRAM, package 1");
            dram != Some(0) && speeds(&read, 1).len() >= 3
        });
        let read = Read::from_profile(&session.finish().expect("a profile"));
        assert_eq!(sum(&read, "Power: CPU package 0"), Some(1_000_000));
        assert_eq!(sum(&read, "Power: DRAM, package 0"), Some(0));
        assert_eq!(sum(&read, "Power: CPU package 1"), Some(0));
        assert_eq!(sum(&read, "Power: DRAM, package 1"), Some(2_000_000));
        let package = counter(&read, "Power: CPU package 0").expect("a counter");
        assert_eq!(package["category"], "power");
        assert_eq!(speeds(&read, 1)[..3], [Some(2.4), None, Some(0.8)]);
        assert_eq!(speeds(&read, 0)[0], Some(2.4));
        assert!(unavailable_features(&read).is_null());
    });
}

#[test]
fn features_that_the_machine_lacks_are_told_and_the_rest_is_recorded() {
    isolated(|| {
        let machine = Machine::new("empty");
        // Without the right to mount, the test's own machine has these features or not.
        let is_empty = machine.replace_sys();
        let session = start();
        assert!(profiler_feature_active(Features::CPU));
        wait_until("the process's CPU time is recorded", || {
            one_loop();
            sum(&Read::of_running(), "Process CPU").is_some()
        });
        let read = Read::from_profile(&session.finish().expect("a profile"));
        let meta = &read.0["meta"];
        let active = meta["configuration"]["features"].as_array();
        let active = active.expect("features");
        for (name, file) in [
            ("power", "/sys/class/powercap/intel-rapl:0/name"),
            ("cpufreq", "/sys/devices/system/cpu/present"),
        ] {
            let reason = unavailable_features(&read)[name].as_str();
            let is_active = active.iter().any(|feature| feature == name);
            assert_eq!(reason.is_none(), is_active, "{name}");
            if is_empty {
                let reason = reason.expect("an empty machine");
                let expected = format!("cannot read {file}: No such file");
                assert!(reason.contains(&expected), "{reason}");
                assert!(meta["warnings"].to_string().contains(reason));
            }
        }
    });
}

#[test]
fn network_bytes_are_counted_with_the_feature_only() {
    isolated(|| {
        profiler_count_bandwidth_bytes(1);
        let without = ProfilerSession::start(StartParams::default()).expect("start");
        profiler_count_bandwidth_bytes(2);
        let read = Read::from_profile(&without.finish().expect("a profile"));
        assert!(counter(&read, "bandwidth").is_none());
        let params = StartParams::default();
        let features = params.features | Features::BANDWIDTH;
        let session = ProfilerSession::start(params.features(features)).expect("start");
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| (0..100).for_each(|_| profiler_count_bandwidth_bytes(1_500)));
            }
        });
        let read = Read::from_profile(&session.finish().expect("a profile"));
        assert_eq!(sum(&read, "bandwidth"), Some(300_000));
        let counter = counter(&read, "bandwidth").expect("a counter");
        assert_eq!(counter["category"], "Bandwidth");
        let rows = counter["samples"]["data"].as_array().expect("rows");
        let operations = rows.iter().map(|row| row[2].as_u64().expect("a number"));
        assert_eq!(operations.sum::<u64>(), 200);
    });
}
