//! What a session records of the machine: the energy that it uses, for the feature `power`, and the
//! frequencies of its CPU cores, for the feature `cpufreq`.
//!
//! The processor updates its energy counters about every millisecond, and a reading may interrupt
//! another processor. So they are read every 20 ms. A value is written only when it has changed: the
//! viewer divides the energy of a row by the time since the row before.
//!
//! Frequencies are markers of the main thread. As in Gecko, a marker begins an interval at a core's
//! frequency, and another one ends it when the frequency changes. The cores are read in turns, at
//! most one every 2 ms on average, so the cost does not depend on the number of cores.

use std::path::Path;

use crate::counters::energy_descriptions;
use crate::markers::built_in::CPUSpeed;
use crate::markers::{MarkerTiming, NoPayload, TypedPayload};
use crate::platform::{CpuFrequencies, EnergyCounter, find_energy_counters, monotonic_now};
use crate::sampler::main_thread_markers::MainThreadTrack;
use crate::sampler::tick_context::TickContext;
use crate::state::Session;
use crate::types::{Features, ProfilerTime, ProfilingCategoryPair, TimeStamp};

/// Time between two readings of the energy counters, in ns.
const ENERGY_INTERVAL_NS: u64 = 20_000_000;

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

    /// Reads the counters if they are due, and gives the ids and values of those that have changed
    /// to `put`. Cost: some µs for each counter.
    pub(crate) fn sample(&mut self, now: TimeStamp, mut put: impl FnMut(u64, i64)) {
        if self.counters.is_empty() || now < self.next {
            return;
        }
        self.next = now.plus_ns(ENERGY_INTERVAL_NS);
        for counter in &mut self.counters {
            if let Some(value) = counter.changed_value() {
                put(counter.id, value);
            }
        }
    }
}

impl SampledEnergy {
    /// Reads the counter. Returns the value to write, in pWh, if there is one.
    fn changed_value(&mut self) -> Option<i64> {
        let reading = self.counter.read()?;
        let was_paused = std::mem::take(&mut self.was_paused);
        if was_paused {
            self.in_pauses += reading - self.last;
        }
        self.last = reading;
        let value = reading - self.in_pauses;
        // After a pause, the same value begins a new interval.
        let before = self.written.replace(value);
        (before != Some(value) || was_paused).then_some(value)
    }
}

/// Minimum time between two readings of a core, in ns. A reading may interrupt the core.
const MIN_CORE_INTERVAL_NS: u64 = 10_000_000;
/// Minimum time between two readings of any cores, on average, in ns.
const MIN_STEP_NS: u64 = 2_000_000;
/// Time after which a tick reads no further core, in ns. An old kernel may sleep in a reading.
const MAX_TICK_NS: u64 = 200_000;
/// Maximum time between two attempts to find the main thread's track, in ns.
const MAX_SEARCH_NS: u64 = 1_000_000_000;
/// Time without a track of the main thread after which the session's log says so, in ns. At its
/// beginning, a session may not have chosen its threads yet.
const LACK_NS: u64 = 100_000_000;
/// A change is written if it is larger than one hundredth. A frequency that the processor measures
/// differs a little on each reading.
const CHANGE_DIVISOR: u64 = 100;
/// Time after which an unchanged frequency is written again, in ns, so that a buffer which has
/// dropped its oldest chunks has it.
const MAX_AGE_NS: u64 = 10_000_000_000;

/// An interval that has begun.
#[derive(Clone, Copy, Debug)]
struct Begun {
    khz: u64,
    at: TimeStamp,
}

/// What happened to a core's frequency.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Edge {
    End,
    /// The interval with this frequency in kHz begins.
    Begin(u64),
}

/// The cores and their frequencies. Only the sampler thread uses them.
#[derive(Debug, Default)]
pub(crate) struct CpuSpeedMarkers {
    frequencies: Option<CpuFrequencies>,
    /// The current interval of each core.
    begun: Vec<Option<Begun>>,
    /// The core that is read next, and when.
    turn: usize,
    next: TimeStamp,
    /// Since when a track of the main thread has been missing, and whether the log says so.
    without_track_since: Option<TimeStamp>,
    has_logged_lack: bool,
}

impl CpuSpeedMarkers {
    /// Finds the cores in the folder of the system's attributes, if the session records their
    /// frequencies.
    pub(crate) fn find(session: &Session, sys: &Path) -> Self {
        if !session.settings.features.contains(Features::CPU_FREQ) {
            return Self::default();
        }
        let Ok(frequencies) = CpuFrequencies::find(sys) else {
            // The start of the session could still read them.
            session.log.add("the CPU frequencies cannot be read");
            return Self::default();
        };
        Self {
            begun: vec![None; frequencies.len()],
            frequencies: Some(frequencies),
            ..Self::default()
        }
    }

    /// Reads the cores whose turn it is, and adds markers for what has changed. Cost: some µs for
    /// each core that is read.
    pub(crate) fn add(&mut self, now: TimeStamp, context: &TickContext<'_>) {
        let (mut track, mut has_put, mut lacks) = (None, false, false);
        self.read(now, |core, edge| {
            // Without a track, the search is not repeated for each core.
            if track.is_none() && !lacks {
                track = MainThreadTrack::find(context, now);
            }
            let is_put = track
                .as_ref()
                .is_some_and(|track| add_edge(track, core, edge));
            (has_put, lacks) = (has_put || is_put, lacks || !is_put);
            is_put
        });
        if lacks {
            self.wait_for_track(now, context.session);
        } else if has_put {
            self.without_track_since = None;
        }
    }

    /// Reads nothing for a while, because nothing can be recorded. The main thread may register
    /// later.
    fn wait_for_track(&mut self, now: TimeStamp, session: &Session) {
        let since = *self.without_track_since.get_or_insert(now);
        let age_ns = now.since_ns(since);
        self.next = now.plus_ns(age_ns.clamp(MIN_CORE_INTERVAL_NS, MAX_SEARCH_NS));
        if age_ns >= LACK_NS && !std::mem::replace(&mut self.has_logged_lack, true) {
            session
                .log
                .add("no track of the main thread for the CPU frequencies");
        }
    }

    /// Reads the cores whose turn it is. `put` gets what has changed, and returns whether it was
    /// recorded.
    fn read(&mut self, now: TimeStamp, mut put: impl FnMut(u32, Edge) -> bool) {
        let Some(frequencies) = &mut self.frequencies else {
            return;
        };
        let count = frequencies.len();
        let step_ns = (MIN_CORE_INTERVAL_NS / count as u64).max(MIN_STEP_NS);
        for _ in 0..count {
            if self.next > now {
                return;
            }
            self.next = self.next.plus_ns(step_ns);
            let khz = frequencies.khz(self.turn);
            follow(&mut self.begun[self.turn], khz, now, |edge| {
                put(frequencies.number(self.turn), edge)
            });
            self.turn = (self.turn + 1) % count;
            if monotonic_now().since_ns(now) > MAX_TICK_NS {
                break;
            }
        }
        // What a long tick or a pause has missed is not made up for.
        self.next = self.next.max(now.plus_ns(step_ns));
    }
}

/// Follows the frequency of a core from one reading to the next.
fn follow(
    begun: &mut Option<Begun>,
    khz: Option<u64>,
    now: TimeStamp,
    mut put: impl FnMut(Edge) -> bool,
) {
    if let (Some(begun), Some(khz)) = (&begun, khz)
        && khz.abs_diff(begun.khz) <= begun.khz / CHANGE_DIVISOR
        && now.since_ns(begun.at) < MAX_AGE_NS
    {
        return;
    }
    if begun.is_some() && put(Edge::End) {
        *begun = None;
    }
    if let Some(khz) = khz
        && begun.is_none()
        && put(Edge::Begin(khz))
    {
        *begun = Some(Begun { khz, at: now });
    }
}

fn add_edge(track: &MainThreadTrack<'_>, core: u32, edge: Edge) -> bool {
    let name = format!("CPU {core}");
    let category = ProfilingCategoryPair::Other(None);
    let time = ProfilerTime::from_monotonic_ns(track.now.0);
    match edge {
        Edge::End => {
            let timing = MarkerTiming::interval_end(time);
            track.put(&name, category, &timing, NoPayload)
        }
        Edge::Begin(khz) => {
            let speed = khz as f64 / 1e6;
            let timing = MarkerTiming::interval_start(time);
            track.put(
                &name,
                category,
                &timing,
                TypedPayload::new(&CPUSpeed { speed }),
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::TestTree;
    use crate::state::SessionSettings;

    fn session(features: Features) -> Session {
        let settings = SessionSettings {
            features,
            ..SessionSettings::for_tests()
        };
        let now = TimeStamp::default();
        Session::new(settings, now, now, Vec::new())
    }

    const PACKAGE: &str = "class/powercap/intel-rapl:0/energy_uj";
    const MEMORY: &str = "class/powercap/intel-rapl:0:0/energy_uj";

    fn machine_with_energy(name: &str) -> TestTree {
        let tree = TestTree::new(name);
        tree.set("class/powercap/intel-rapl:0/name", "package-0");
        tree.set("class/powercap/intel-rapl:0:0/name", "dram");
        tree.set(PACKAGE, "0");
        tree.set(MEMORY, "0");
        tree
    }

    #[test]
    fn row_is_written_when_the_value_has_changed() {
        let tree = machine_with_energy("energy-rows");
        let session = session(Features::POWER);
        let mut sampler = EnergySampler::find(&session, tree.root());
        let found = session.found_counters();
        let names: Vec<_> = found.iter().map(|counter| counter.name.as_ref()).collect();
        assert_eq!(names, ["Power: CPU package", "Power: DRAM"]);
        let rows = |sampler: &mut EnergySampler, ms: u64| {
            let mut rows = Vec::new();
            sampler.sample(TimeStamp(ms * 1_000_000), |id, value| {
                let index = found.iter().position(|counter| counter.id == id);
                rows.push((index.expect("a found counter"), value));
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
    fn session_without_power_or_without_counters_reads_nothing() {
        let tree = machine_with_energy("energy-off");
        let without = session(Features::CPU);
        let mut sampler = EnergySampler::find(&without, tree.root());
        sampler.sample(TimeStamp(1), |id, _| panic!("{id}"));
        assert!(without.found_counters().is_empty());
        tree.remove(PACKAGE);
        tree.remove(MEMORY);
        let lacking = session(Features::POWER);
        let mut sampler = EnergySampler::find(&lacking, tree.root());
        sampler.sample(TimeStamp(1), |id, _| panic!("{id}"));
        let events = lacking.log.all().events;
        assert_eq!(events.len(), 1);
        assert_eq!(events[0].1, "the energy counters cannot be read");
    }

    fn machine_with_cores(name: &str, cores: u32) -> TestTree {
        let tree = TestTree::new(name);
        tree.set(
            "devices/system/cpu/present",
            &format!("0-{}", cores.saturating_sub(1)),
        );
        (0..cores).for_each(|core| set_khz(&tree, core, "2000000"));
        tree
    }

    fn set_khz(tree: &TestTree, core: u32, khz: &str) {
        let path = format!("devices/system/cpu/cpu{core}/cpufreq/scaling_cur_freq");
        tree.set(&path, khz);
    }

    /// Reads at a time that is later than the clock, so that no tick takes too long.
    fn read(markers: &mut CpuSpeedMarkers, ms: u64) -> Vec<(u32, Edge)> {
        let mut edges = Vec::new();
        markers.read(at(ms), |core, edge| {
            edges.push((core, edge));
            true
        });
        edges
    }

    fn at(ms: u64) -> TimeStamp {
        TimeStamp((1 << 62) + ms * 1_000_000)
    }

    #[test]
    fn interval_ends_when_the_frequency_changes() {
        let tree = machine_with_cores("speed-changes", 2);
        let mut markers = CpuSpeedMarkers::find(&session(Features::CPU_FREQ), tree.root());
        let (end, begin) = (Edge::End, Edge::Begin);
        let both = [(0, begin(2_000_000)), (1, begin(2_000_000))];
        assert_eq!(read(&mut markers, 0), both);
        set_khz(&tree, 1, "3000000");
        assert_eq!(read(&mut markers, 4), [], "too early");
        // In turns: first the one core, then the other.
        assert_eq!(read(&mut markers, 5), []);
        assert_eq!(read(&mut markers, 10), [(1, end), (1, begin(3_000_000))]);
        // A difference of one hundredth does not count as a change.
        set_khz(&tree, 0, "2020000");
        set_khz(&tree, 1, "2969999");
        assert_eq!(read(&mut markers, 15), []);
        assert_eq!(read(&mut markers, 20), [(1, end), (1, begin(2_969_999))]);
        // A core that is switched off, and on again.
        set_khz(&tree, 0, "?");
        assert_eq!(read(&mut markers, 25), [(0, end)]);
        assert_eq!(read(&mut markers, 30), []);
        assert_eq!(read(&mut markers, 35), []);
        set_khz(&tree, 0, "1000000");
        assert_eq!(read(&mut markers, 40), []);
        assert_eq!(read(&mut markers, 45), [(0, begin(1_000_000))]);
    }

    #[test]
    fn unchanged_frequency_is_written_again_after_ten_seconds() {
        let tree = machine_with_cores("speed-again", 1);
        let mut markers = CpuSpeedMarkers::find(&session(Features::CPU_FREQ), tree.root());
        let begin = (0, Edge::Begin(2_000_000));
        assert_eq!(read(&mut markers, 0), [begin]);
        assert_eq!(read(&mut markers, 9_999), []);
        assert_eq!(read(&mut markers, 10_009), [(0, Edge::End), begin]);
    }

    #[test]
    fn interval_that_was_not_recorded_begins_later() {
        let tree = machine_with_cores("speed-unrecorded", 1);
        let mut markers = CpuSpeedMarkers::find(&session(Features::CPU_FREQ), tree.root());
        let mut asked = Vec::new();
        markers.read(at(0), |core, edge| {
            asked.push((core, edge));
            false
        });
        assert_eq!(asked, [(0, Edge::Begin(2_000_000))]);
        assert_eq!(read(&mut markers, 10), asked);
    }

    #[test]
    fn many_cores_are_read_in_turns() {
        let tree = machine_with_cores("speed-cores", 200);
        let mut markers = CpuSpeedMarkers::find(&session(Features::CPU_FREQ), tree.root());
        assert_eq!(read(&mut markers, 0).len(), 200);
        (0..200).for_each(|core| set_khz(&tree, core, "1000000"));
        let mut cores = Vec::new();
        for ms in 1..=1_000 {
            let edges = read(&mut markers, ms);
            // The end of an interval and the beginning of the next one.
            assert!(edges.len() <= 2, "{edges:?}");
            cores.extend(edges.iter().map(|(core, _)| *core));
        }
        assert_eq!(
            cores,
            (0..200).flat_map(|core| [core, core]).collect::<Vec<_>>()
        );
        // After a pause, each core is read at most once.
        assert!(read(&mut markers, 100_000).len() <= 400);
    }

    #[test]
    fn lack_of_the_main_thread_is_logged_once() {
        let tree = machine_with_cores("speed-no-track", 1);
        let session = session(Features::CPU_FREQ);
        let mut markers = CpuSpeedMarkers::find(&session, tree.root());
        // Each attempt fails, until the main thread registers.
        let mut attempts = Vec::new();
        for ms in 0..10_000 {
            let now = at(ms);
            let mut fails = false;
            markers.read(now, |_, _| {
                fails = true;
                false
            });
            if fails {
                attempts.push(ms);
                markers.wait_for_track(now, &session);
            }
        }
        assert_eq!(attempts[..6], [0, 10, 20, 40, 80, 160]);
        assert!(attempts.len() < 20, "{attempts:?}");
        let events = session.log.all().events;
        let events: Vec<_> = events.iter().map(|(_, event)| &**event).collect();
        assert_eq!(
            events,
            ["no track of the main thread for the CPU frequencies"]
        );
        assert_eq!(read(&mut markers, 20_000), [(0, Edge::Begin(2_000_000))]);
    }

    #[test]
    fn slow_kernel_ends_the_tick() {
        let tree = machine_with_cores("speed-slow", 8);
        let mut markers = CpuSpeedMarkers::find(&session(Features::CPU_FREQ), tree.root());
        let mut read = 0;
        // The tick began long ago.
        markers.read(TimeStamp(1), |_, _| {
            read += 1;
            true
        });
        assert_eq!(read, 1);
    }

    #[test]
    fn session_without_frequencies_reads_nothing() {
        let tree = machine_with_cores("speed-none", 0);
        let session = session(Features::CPU_FREQ);
        let mut markers = CpuSpeedMarkers::find(&session, tree.root());
        assert_eq!(read(&mut markers, 0), []);
        assert_eq!(
            session.log.all().events[0].1,
            "the CPU frequencies cannot be read"
        );
    }
}
