//! `bursts`: CPU time that a profile puts at a wrong function, for threads that work for 0.3 to 3 ms
//! between waits.
//!
//! Six kinds of threads (`bursts_work.rs`) work one after another: they sleep for the same time or at
//! random, read from pipes, receive from a channel, run Tokio's tasks, and work at each multiple of
//! 10 ms. The work is three quarters `price` and one quarter `render`. Each thread reads its CPU clock
//! around both, which is the truth for them; the rest of its clock is what its waits used. A profile's
//! CPU time divides in the same three parts. `ours` is the part that is at another place than it was
//! used, in the mean of the kinds, at 1 and 10 ms, quiet and beside four busy processes.
//!
//! - `ours` reads the value `cpu` of the profile's export in pprof's format, as `go tool pprof` does.
//!   `ours_without_events` is the same with a real-time signal, for which threads have no events, as
//!   where `perf_event_paranoid` forbids them. `ours_in_sandbox` is the same in a process with a filter
//!   that refuses `perf_event_open`, as Docker's does: the sampler does not ask for a shorter time slice
//!   there, so it waits for a thread that has its processor. `pprof` is pprof-rs, and `perf` is `perf record -e task-clock` of the same program,
//!   with the interval as its period. Both count samples.
//! - `outside_…` is the CPU time, in percent, that is in neither function, above what the waits used.
//!   `split_…` is the error of `price`'s part of both, in points; `by_count_…` that of its part of their
//!   samples. They are means, too.
//! - `missed_…` is the number of cells that miss a goal. A cell is one kind at one interval, also that
//!   of `StartParams::always_on`, quiet or beside load, in the sum of all rounds. A standard deviation is
//!   that of as many samples as the CPU time gives at the interval.
//!
//! The notes have all figures of each cell: `price`'s part and its true one, the part by the number of
//! samples, the CPU time outside, the largest part of a thread that is in no sample
//! (`between`; of threads that used 100 ms), and the profile's CPU time in percent of the clock's. The
//! JSON has them by name.
//!
//! Each run is a separate process; the arms are interleaved. A full run takes 11 minutes. In the
//! seconds of `--quick`, a cell at 10 ms has a dozen samples.

use std::error::Error;
use std::io::Read;
use std::process::{Child, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::bursts_arms::{Perf, Profiler, Reading, SETTINGS, Setting, run};
use crate::bursts_work::KINDS;
use crate::busy::BusyThread;
use crate::machine::{self, load_note};
use crate::raw::{EmptyHandler, thread_id};
use crate::report::{Arm, Report};
use crate::{Effort, Outcome, child};

type Fallible<T> = Result<T, Box<dyn Error>>;

const BUSY_PROCESSES: usize = 4;
const LOADS: [&str; 2] = ["quiet", "load"];
const GOAL_OUTSIDE: f64 = 3.0;
const GOAL_SPLIT: f64 = 2.0;
const GOAL_BETWEEN: f64 = 2.0;
const GOAL_SUM: f64 = 0.5;
/// Standard deviations by which a figure may miss its goal.
const TOLERANCE: f64 = 2.5;
/// The goals, as in `missed_…`.
const GOALS: [&str; 5] = ["outside", "split", "perf", "between", "sum"];

pub(crate) fn measure(effort: Effort) -> Outcome {
    let (rounds, settings) = match effort.quick {
        true => (1, &SETTINGS[..2]),
        false => (2, &SETTINGS[..]),
    };
    let span = |setting: &Setting| match (effort.quick, setting.interval.as_millis()) {
        (true, _) => Duration::from_millis(350),
        (false, 1) => Duration::from_millis(1000),
        (false, _) => Duration::from_millis(2500),
    };
    let perf = Perf::find();
    let has_events = allows_events();
    let mut notes = vec![format!(
        "{rounds} rounds, {:?} for each kind at 1 ms and {:?} at 10 ms; perf events are {}; {}",
        span(&SETTINGS[0]),
        span(&SETTINGS[1]),
        if has_events { "allowed" } else { "refused" },
        load_note()
    )];
    notes.extend(perf.as_ref().err().cloned());
    let perf = perf.ok();
    let mut cells = Vec::new();
    for round in 1..=rounds {
        for (place, setting) in settings.iter().enumerate() {
            for load in LOADS {
                let (ran, taken) = machine::watch(|| -> Fallible<String> {
                    let mut said = String::new();
                    for profiler in arms_of(place, perf.is_some()) {
                        let _busy = (load == "load").then(BusyProcesses::start).transpose()?;
                        let run = run(profiler, setting, span(setting), perf.as_ref());
                        let (readings, engine) = match run {
                            // A peer may hang in its signal handler.
                            Err(error) if !profiler.is_ours() => {
                                said += &format!("; cannot measure {}: {error}", profiler.name());
                                continue;
                            }
                            run => run?,
                        };
                        if let Some(engine) = engine {
                            said += &format!("; engine of {}: {engine}", profiler.name());
                        }
                        for (kind, reading) in readings.into_iter().enumerate() {
                            add(&mut cells, Cell::new(place, load, kind, profiler), reading);
                        }
                    }
                    Ok(said)
                });
                notes.push(format!(
                    "round {round}, {}, {load}{}; CPUs used by other processes + the hypervisor: {taken}",
                    setting.name, ran?
                ));
            }
        }
    }
    notes.extend(notes_of(&cells, has_events));
    let missed = GOALS.map(|goal| {
        let misses = cells
            .iter()
            .filter(|cell| cell.misses(&cells, has_events).contains(&goal));
        Arm {
            runs: vec![misses.count() as f64],
            ..Arm::extra(String::leak(format!("missed_{goal}")))
        }
    });
    let met = missed.iter().all(|arm| arm.figure() == 0.0);
    let mut means = means_of(&cells, rounds);
    let ours = means.remove(0);
    let peers = means.into_iter().filter(|arm| !arm.runs.is_empty());
    let details = cells
        .iter()
        .flat_map(|cell| cell.details(&cells, has_events));
    Ok(Report {
        unit: "% of the CPU time that is at a wrong place; `outside_…`: in neither function, in %; `split_…`: error of \
               price's part, in points; `by_count_…`: of its part of the samples; `missed_…`: cells",
        ours,
        peers: peers.chain(missed).chain(details).collect(),
        floor: None,
        better: f64::min,
        goal: "in each cell, quiet and beside load with events and quiet without (or in a sandbox): outside <= 3 %, split within 2 points + \
               2.5 sd, and both no worse than perf's beyond 2.5 sd of the difference; in all: between <= 2 %, sum within 0.5 %",
        met,
        notes,
    })
}

/// Returns the profilers that are measured in a setting. The third one has the interval of the
/// second, so its peers are those of the second.
fn arms_of(setting: usize, has_perf: bool) -> impl Iterator<Item = Profiler> {
    Profiler::ALL.into_iter().filter(move |&profiler| {
        (setting < 2 || profiler.is_ours()) && (profiler != Profiler::Perf || has_perf)
    })
}

/// Whether this process may open perf events of its threads.
fn allows_events() -> bool {
    let event = EmptyHandler::install()
        .and_then(|handler| handler.start_perf_timer(thread_id(), Duration::from_secs(1)));
    event.is_ok()
}

/// What one arm says of one kind of threads in one setting.
struct Cell {
    setting: usize,
    load: &'static str,
    kind: usize,
    profiler: Profiler,
    rounds: Vec<Reading>,
}

/// Adds a round's reading to its cell.
fn add(cells: &mut Vec<Cell>, cell: Cell, reading: Reading) {
    let place = cells.iter().position(|known| known.key() == cell.key());
    let place = place.unwrap_or_else(|| {
        cells.push(cell);
        cells.len() - 1
    });
    cells[place].rounds.push(reading);
}

impl Cell {
    fn new(setting: usize, load: &'static str, kind: usize, profiler: Profiler) -> Self {
        Self {
            setting,
            load,
            kind,
            profiler,
            rounds: Vec::new(),
        }
    }

    fn key(&self) -> (usize, &'static str, usize, Profiler) {
        (self.setting, self.load, self.kind, self.profiler)
    }

    /// Returns the figures in the sum of all rounds.
    fn figures(&self) -> Figures {
        let mut sum = Reading::default();
        for reading in &self.rounds {
            sum.add(reading);
        }
        Figures {
            reading: sum,
            interval_ns: SETTINGS[self.setting].interval.as_nanos() as f64,
        }
    }

    /// Returns the goals that the cell misses.
    fn misses(&self, cells: &[Self], has_events: bool) -> Vec<&'static str> {
        if !self.profiler.is_ours() {
            return Vec::new();
        }
        let setting = self.setting.min(1);
        let key_of_perf = (setting, self.load, self.kind, Profiler::Perf);
        let perf = cells.iter().find(|cell| cell.key() == key_of_perf);
        let uses_events = has_events && self.profiler == Profiler::Ours;
        let is_judged = self.load == "quiet" || uses_events;
        let perf = perf.map(Self::figures);
        self.figures().misses(perf.as_ref(), is_judged)
    }

    /// Returns the figures for the JSON. `met_…` is 1 if no goal is missed.
    fn details(&self, cells: &[Self], has_events: bool) -> Vec<Arm> {
        let rest = format!(
            "{}_{}_{}_{}",
            KINDS[self.kind],
            SETTINGS[self.setting].name,
            self.load,
            self.profiler.name()
        );
        let figures = self.figures();
        let mut values = figures.named(self.profiler.is_ours());
        if self.profiler.is_ours() {
            let is_met = self.misses(cells, has_events).is_empty();
            values.push(("met", f64::from(u8::from(is_met))));
        }
        let arm = |(name, value): (&str, f64)| Arm {
            runs: vec![value],
            ..Arm::detail(String::leak(format!("{name}_{rest}")))
        };
        values.into_iter().map(arm).collect()
    }
}

/// The figures of a reading.
struct Figures {
    reading: Reading,
    interval_ns: f64,
}

impl Figures {
    /// Returns the CPU time at a wrong place, in percent.
    fn wrong(&self) -> f64 {
        let parts = [&self.reading.profile, &self.reading.truth]
            .map(|times| [times.price, times.render].map(|time| time / times.all));
        let [said, used] = parts;
        let elsewhere = self.reading.profile.elsewhere() - self.reading.truth.elsewhere();
        let differences = [said[0] - used[0], said[1] - used[1], elsewhere];
        differences.map(f64::abs).iter().sum::<f64>() / 2.0 * 100.0
    }

    /// Returns the CPU time in neither function above that of the waits, in percent.
    fn outside(&self) -> f64 {
        (self.reading.profile.elsewhere() - self.reading.truth.elsewhere()) * 100.0
    }

    /// Returns the error of the split, in points.
    fn split_error(&self) -> f64 {
        (self.reading.profile.split() - self.reading.truth.split()).abs() * 100.0
    }

    /// Returns the error of the split by the number of samples, in points.
    fn count_error(&self) -> f64 {
        (self.reading.samples.split() - self.reading.truth.split()).abs() * 100.0
    }

    fn sum(&self) -> f64 {
        self.reading.profile.all / self.reading.truth.all * 100.0
    }

    /// Returns the standard deviation of a part of the samples, in points.
    fn deviation(&self, part: f64) -> f64 {
        let samples = self.reading.truth.all / self.interval_ns;
        (part * (1.0 - part) / samples).max(0.0).sqrt() * 100.0
    }

    fn split_deviation(&self) -> f64 {
        self.deviation(self.reading.truth.split())
    }

    fn outside_deviation(&self) -> f64 {
        self.deviation(self.reading.truth.elsewhere())
    }

    fn named(&self, is_ours: bool) -> Vec<(&'static str, f64)> {
        let Reading {
            truth,
            profile,
            samples,
            between,
        } = &self.reading;
        let mut named = vec![
            ("split", profile.split() * 100.0),
            ("true_split", truth.split() * 100.0),
            ("split_sd", self.split_deviation()),
            ("outside", self.outside()),
            ("sum", self.sum()),
        ];
        if is_ours {
            named.push(("split_by_count", samples.split() * 100.0));
            named.extend(between.map(|between| ("between", between * 100.0)));
        }
        named
    }

    /// Returns the goals that these figures miss. `is_judged` is whether those for the functions
    /// apply.
    fn misses(&self, perf: Option<&Self>, is_judged: bool) -> Vec<&'static str> {
        let is_no_worse = perf.is_none_or(|perf| {
            let least = |own: f64, other: f64| TOLERANCE * own.hypot(other);
            let split = least(self.split_deviation(), perf.split_deviation());
            let outside = least(self.outside_deviation(), perf.outside_deviation());
            self.split_error() <= perf.split_error() + split
                && self.outside() <= perf.outside().max(0.0) + outside
        });
        let most_error = GOAL_SPLIT + TOLERANCE * self.split_deviation();
        let between = self.reading.between.unwrap_or(0.0) * 100.0;
        let met = [
            !is_judged || self.outside() <= GOAL_OUTSIDE,
            !is_judged || self.split_error() <= most_error,
            !is_judged || is_no_worse,
            between <= GOAL_BETWEEN,
            (self.sum() - 100.0).abs() <= GOAL_SUM,
        ];
        let missed = GOALS.into_iter().zip(met).filter(|(_, is_met)| !is_met);
        missed.map(|(goal, _)| goal).collect()
    }
}

/// A figure in the mean of cells: the begin of its arms' names, and its value.
type Mean = (&'static str, fn(&Figures) -> f64);

/// Returns the means of each profiler's cells at 1 and 10 ms, in each round. That of ours comes first.
fn means_of(cells: &[Cell], rounds: usize) -> Vec<Arm> {
    const MEANS: [Mean; 4] = [
        ("", Figures::wrong),
        ("outside_", Figures::outside),
        ("split_", Figures::split_error),
        ("by_count_", Figures::count_error),
    ];
    let arm = |(begin, figure): Mean, profiler: Profiler| {
        let mean = |round: usize| {
            let cells = cells.iter().filter(|cell| cell.setting < 2);
            let of_profiler = cells.filter(|cell| cell.profiler == profiler);
            let readings = of_profiler.filter_map(|cell| {
                Some(figure(&Figures {
                    reading: *cell.rounds.get(round)?,
                    interval_ns: SETTINGS[cell.setting].interval.as_nanos() as f64,
                }))
            });
            // A cell may have no sample.
            let readings: Vec<f64> = readings.filter(|figure| figure.is_finite()).collect();
            let sum: f64 = readings.iter().sum();
            (!readings.is_empty()).then(|| sum / readings.len() as f64)
        };
        Arm {
            runs: (0..rounds).filter_map(mean).collect(),
            extra: !begin.is_empty() || profiler == Profiler::OursWithoutEvents,
            ..Arm::new(String::leak(format!("{begin}{}", profiler.name())))
        }
    };
    let of_all = |mean: Mean| Profiler::ALL.map(|profiler| arm(mean, profiler));
    MEANS.into_iter().flat_map(of_all).collect()
}

/// Returns a note on each kind in each setting.
fn notes_of(cells: &[Cell], has_events: bool) -> Vec<String> {
    let mut notes = Vec::new();
    for cell in cells.iter().filter(|cell| cell.profiler == Profiler::Ours) {
        let place = (cell.setting, cell.load, cell.kind);
        let mut note = format!(
            "{}, {}, {}",
            SETTINGS[cell.setting].name, cell.load, KINDS[cell.kind]
        );
        for profiler in Profiler::ALL {
            let key = (place.0, place.1, place.2, profiler);
            let Some(cell) = cells.iter().find(|cell| cell.key() == key) else {
                continue;
            };
            let figures = cell.figures();
            let reading = &figures.reading;
            note += &format!(
                "; {}: price {:.1} of {:.1} ± {:.1} %",
                profiler.name(),
                reading.profile.split() * 100.0,
                reading.truth.split() * 100.0,
                figures.split_deviation(),
            );
            if profiler.is_ours() {
                note += &format!(", by count {:.1}", reading.samples.split() * 100.0);
            }
            note += &format!(
                ", outside {:.1}, sum {:.1} of {:.2} s",
                figures.outside(),
                figures.sum(),
                reading.truth.all / 1e9
            );
            if let Some(between) = reading.between {
                note += &format!(", between {:.1}", between * 100.0);
            }
            let misses = cell.misses(cells, has_events);
            if !misses.is_empty() {
                note += &format!(", MISSED {}", misses.join(" + "));
            }
        }
        notes.push(note);
    }
    notes
}

/// Processes that only compute. Dropping this ends them.
struct BusyProcesses(Vec<Child>);

impl BusyProcesses {
    fn start() -> Fallible<Self> {
        let mut started = Self(Vec::new());
        for _ in 0..BUSY_PROCESSES {
            let mut command = child::command("bursts_busy", &[])?;
            let command = command.stdin(Stdio::piped()).stdout(Stdio::null());
            started.0.push(command.spawn()?);
        }
        Ok(started)
    }
}

impl Drop for BusyProcesses {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // It ends when its input does, and `wait` closes that.
            let _ = child.wait();
        }
    }
}

/// Computes until the input ends.
pub(crate) fn be_busy(_: &[String]) -> Fallible<Value> {
    let _busy = BusyThread::start("busy", || {})?;
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(Value::Null)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bursts_arms::Times;

    fn times(price: f64, render: f64, all: f64) -> Times {
        Times { price, render, all }
    }

    /// The truth: 1 s at 1 ms, of which 2 % are waits.
    fn figures(profile: Times) -> Figures {
        Figures {
            reading: Reading {
                truth: times(735e6, 245e6, 1e9),
                profile,
                samples: profile,
                ..Reading::default()
            },
            interval_ns: 1e6,
        }
    }

    #[test]
    fn figures_compare_the_profile_with_the_truth() {
        let wrong = figures(times(300e6, 200e6, 1e9));
        assert!((wrong.outside() - 48.0).abs() < 1e-9);
        assert!((wrong.split_error() - 15.0).abs() < 1e-9);
        assert!((wrong.wrong() - 48.0).abs() < 1e-9);
        assert!((wrong.split_deviation() - 1.369).abs() < 1e-3);
        let right = figures(times(735e6, 245e6, 1e9));
        assert!(right.wrong() < 1e-9 && right.misses(None, true).is_empty());
    }

    #[test]
    fn goals_are_missed_beyond_their_tolerance() {
        let missed = |profile, perf, is_judged| {
            let perf = figures(perf);
            figures(profile).misses(Some(&perf), is_judged)
        };
        let truth = times(735e6, 245e6, 1e9);
        // 5 points: within 2 + 2.5 standard deviations, and near to the difference's from perf.
        assert!(missed(times(682e6, 294e6, 1e9), truth, true) == ["perf"]);
        assert!(missed(times(682e6, 294e6, 1e9), times(692e6, 288e6, 1e9), true).is_empty());
        assert_eq!(
            missed(times(700e6, 235e6, 1e9), truth, true),
            ["outside", "perf"]
        );
        assert!(missed(times(500e6, 100e6, 1e9), truth, false).is_empty());
        assert_eq!(missed(times(741e6, 247e6, 1.008e9), truth, true), ["sum"]);
        let mut between = figures(truth);
        between.reading.between = Some(0.03);
        assert_eq!(between.misses(None, false), ["between"]);
        assert_eq!(missed(Times::default(), truth, true).len(), 4);
    }

    #[test]
    fn rounds_are_summed_in_their_cells() {
        let mut cells = Vec::new();
        let reading = figures(times(700e6, 280e6, 1e9)).reading;
        for kind in [0, 1, 0] {
            add(
                &mut cells,
                Cell::new(0, "quiet", kind, Profiler::Ours),
                reading,
            );
        }
        assert_eq!((cells.len(), cells[0].rounds.len()), (2, 2));
        assert_eq!(cells[0].figures().reading.truth.all, 2e9);
        let empty = figures(Times::default()).reading;
        add(&mut cells, Cell::new(0, "quiet", 2, Profiler::Ours), empty);
        let means = means_of(&cells, 2);
        assert_eq!((means[0].name, means[0].runs.len()), ("ours", 2));
        assert!(means[0].figure().is_finite());
        assert!(
            means
                .iter()
                .all(|arm| arm.name.ends_with("ours") != arm.runs.is_empty())
        );
        assert_eq!(notes_of(&cells, true).len(), 3);
    }
}
