//! Samples the machine's energy counters, for the feature `power`.
//!
//! The processor updates its counters about every millisecond, and a reading may interrupt another
//! processor. So they are read every 20 ms. A value is written only when it has changed: the viewer
//! divides the energy of a row by the time since the row before.

use std::path::Path;

use crate::counters::energy_descriptions;
use crate::platform::{EnergyCounter, find_energy_counters};
use crate::sampler::tick::counter_sampler::CounterRow;
use crate::state::Session;
use crate::types::{Features, TimeStamp};

/// Time between two readings, in ns.
const INTERVAL_NS: u64 = 20_000_000;

/// A counter, and what was written of it.
#[derive(Debug)]
struct SampledEnergy {
    counter: EnergyCounter,
    id: u64,
    /// The value of the last row, in pWh; `None` before the first one.
    written: Option<i64>,
    /// The last reading, in pWh.
    last: i64,
    /// Energy that was used while sampling was paused, in pWh.
    in_pauses: i64,
    /// Whether sampling was paused since the last reading.
    was_paused: bool,
}

/// The energy counters of a session. Only the sampler thread uses them.
#[derive(Debug, Default)]
pub(crate) struct EnergySampler {
    counters: Vec<SampledEnergy>,
    next: TimeStamp,
}

impl EnergySampler {
    /// Finds the counters in the folder of the system's attributes, if the session records energy,
    /// and describes them in the session.
    pub(crate) fn find(session: &Session, sys: &Path) -> Self {
        if !session.settings.features.contains(Features::POWER) {
            return Self::default();
        }
        let Ok(counters) = find_energy_counters(sys) else {
            // The start of the session could still read them.
            session.log.add("the energy counters cannot be read");
            return Self::default();
        };
        let names = counters.iter();
        let names: Vec<_> = names
            .map(|counter| (counter.domain, counter.package.as_str()))
            .collect();
        let descriptions = energy_descriptions(&names);
        let sampled = counters.into_iter().zip(&descriptions);
        let counters = sampled
            .map(|(counter, description)| SampledEnergy {
                counter,
                id: description.id,
                written: None,
                last: 0,
                in_pauses: 0,
                was_paused: false,
            })
            .collect();
        session.add_found_counters(descriptions);
        Self {
            counters,
            ..Self::default()
        }
    }

    /// Leaves out the energy that is used until the next readings, because sampling was paused.
    pub(crate) fn skip_pause(&mut self) {
        for counter in &mut self.counters {
            counter.was_paused = true;
        }
        self.next = TimeStamp(0);
    }

    /// Reads the counters if they are due, and gives the rows to `put`. Cost: some µs for each
    /// counter.
    pub(crate) fn sample(&mut self, now: TimeStamp, mut put: impl FnMut(CounterRow)) {
        if self.counters.is_empty() || now < self.next {
            return;
        }
        self.next = now.plus_ns(INTERVAL_NS);
        for counter in &mut self.counters {
            counter.sample(now, &mut put);
        }
    }
}

impl SampledEnergy {
    fn sample(&mut self, now: TimeStamp, put: &mut impl FnMut(CounterRow)) {
        let Some(reading) = self.counter.read() else {
            return;
        };
        let was_paused = std::mem::take(&mut self.was_paused);
        if was_paused {
            self.in_pauses += reading - self.last;
        }
        self.last = reading;
        let value = reading - self.in_pauses;
        // After a pause, the same value begins a new interval.
        if self.written == Some(value) && !was_paused {
            return;
        }
        self.written = Some(value);
        put(CounterRow::without_operations(self.id, now, value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::TestTree;
    use crate::state::SessionSettings;

    const PACKAGE: &str = "class/powercap/intel-rapl:0/energy_uj";
    const MEMORY: &str = "class/powercap/intel-rapl:0:0/energy_uj";

    fn machine(name: &str) -> TestTree {
        let tree = TestTree::new(name);
        tree.set("class/powercap/intel-rapl:0/name", "package-0");
        tree.set("class/powercap/intel-rapl:0:0/name", "dram");
        tree.set(PACKAGE, "0");
        tree.set(MEMORY, "0");
        tree
    }

    fn session(features: Features) -> Session {
        let settings = SessionSettings {
            features,
            ..SessionSettings::for_tests()
        };
        let now = TimeStamp::default();
        Session::new(settings, now, now, Vec::new())
    }

    #[test]
    fn row_is_written_when_the_value_has_changed() {
        let tree = machine("energy-rows");
        let session = session(Features::POWER);
        let mut sampler = EnergySampler::find(&session, tree.root());
        let found = session.found_counters();
        let names: Vec<_> = found.iter().map(|counter| counter.name.as_ref()).collect();
        assert_eq!(names, ["Power: CPU package", "Power: DRAM"]);
        let rows = |sampler: &mut EnergySampler, ms: u64| {
            let mut rows = Vec::new();
            sampler.sample(TimeStamp(ms * 1_000_000), |row| {
                assert_eq!(row.time.0, ms * 1_000_000);
                let index = found.iter().position(|counter| counter.id == row.id);
                rows.push((index.expect("a found counter"), row.reading.count));
            });
            rows
        };
        assert_eq!(rows(&mut sampler, 1), [(0, 0), (1, 0)]);
        tree.set(PACKAGE, "36");
        assert_eq!(rows(&mut sampler, 20), [], "too early");
        assert_eq!(rows(&mut sampler, 21), [(0, 10_000)]);
        assert_eq!(rows(&mut sampler, 41), []);
        // What is used in a pause does not count, and the next interval begins after it.
        sampler.skip_pause();
        tree.set(PACKAGE, "72");
        assert_eq!(rows(&mut sampler, 42), [(0, 10_000), (1, 0)]);
        tree.set(PACKAGE, "108");
        tree.set(MEMORY, "36");
        assert_eq!(rows(&mut sampler, 62), [(0, 20_000), (1, 10_000)]);
        // An error loses nothing of the sum.
        tree.set(PACKAGE, "?");
        assert_eq!(rows(&mut sampler, 82), []);
        tree.set(PACKAGE, "144");
        assert_eq!(rows(&mut sampler, 102), [(0, 30_000)]);
        // A counter that cannot be read at the end of a pause leaves out its energy later.
        sampler.skip_pause();
        tree.set(PACKAGE, "?");
        tree.set(MEMORY, "72");
        assert_eq!(rows(&mut sampler, 103), [(1, 10_000)]);
        tree.set(PACKAGE, "180");
        tree.set(MEMORY, "108");
        assert_eq!(rows(&mut sampler, 123), [(0, 30_000), (1, 20_000)]);
    }

    #[test]
    fn session_without_the_feature_or_without_counters_reads_nothing() {
        let tree = machine("energy-off");
        let without = session(Features::CPU);
        let mut sampler = EnergySampler::find(&without, tree.root());
        sampler.sample(TimeStamp(1), |row| panic!("{row:?}"));
        assert!(without.found_counters().is_empty());
        tree.remove(PACKAGE);
        tree.remove(MEMORY);
        let lacking = session(Features::POWER);
        let mut sampler = EnergySampler::find(&lacking, tree.root());
        sampler.sample(TimeStamp(1), |row| panic!("{row:?}"));
        let events = lacking.log.all().events;
        assert_eq!(events.len(), 1);
        assert_eq!(events[0].1, "the energy counters cannot be read");
    }
}
