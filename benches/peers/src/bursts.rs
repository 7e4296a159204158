//! `bursts`: CPU time that a profile puts at a wrong function, for threads that work for 0.3 to 3 ms
//! between waits.
//!
//! Six kinds of threads (`bursts_work.rs`) work one after another: they sleep for the same time or at
//! random, read from pipes, receive from a channel, run Tokio's tasks, and work at each multiple of
//! 10 ms. The work is three quarters `price` and one quarter `render`. Each thread reads its CPU clock
//! around both, which is the truth for them; the rest of its clock is what its waits used. A profile's
//! CPU time divides in the same three parts. `ours` is the part that is at another place than it
//! was used: the mean of the kinds, at 1 and 10 ms, quiet and with four busy processes.
//!
//! - `ours` reads the value `cpu` of the profile's export in pprof's format, as `go tool pprof` does.
//!   `ours_without_events` uses a real-time signal, for which threads have no events, as where
//!   `perf_event_paranoid` forbids events. `ours_in_sandbox` runs in a process with a filter that
//!   refuses `perf_event_open`, as Docker's does. There the sampler does not ask for a shorter time
//!   slice, so it waits for a thread that has its processor. `pprof` is pprof-rs, and `perf` is
//!   `perf record -e task-clock` of the same program, with the interval as its period. Both count
//!   samples.
//! - `outside_…` is the CPU time, in percent, that is in neither function, above what the waits used.
//!   `split_…` is the error of `price`'s part of both, in points. They are means, too.
//! - `missed_…` is the number of cells that miss a goal. A cell is one kind at one interval, quiet
//!   or under load, in the sum of all rounds. The interval of `StartParams::always_on` is included.
//!   A standard deviation is that of as many samples as the CPU time gives at the interval.
//!
//! The notes have all figures of each cell: `price`'s part and its true one, the part by the number of
//! samples, the CPU time outside, the largest part of a thread that is in no sample
//! (`between`; of threads that used 100 ms), and the profile's CPU time in percent of the clock's.
//!
//! Each run is a separate process; the arms are interleaved. A full run takes 11 minutes. In the
//! seconds of `--quick`, a cell at 10 ms has a dozen samples.

use std::collections::BTreeMap;
use std::io::Read;
use std::process::{Child, Stdio};

use crate::bursts_arms::{PROFILERS, Perf, Reading, SETTINGS, Setting, run, run_part};
use crate::bursts_work::KINDS;
use crate::prelude::*;
use crate::threads::start_busy;

const BUSY_PROCESSES: usize = 4;
const LOADS: [&str; 2] = ["quiet", "load"];
/// Standard deviations by which a figure may miss its goal.
const TOLERANCE: f64 = 2.5;
/// The goals, as in `missed_…`.
const GOALS: [&str; 5] = ["outside", "split", "perf", "between", "sum"];

pub(crate) const MEASUREMENT: Measurement = Measurement {
    name: "bursts",
    unit: "% of the CPU time that is at a wrong place; `outside_…`: in neither function, in %; `split_…`: error of \
           price's part, in points; `missed_…`: cells",
    goal: "in each cell, quiet and beside load with events and quiet without (or in a sandbox): outside <= 3 %, split within 2 points + \
           2.5 sd, and both no worse than perf's beyond 2.5 sd of the difference; in all: between <= 2 %, sum within 0.5 %",
    peers: &["ours_in_sandbox", "pprof", "perf"],
    is_met: |study| {
        let mut missed = GOALS
            .iter()
            .map(|goal| study.figure(&format!("missed_{goal}")));
        missed.all(|cells| cells == 0.0)
    },
    measure,
    part: |arguments| match arguments.text(0)? {
        "busy" => be_busy(),
        _ => run_part(arguments),
    },
    ..Measurement::NEW
};

fn measure(study: &mut Study) -> Fallible<()> {
    let settings = study.pick(&SETTINGS[..2], &SETTINGS[..]);
    let [at_1_ms, at_10_ms] = study
        .pick([350, 350], [1000, 2500])
        .map(Duration::from_millis);
    let span = |setting: &Setting| match setting.interval.as_millis() {
        1 => at_1_ms,
        _ => at_10_ms,
    };
    let perf = match Perf::find() {
        Ok(perf) => Some(perf),
        Err(refusal) => {
            study.note(refusal);
            None
        }
    };
    let (mut cells, mut has_events) = (Cells::default(), true);
    let rounds = study.pick(1, 2);
    let about = format!("{at_1_ms:?} for each kind at 1 ms and {at_10_ms:?} at 10 ms");
    study.rounds(rounds, about, |study, _| {
        for (place, setting) in settings.iter().enumerate() {
            for load in LOADS {
                for profiler in arms_of(place, perf.is_some()) {
                    let _busy = (load == "load").then(BusyProcesses::start).transpose()?;
                    let run = run(profiler, setting, span(setting), perf.as_ref());
                    let (readings, had_events) = match run {
                        // A peer may hang in its signal handler.
                        Err(error) if !is_ours(profiler) => {
                            study.note(format!("cannot measure {profiler}: {error}"));
                            continue;
                        }
                        run => run?,
                    };
                    has_events &= had_events || profiler != "ours";
                    for (kind, reading) in readings.into_iter().enumerate() {
                        let cell = cells.entry((place, load, kind, profiler)).or_default();
                        cell.push(reading);
                    }
                }
            }
        }
        Ok(())
    })?;
    let allowed = if has_events { "allowed" } else { "refused" };
    study.note(format!("perf events are {allowed}"));
    let figures: [Figure; 3] = [
        ("", Reading::wrong),
        ("outside_", Reading::outside),
        ("split_", Reading::split_error),
    ];
    for (prefix, figure) in figures {
        for profiler in PROFILERS {
            for mean in (0..rounds).filter_map(|round| mean(&cells, profiler, round, figure)) {
                study.push(&format!("{prefix}{profiler}"), mean);
            }
        }
    }
    let missed = judge(&cells, has_events);
    for goal in GOALS {
        let misses = missed.values().filter(|missed| missed.contains(&goal));
        study.push(&format!("missed_{goal}"), misses.count() as f64);
    }
    for (cell, readings) in &cells {
        study.note(note_of(cell, &sum(readings), missed.get(cell)));
    }
    Ok(())
}

fn is_ours(profiler: &str) -> bool {
    profiler.starts_with("ours")
}

/// Returns the profilers that are measured in a setting. The third one has the interval of the
/// second, so its peers are those of the second.
fn arms_of(setting: usize, has_perf: bool) -> impl Iterator<Item = &'static str> {
    PROFILERS.into_iter().filter(move |&profiler| {
        (setting < 2 || is_ours(profiler)) && (profiler != "perf" || has_perf)
    })
}

/// The begin of its arms' names, and the figure of a cell.
type Figure = (&'static str, fn(&Reading) -> f64);

/// A setting, a load, a kind of threads and a profiler.
type Cell = (usize, &'static str, usize, &'static str);

/// What the profilers say, in each round.
type Cells = BTreeMap<Cell, Vec<Reading>>;

fn sum(rounds: &[Reading]) -> Reading {
    let mut sum = Reading::default();
    rounds.iter().for_each(|reading| sum.add(reading));
    sum
}

/// Returns the goals that the cells of ours miss.
fn judge(cells: &Cells, has_events: bool) -> BTreeMap<Cell, Vec<&'static str>> {
    let of_ours = cells.iter().filter(|(cell, _)| is_ours(cell.3));
    of_ours
        .map(|(&cell, readings)| {
            let (setting, load, kind, profiler) = cell;
            let perf = cells.get(&(setting.min(1), load, kind, "perf"));
            let uses_events = has_events && profiler == "ours";
            let is_judged = load == "quiet" || uses_events;
            let perf = perf.map(|readings| sum(readings));
            (cell, sum(readings).misses(perf.as_ref(), is_judged))
        })
        .collect()
}

impl Reading {
    /// Returns the CPU time at a wrong place, in percent.
    fn wrong(&self) -> f64 {
        let parts = [&self.profile, &self.truth].map(|times| times.of.map(|time| time / times.all));
        let [said, used] = parts;
        let differences = [said[0] - used[0], said[1] - used[1], self.outside() / 100.0];
        differences.map(f64::abs).iter().sum::<f64>() / 2.0 * 100.0
    }

    /// Returns the CPU time in neither function above that of the waits, in percent.
    fn outside(&self) -> f64 {
        (self.profile.elsewhere() - self.truth.elsewhere()) * 100.0
    }

    /// Returns the error of the split, in points.
    fn split_error(&self) -> f64 {
        (self.profile.split() - self.truth.split()).abs() * 100.0
    }

    fn sum(&self) -> f64 {
        self.profile.all / self.truth.all * 100.0
    }

    /// Returns the standard deviation of a part of the samples, in points.
    fn deviation(&self, part: f64) -> f64 {
        let samples = self.truth.all / self.interval_ns;
        (part * (1.0 - part) / samples).max(0.0).sqrt() * 100.0
    }

    fn split_deviation(&self) -> f64 {
        self.deviation(self.truth.split())
    }

    fn outside_deviation(&self) -> f64 {
        self.deviation(self.truth.elsewhere())
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
        let most_error = 2.0 + TOLERANCE * self.split_deviation();
        let met = [
            !is_judged || self.outside() <= 3.0,
            !is_judged || self.split_error() <= most_error,
            !is_judged || is_no_worse,
            self.between.unwrap_or(0.0) <= 0.02,
            (self.sum() - 100.0).abs() <= 0.5,
        ];
        let missed = GOALS.into_iter().zip(met).filter(|(_, is_met)| !is_met);
        missed.map(|(goal, _)| goal).collect()
    }
}

/// Returns the mean of a profiler's cells at 1 and 10 ms in a round, if any has a figure.
fn mean(cells: &Cells, profiler: &str, round: usize, figure: fn(&Reading) -> f64) -> Option<f64> {
    let cells = cells
        .iter()
        .filter(|(cell, _)| cell.0 < 2 && cell.3 == profiler);
    let figures = cells.filter_map(|(_, readings)| Some(figure(readings.get(round)?)));
    // A cell may have no sample.
    let figures: Vec<f64> = figures.filter(|figure| figure.is_finite()).collect();
    (!figures.is_empty()).then(|| figures.iter().sum::<f64>() / figures.len() as f64)
}

fn note_of(cell: &Cell, reading: &Reading, missed: Option<&Vec<&str>>) -> String {
    let (setting, load, kind, profiler) = *cell;
    let place = format!(
        "{}, {load}, {}, {profiler}",
        SETTINGS[setting].name, KINDS[kind]
    );
    let Reading {
        truth,
        profile,
        samples,
        between,
        ..
    } = reading;
    format!(
        "{place}: price {:.1} of {:.1} ± {:.1} %, by count {:.1}, outside {:.1}, sum {:.1} of {:.2} s, between {:.1}; missed: {}",
        profile.split() * 100.0,
        truth.split() * 100.0,
        reading.split_deviation(),
        samples.split() * 100.0,
        reading.outside(),
        reading.sum(),
        truth.all / 1e9,
        between.unwrap_or(0.0) * 100.0,
        missed.map_or_else(String::new, |missed| missed.join(" + ")),
    )
}

/// Processes that only compute. Dropping this ends them.
struct BusyProcesses(Vec<Child>);

impl BusyProcesses {
    fn start() -> Fallible<Self> {
        let mut started = Self(Vec::new());
        for _ in 0..BUSY_PROCESSES {
            let mut command = child::command("bursts", &[&"busy"])?;
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
fn be_busy() -> Fallible<Value> {
    let _busy = start_busy(1, || {})?;
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(Value::Null)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bursts_arms::Times;

    fn times(price: f64, render: f64, all: f64) -> Times {
        Times {
            of: [price, render],
            all,
        }
    }

    /// The truth: 1 s at 1 ms, of which 2 % are waits.
    fn reading(profile: Times) -> Reading {
        Reading {
            truth: times(735e6, 245e6, 1e9),
            profile,
            samples: profile,
            interval_ns: 1e6,
            ..Reading::default()
        }
    }

    #[test]
    fn figures_compare_the_profile_with_the_truth() {
        let wrong = reading(times(300e6, 200e6, 1e9));
        assert!((wrong.outside() - 48.0).abs() < 1e-9);
        assert!((wrong.split_error() - 15.0).abs() < 1e-9);
        assert!((wrong.wrong() - 48.0).abs() < 1e-9);
        assert!((wrong.split_deviation() - 1.369).abs() < 1e-3);
        let right = reading(times(735e6, 245e6, 1e9));
        assert!(right.wrong() < 1e-9 && right.misses(None, true).is_empty());
    }

    #[test]
    fn goals_are_missed_beyond_their_tolerance() {
        let missed =
            |profile, perf, is_judged| reading(profile).misses(Some(&reading(perf)), is_judged);
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
        let mut between = reading(truth);
        between.between = Some(0.03);
        assert_eq!(between.misses(None, false), ["between"]);
        assert_eq!(missed(Times::default(), truth, true).len(), 4);
    }

    #[test]
    fn rounds_are_summed_in_their_cells() {
        let one = reading(times(700e6, 280e6, 1e9));
        let empty = reading(Times::default());
        let cells = Cells::from([
            ((0, "quiet", 0, "ours"), vec![one, one]),
            ((0, "quiet", 1, "ours"), vec![one]),
            ((0, "quiet", 2, "ours"), vec![empty]),
        ]);
        assert_eq!(sum(&cells[&(0, "quiet", 0, "ours")]).truth.all, 2e9);
        let mean = |profiler, round| mean(&cells, profiler, round, Reading::wrong);
        assert!(mean("ours", 1).is_some_and(f64::is_finite));
        assert_eq!((mean("ours", 2), mean("perf", 0)), (None, None));
        assert_eq!(judge(&cells, true).len(), 3);
    }
}
