//! A measurement: its description, and the figures of its arms while it runs.
//!
//! A measurement has two functions. `measure` runs in the parent: it starts the runs of all arms in
//! turn. `part` runs in a process of its own, and returns figures by the names of their arms.

use std::error::Error;
use std::fmt::Display;
use std::str::FromStr;
use std::time::Duration;

use serde_json::Value;

use crate::report::{Arm, Report};
use crate::{child, machine};

pub(crate) type Fallible<T> = Result<T, Box<dyn Error>>;

/// The sampling interval of most measurements: 1,000 Hz.
pub(crate) const INTERVAL: Duration = Duration::from_millis(1);

pub(crate) struct Measurement {
    pub(crate) name: &'static str,
    /// What the figures are.
    pub(crate) unit: &'static str,
    pub(crate) goal: &'static str,
    /// The arm with the figure that is compared with those of the peers.
    pub(crate) ours: &'static str,
    /// Names of the peers' arms. All remaining arms are further figures.
    pub(crate) peers: &'static [&'static str],
    /// The arm without a profiler, or nothing.
    pub(crate) floor: &'static str,
    /// Returns the better of two figures.
    pub(crate) better: fn(f64, f64) -> f64,
    pub(crate) is_met: fn(&Study) -> bool,
    /// Numbers of rounds: of a quick measurement, and of a full one.
    pub(crate) rounds: [usize; 2],
    /// What the parts get after the arm's name, likewise: how much to do.
    pub(crate) sizes: [&'static [u64]; 2],
    /// What the sizes are numbers of.
    pub(crate) size_names: &'static [&'static str],
    /// The arms with a process of their own in each round, for the usual `measure`.
    pub(crate) arms: &'static [&'static str],
    pub(crate) measure: fn(&mut Study) -> Fallible<()>,
    pub(crate) part: fn(&Arguments) -> Fallible<Value>,
    /// Maximum time of a run, far above what any takes: a peer that hangs in its signal handler
    /// must not hang the parent.
    pub(crate) timeout: Duration,
}

impl Measurement {
    pub(crate) const NEW: Self = Self {
        name: "",
        unit: "",
        goal: "",
        ours: "ours",
        peers: &[],
        floor: "",
        better: f64::min,
        is_met: |_| true,
        rounds: [1; 2],
        sizes: [&[]; 2],
        size_names: &[],
        arms: &["ours"],
        measure: Study::run_arms,
        part: |_| Err("no part of this measurement runs in a process of its own".into()),
        timeout: Duration::from_secs(60),
    };
    /// For runs that make long recordings.
    pub(crate) const LONG: Self = Self {
        timeout: Duration::from_secs(900),
        ..Self::NEW
    };
}

/// The arguments of a part.
pub(crate) struct Arguments(pub(crate) Vec<String>);

impl Arguments {
    pub(crate) fn text(&self, place: usize) -> Fallible<&str> {
        let argument = self.0.get(place).map(String::as_str);
        argument.ok_or_else(|| format!("a part lacks argument {place}").into())
    }

    pub(crate) fn get<T: FromStr<Err: Error + 'static>>(&self, place: usize) -> Fallible<T> {
        Ok(self.text(place)?.parse()?)
    }

    pub(crate) fn milliseconds(&self, place: usize) -> Fallible<Duration> {
        Ok(Duration::from_millis(self.get(place)?))
    }
}

pub(crate) struct Study {
    measurement: &'static Measurement,
    is_quick: bool,
    /// In the order in which they got their first figures.
    arms: Vec<Arm>,
    notes: Vec<String>,
}

impl Study {
    /// Runs a measurement. A quick one takes less than a minute, for a first look; published figures
    /// are not measured this way.
    pub(crate) fn run_all(measurement: &'static Measurement, is_quick: bool) -> Fallible<Report> {
        let mut study = Self {
            measurement,
            is_quick,
            arms: Vec::new(),
            notes: Vec::new(),
        };
        (measurement.measure)(&mut study)?;
        study.into_report()
    }

    /// Returns the first value in a quick measurement, and the second in a full one.
    pub(crate) fn pick<T>(&self, quick: T, full: T) -> T {
        if self.is_quick { quick } else { full }
    }

    pub(crate) fn note(&mut self, note: impl Into<String>) {
        self.notes.push(note.into());
    }

    /// Adds the figure of a run.
    pub(crate) fn push(&mut self, arm: &str, figure: f64) {
        self.push_to(arm, figure, false);
    }

    fn push_to(&mut self, name: &str, figure: f64, is_detail: bool) {
        let known = self.arms.iter().position(|arm| arm.name == name);
        let place = known.unwrap_or_else(|| {
            let is_compared =
                name == self.measurement.ours || self.measurement.peers.contains(&name);
            let extra = !is_compared && name != self.measurement.floor;
            self.arms.push(Arm {
                name: name.to_owned(),
                runs: Vec::new(),
                extra,
                is_detail,
            });
            self.arms.len() - 1
        });
        self.arms[place].runs.push(figure);
    }

    /// Replaces the runs of an arm by their mean, if the arm exists.
    pub(crate) fn take_mean(&mut self, arm: &str) {
        if let Some(arm) = self.arms.iter_mut().find(|known| known.name == arm) {
            arm.runs = vec![arm.runs.iter().sum::<f64>() / arm.runs.len() as f64];
        }
    }

    /// Returns the median of an arm's runs, or NaN if it has none.
    pub(crate) fn figure(&self, arm: &str) -> f64 {
        let found = self.arms.iter().find(|known| known.name == arm);
        found.map_or(f64::NAN, Arm::figure)
    }

    /// Whether the figures of these arms are at most `goal`.
    pub(crate) fn at_most(&self, arms: &[&str], goal: f64) -> bool {
        arms.iter().all(|arm| self.figure(arm) <= goal)
    }

    /// Runs rounds, and notes how quiet the machine was in each. `about` says what a round is.
    pub(crate) fn rounds(
        &mut self,
        rounds: usize,
        about: impl Display,
        mut round: impl FnMut(&mut Self, usize) -> Fallible<()>,
    ) -> Fallible<()> {
        let load = machine::load_note();
        self.note(format!("{rounds} rounds, interleaved: {about}; {load}"));
        for number in 0..rounds {
            let (result, taken) = machine::watch(|| round(self, number));
            result?;
            self.note(format!(
                "round {}: CPUs used by other processes + the hypervisor: {taken}",
                number + 1
            ));
        }
        Ok(())
    }

    /// Runs each arm once in each round. In each round, another arm comes first.
    pub(crate) fn run_arms(&mut self) -> Fallible<()> {
        let Measurement {
            rounds,
            sizes,
            size_names,
            arms,
            ..
        } = *self.measurement;
        let (rounds, sizes) = self.pick((rounds[0], sizes[0]), (rounds[1], sizes[1]));
        let about = sizes
            .iter()
            .zip(size_names)
            .map(|(size, name)| format!("{size} {name}"));
        let about = about.collect::<Vec<_>>().join(", ");
        let sizes: Vec<&dyn Display> = sizes.iter().map(|size| size as _).collect();
        self.rounds(rounds, about, |study, round| {
            for turn in 0..arms.len() {
                study.run_arm(arms[(round + turn) % arms.len()], &sizes)?;
            }
            Ok(())
        })
    }

    /// Runs an arm, whose name is the first argument of the part. A peer may fail, for instance by
    /// hanging in its signal handler.
    pub(crate) fn run_arm(&mut self, arm: &str, rest: &[&dyn Display]) -> Fallible<()> {
        let arguments = [&[&arm as &dyn Display], rest].concat();
        let answer = child::run(self.measurement.name, &arguments);
        self.add_arm(arm, answer)
    }

    /// Adds the figures of an arm, or a note if a peer failed.
    pub(crate) fn add_arm(&mut self, arm: &str, answer: Fallible<Value>) -> Fallible<()> {
        match answer {
            Ok(answer) => self.add(&answer),
            Err(error) if is_peer(arm) => self.note(format!("cannot measure {arm}: {error}")),
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Adds what a part has answered: one or several figures by the name of their arm; figures
    /// below `also` that are not arms of their own; and a note.
    pub(crate) fn add(&mut self, answer: &Value) {
        self.add_figures(answer, false);
        self.add_figures(&answer["also"], true);
        if let Some(note) = answer["note"].as_str() {
            self.note(note);
        }
    }

    fn add_figures(&mut self, answer: &Value, is_detail: bool) {
        for (arm, figures) in answer.as_object().into_iter().flatten() {
            let several = figures.as_array().into_iter().flatten();
            for figure in several.chain([figures]).filter_map(Value::as_f64) {
                self.push_to(arm, figure, is_detail);
            }
        }
    }

    fn into_report(self) -> Fallible<Report> {
        let measurement = self.measurement;
        let met = (measurement.is_met)(&self);
        let mut arms = self.arms;
        let mut take = |name: &str| {
            let place = arms.iter().position(|arm| arm.name == name);
            place.map(|place| arms.remove(place))
        };
        let ours = take(measurement.ours);
        let floor = take(measurement.floor);
        // The compared arms come first.
        arms.sort_by_key(|arm| arm.extra);
        Ok(Report {
            unit: measurement.unit,
            ours: ours.ok_or_else(|| format!("`{}` has no figure", measurement.ours))?,
            peers: arms,
            floor,
            better: measurement.better,
            goal: measurement.goal,
            met,
            notes: self.notes,
        })
    }
}

/// Whether an arm is another profiler.
fn is_peer(arm: &str) -> bool {
    arm.starts_with("pprof")
}

/// Returns a figure that a part has answered.
pub(crate) fn number(answer: &Value, name: &str) -> Fallible<f64> {
    let number = answer[name].as_f64();
    number.ok_or_else(|| format!("a run's answer lacks the figure `{name}`").into())
}
