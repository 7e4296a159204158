//! The frequencies of the CPU cores as markers of the main thread, for the feature `cpufreq`.
//!
//! As in Gecko, a marker begins an interval at a core's frequency, and another one ends it when the
//! frequency changes. The cores are read in turns, at most one every 2 ms on average, so the cost
//! does not depend on the number of cores.

use std::path::Path;

use crate::buffer::LaneHandle;
use crate::markers::built_in::CPUSpeed;
use crate::markers::{MarkerTiming, NoPayload, TypedPayload};
use crate::platform::{CpuFrequencies, monotonic_now};
use crate::sampler::main_thread_track::MainThreadTrack;
use crate::state::Session;
use crate::types::{Features, ProfilerTime, ProfilingCategoryPair, TimeStamp};

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
    pub(crate) fn add(&mut self, now: TimeStamp, session: &Session, lane: &LaneHandle<'static>) {
        let (mut track, mut has_put, mut lacks) = (None, false, false);
        self.read(now, |core, edge| {
            // Without a track, the search is not repeated for each core.
            if track.is_none() && !lacks {
                track = MainThreadTrack::find(session, lane, now);
            }
            let is_put = track
                .as_ref()
                .is_some_and(|track| add_edge(track, core, edge));
            (has_put, lacks) = (has_put || is_put, lacks || !is_put);
            is_put
        });
        if lacks {
            self.wait_for_track(now, session);
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
        Edge::End => track.put(
            &name,
            category,
            &MarkerTiming::interval_end(time),
            NoPayload,
        ),
        Edge::Begin(khz) => {
            let speed = CPUSpeed {
                speed: khz as f64 / 1e6,
            };
            let timing = MarkerTiming::interval_start(time);
            track.put(&name, category, &timing, TypedPayload::new(&speed))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::TestTree;
    use crate::state::SessionSettings;

    fn session() -> Session {
        let settings = SessionSettings {
            features: Features::CPU_FREQ,
            ..SessionSettings::for_tests()
        };
        let now = TimeStamp::default();
        Session::new(settings, now, now, Vec::new())
    }

    fn machine(name: &str, cores: u32) -> TestTree {
        let tree = TestTree::new(name);
        tree.set(
            "devices/system/cpu/present",
            &format!("0-{}", cores.saturating_sub(1)),
        );
        (0..cores).for_each(|core| set(&tree, core, "2000000"));
        tree
    }

    fn set(tree: &TestTree, core: u32, khz: &str) {
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
        let tree = machine("speed-changes", 2);
        let mut markers = CpuSpeedMarkers::find(&session(), tree.root());
        let (end, begin) = (Edge::End, Edge::Begin);
        let both = [(0, begin(2_000_000)), (1, begin(2_000_000))];
        assert_eq!(read(&mut markers, 0), both);
        set(&tree, 1, "3000000");
        assert_eq!(read(&mut markers, 4), [], "too early");
        // In turns: first the one core, then the other.
        assert_eq!(read(&mut markers, 5), []);
        assert_eq!(read(&mut markers, 10), [(1, end), (1, begin(3_000_000))]);
        // A difference of one hundredth does not count as a change.
        set(&tree, 0, "2020000");
        set(&tree, 1, "2969999");
        assert_eq!(read(&mut markers, 15), []);
        assert_eq!(read(&mut markers, 20), [(1, end), (1, begin(2_969_999))]);
        // A core that is switched off, and on again.
        set(&tree, 0, "?");
        assert_eq!(read(&mut markers, 25), [(0, end)]);
        assert_eq!(read(&mut markers, 30), []);
        assert_eq!(read(&mut markers, 35), []);
        set(&tree, 0, "1000000");
        assert_eq!(read(&mut markers, 40), []);
        assert_eq!(read(&mut markers, 45), [(0, begin(1_000_000))]);
    }

    #[test]
    fn unchanged_frequency_is_written_again_after_ten_seconds() {
        let tree = machine("speed-again", 1);
        let mut markers = CpuSpeedMarkers::find(&session(), tree.root());
        let begin = (0, Edge::Begin(2_000_000));
        assert_eq!(read(&mut markers, 0), [begin]);
        assert_eq!(read(&mut markers, 9_999), []);
        assert_eq!(read(&mut markers, 10_009), [(0, Edge::End), begin]);
    }

    #[test]
    fn interval_that_was_not_recorded_begins_later() {
        let tree = machine("speed-unrecorded", 1);
        let mut markers = CpuSpeedMarkers::find(&session(), tree.root());
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
        let tree = machine("speed-cores", 200);
        let mut markers = CpuSpeedMarkers::find(&session(), tree.root());
        assert_eq!(read(&mut markers, 0).len(), 200);
        (0..200).for_each(|core| set(&tree, core, "1000000"));
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
        let tree = machine("speed-no-track", 1);
        let session = session();
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
        let tree = machine("speed-slow", 8);
        let mut markers = CpuSpeedMarkers::find(&session(), tree.root());
        let mut read = 0;
        // The tick began long ago.
        markers.read(TimeStamp(1), |_, _| {
            read += 1;
            true
        });
        assert_eq!(read, 1);
    }

    #[test]
    fn session_without_the_feature_or_without_frequencies_reads_nothing() {
        let tree = machine("speed-none", 0);
        let session = session();
        let mut markers = CpuSpeedMarkers::find(&session, tree.root());
        assert_eq!(read(&mut markers, 0), []);
        assert_eq!(
            session.log.all().events[0].1,
            "the CPU frequencies cannot be read"
        );
    }
}
