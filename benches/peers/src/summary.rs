//! `summary`: whether `Profile::diff` names the function that became slower.
//!
//! A program of 30 real functions (`kernels.rs`) runs on as many threads as there are processors,
//! at most four, until each has used a fixed CPU time, and calls them in a random order. It is
//! sampled every 100 µs, so that a short run has the samples of a usual one. A regression is one
//! function that does 30 % more work in each call. Runs without a change (before) alternate with
//! runs with a regression (after). Each run is a process of its own, so runs differ as those of a
//! program do, by their layout in memory and by what else the machine does.
//!
//! `ours` is the share of 100 regressions whose function comes first in the comparison by self
//! time, and grew. They are in the ten functions that are called often, so each has 4 to 8 % of the
//! time. `called_slower` is the share of them that are also called surely slower. `seldom_called`
//! has regressions of the other functions, with 1 to 4 %: here a change of 30 % may be within the
//! noise of the samples.
//!
//! These profiles have the names of symbol tables. `in_full` compares the same runs with all debug
//! information, where the self time of an inlined function is its own. The functions call iterators
//! and operators of the standard library, which are inlined, and shared by all functions then.
//!
//! `false_alarms` is the share of comparisons of two runs without a change that call any function
//! changed, by self time or by total time. `Profile::diff` promises at most 1 %.

use std::error::Error;
use std::path::PathBuf;
use std::time::Duration;

use gekkota::profile::{SnapshotOptions, Symbolicate};
use gekkota::{AutoProfilerInit, Profile, ProfilerSession, StartParams, ThreadGuard};
use serde_json::{Value, json};

use crate::kernels::{KERNELS, ROUNDS, run_for};
use crate::machine::{self, load_note};
use crate::profile::count;
use crate::report::{Arm, Report};
use crate::{Effort, Outcome, child};

const INTERVAL: Duration = Duration::from_micros(100);
/// CPU time of each thread: with the interval above, 8,000 samples.
const CPU_TIME: Duration = Duration::from_millis(800);
const REGRESSIONS: usize = 100;
const SELDOM_REGRESSIONS: usize = 20;
const QUICK_REGRESSIONS: usize = 8;
const SLOWER_ROUNDS: u64 = ROUNDS + ROUNDS * 3 / 10;
/// The calls of a function that is called often.
const OFTEN: u64 = 4;
const GOAL_NAMED: f64 = 0.9;
const GOAL_FALSE_ALARMS: f64 = 0.01;

pub(crate) fn measure(effort: Effort) -> Outcome {
    let (often, seldom) = if effort.quick {
        (QUICK_REGRESSIONS, 0)
    } else {
        (REGRESSIONS, SELDOM_REGRESSIONS)
    };
    let numbers = |is_often: bool| {
        let all = 0..KERNELS.len();
        all.filter(move |&number| (KERNELS[number].calls == OFTEN) == is_often)
    };
    let culprits = numbers(true).cycle().take(often);
    let culprits = culprits.chain(numbers(false).cycle().take(seldom));
    let mut results = Results::default();
    let (measured, taken) = machine::watch(|| -> Result<(), Box<dyn Error>> {
        let mut last: Option<Run> = None;
        for (turn, culprit) in culprits.enumerate() {
            let before = Run::record(2 * turn as u64, None)?;
            let after = Run::record(2 * turn as u64 + 1, Some(culprit))?;
            if let Some(last) = &last {
                results.add_unchanged(last, &before)?;
            }
            results.add_regression(culprit, &before, &after)?;
            last = Some(before);
        }
        Ok(())
    });
    measured?;
    let mut notes = vec![format!(
        "{often} regressions in functions that are called often, {seldom} in others, {} comparisons without a change; each \
         run {CPU_TIME:?} of each thread, {:.0} samples on average; CPUs used by other processes + the hypervisor: {taken}; {}",
        results.unchanged,
        results.samples as f64 / results.runs.max(1) as f64,
        load_note()
    )];
    notes.push(format!(
        "the functions of the regressions had {:.1} to {:.1} % of the time",
        results.least_share * 100.0,
        results.greatest_share * 100.0
    ));
    notes.append(&mut results.misses);
    let arms = [
        ("called_slower", results.often.slower()),
        ("in_full", results.in_full.first()),
        ("seldom_called", results.seldom.first()),
        (
            "false_alarms",
            results.alarms as f64 / results.unchanged as f64,
        ),
        (
            "false_alarms_in_full",
            results.alarms_in_full as f64 / results.unchanged as f64,
        ),
    ];
    let ours = Arm {
        runs: vec![results.often.first()],
        ..Arm::new("ours")
    };
    let peers = arms.map(|(name, figure)| Arm {
        runs: vec![figure],
        ..Arm::extra(name)
    });
    let met = ours.figure() >= GOAL_NAMED && peers[3].figure() <= GOAL_FALSE_ALARMS;
    Ok(Report {
        unit: "share of regressions whose function is named first",
        ours,
        peers: peers.into(),
        floor: None,
        better: f64::max,
        goal: "ours >= 0.9, and false_alarms <= 0.01",
        met,
        notes,
    })
}

/// A run's profile, with the names of symbol tables and in full.
struct Run {
    names: Profile,
    in_full: Profile,
    samples: u64,
}

/// How a run's profile is saved.
const FILES: [(&str, Symbolicate); 2] = [
    ("names", Symbolicate::NamesOnly),
    ("full", Symbolicate::Full),
];

impl Run {
    /// Records a run, in which the function with this number may be slower.
    fn record(seed: u64, slower: Option<usize>) -> Result<Self, Box<dyn Error>> {
        let slower = slower.map_or_else(|| "none".to_owned(), |number| number.to_string());
        let name = format!("gekkota-peers-summary-{}", std::process::id());
        let base = std::env::temp_dir().join(name);
        let arguments = [
            seed.to_string(),
            slower,
            base.to_string_lossy().into_owned(),
        ];
        let run = child::run("summary", &arguments);
        let read = |(end, _): (&str, Symbolicate)| {
            let path = base.with_extension(format!("{end}.json"));
            let profile = Profile::read(&path);
            // A run that failed has left none.
            let _ = std::fs::remove_file(&path);
            profile
        };
        let [names, in_full] = FILES.map(read);
        let run = run?;
        Ok(Self {
            names: names?,
            in_full: in_full?,
            samples: run["samples"].as_u64().unwrap_or(0),
        })
    }
}

/// What the comparisons said.
struct Results {
    often: Named,
    seldom: Named,
    in_full: Named,
    unchanged: usize,
    alarms: usize,
    alarms_in_full: usize,
    least_share: f64,
    greatest_share: f64,
    samples: u64,
    runs: u64,
    /// What was said instead, and what was called changed without a change.
    misses: Vec<String>,
}

impl Default for Results {
    fn default() -> Self {
        Self {
            often: Named::default(),
            seldom: Named::default(),
            in_full: Named::default(),
            unchanged: 0,
            alarms: 0,
            alarms_in_full: 0,
            least_share: 1.0,
            greatest_share: 0.0,
            samples: 0,
            runs: 0,
            misses: Vec::new(),
        }
    }
}

impl Results {
    fn add_regression(
        &mut self,
        culprit: usize,
        before: &Run,
        after: &Run,
    ) -> Result<(), Box<dyn Error>> {
        let kernel = &KERNELS[culprit];
        let is_often = kernel.calls == OFTEN;
        let diff = Difference::of(&before.names, &after.names)?;
        let named = if is_often {
            &mut self.often
        } else {
            &mut self.seldom
        };
        if let Some(instead) = named.add(&diff, kernel.name)
            && is_often
        {
            self.misses.push(instead);
        }
        if is_often {
            let share = diff.share_before(kernel.name);
            self.least_share = self.least_share.min(share);
            self.greatest_share = self.greatest_share.max(share);
            let diff = Difference::of(&before.in_full, &after.in_full)?;
            let instead = self.in_full.add(&diff, kernel.name);
            self.misses
                .extend(instead.map(|instead| format!("in full: {instead}")));
        }
        self.samples += before.samples + after.samples;
        self.runs += 2;
        Ok(())
    }

    fn add_unchanged(&mut self, one: &Run, other: &Run) -> Result<(), Box<dyn Error>> {
        self.unchanged += 1;
        let changed = Difference::of(&one.names, &other.names)?.changed();
        self.alarms += usize::from(!changed.is_empty());
        if !changed.is_empty() {
            self.misses
                .push(format!("false alarm: {}", changed.join("; ")));
        }
        let changed = Difference::of(&one.in_full, &other.in_full)?.changed();
        self.alarms_in_full += usize::from(!changed.is_empty());
        if !changed.is_empty() {
            self.misses
                .push(format!("false alarm in full: {}", changed.join("; ")));
        }
        Ok(())
    }
}

/// How often the culprit came first.
#[derive(Default)]
struct Named {
    all: usize,
    first: usize,
    slower: usize,
}

impl Named {
    /// Adds a comparison. Returns what it names first instead of the culprit.
    fn add(&mut self, diff: &Difference, culprit: &str) -> Option<String> {
        self.all += 1;
        let first = &diff.0["self"][0];
        let number = |key: &str| first[key].as_f64().unwrap_or(0.0);
        let grew = number("after") > number("before");
        if first["function"] == culprit && grew {
            self.first += 1;
            self.slower += usize::from(first["verdict"] == "slower");
            return None;
        }
        Some(format!("{culprit}: first is {}", row_text(first)))
    }

    fn first(&self) -> f64 {
        self.first as f64 / self.all as f64
    }

    fn slower(&self) -> f64 {
        self.slower as f64 / self.all as f64
    }
}

/// The difference of two profiles, as JSON.
struct Difference(Value);

impl Difference {
    fn of(before: &Profile, after: &Profile) -> Result<Self, Box<dyn Error>> {
        let mut text = Vec::new();
        before.diff(after)?.write_json(&mut text)?;
        Ok(Self(serde_json::from_slice(&text)?))
    }

    fn rows(&self, table: &str) -> impl Iterator<Item = &Value> {
        self.0[table].as_array().into_iter().flatten()
    }

    fn share_before(&self, function: &str) -> f64 {
        let row = self.rows("self").find(|row| row["function"] == function);
        let number = |value: &Value| value.as_f64().unwrap_or(f64::NAN);
        row.map_or(f64::NAN, |row| {
            number(&row["before"]) / number(&self.0["all"]["before"])
        })
    }

    /// Returns the rows of the functions that surely changed.
    fn changed(&self) -> Vec<String> {
        let rows = self.rows("self").chain(self.rows("total"));
        let changed = rows.filter(|row| row["verdict"] != "unclear");
        changed.map(row_text).collect()
    }
}

fn row_text(row: &Value) -> String {
    let number = |key: &str| row[key].as_f64().unwrap_or(f64::NAN) / 1e6;
    format!(
        "{} {} from {:.2} to {:.2} ms a second, band ± {:.2}",
        row["function"].as_str().unwrap_or("(none)"),
        row["verdict"].as_str().unwrap_or_default(),
        number("before"),
        number("after"),
        number("band")
    )
}

/// Records one run in the child process. Arguments: a seed, the number of the slower function or
/// `none`, and the path of the files without their endings.
pub(crate) fn run_part(arguments: &[String]) -> Result<Value, Box<dyn Error>> {
    let [seed, slower, base] = arguments else {
        return Err("expected a seed, a function and a path".into());
    };
    let seed: u64 = seed.parse()?;
    let slower = match slower.as_str() {
        "none" => None,
        number => Some((number.parse()?, SLOWER_ROUNDS)),
    };
    let threads = std::thread::available_parallelism()
        .map_or(2, usize::from)
        .min(4) as u64;
    let _profiler = AutoProfilerInit::new();
    let params = StartParams::default()
        .interval(INTERVAL)
        .filters(["kernels"]);
    let session = ProfilerSession::start(params)?;
    std::thread::scope(|scope| {
        for thread in 0..threads {
            scope.spawn(move || {
                let _registered = ThreadGuard::register("kernels");
                run_for(
                    CPU_TIME.as_nanos() as u64,
                    (seed * threads + thread + 1) << 20,
                    slower,
                )
            });
        }
    });
    let profile = session.finish()?;
    for (ending, symbolicate) in FILES {
        let path = PathBuf::from(base).with_extension(format!("{ending}.json"));
        let options = SnapshotOptions::default().symbolicate(symbolicate);
        profile.save_with(path, &options)?;
    }
    Ok(json!({"samples": count(&profile, "captured_samples")}))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn difference(function: &str, before: f64, after: f64, verdict: &str) -> Difference {
        let [before, after] = [before * 1e9, after * 1e9];
        Difference(json!({
            "all": {"before": 1e9, "after": 1e9, "change": 0.0, "band": 1e7},
            "self": [{"function": function, "before": before, "after": after, "band": 1e7, "verdict": verdict}],
            "total": [{"function": "main", "before": 1e9, "after": 1e9, "band": 1e7, "verdict": "unclear"}],
        }))
    }

    #[test]
    fn only_a_culprit_that_grew_is_named() {
        let mut named = Named::default();
        assert!(
            named
                .add(&difference("a", 0.1, 0.2, "slower"), "a")
                .is_none()
        );
        assert!(
            named
                .add(&difference("a", 0.1, 0.2, "unclear"), "a")
                .is_none()
        );
        assert!(
            named
                .add(&difference("a", 0.2, 0.1, "faster"), "a")
                .is_some()
        );
        let instead = named
            .add(&difference("a", 0.1, 0.2, "slower"), "b")
            .expect("a miss");
        assert_eq!(
            instead,
            "b: first is a slower from 100.00 to 200.00 ms a second, band ± 10.00"
        );
        assert_eq!((named.first(), named.slower()), (0.5, 0.25));
    }

    #[test]
    fn changed_lists_sure_changes_only() {
        assert!(difference("a", 0.1, 0.1, "unclear").changed().is_empty());
        let diff = difference("a", 0.1, 0.2, "moved");
        assert_eq!(diff.changed().len(), 1);
        assert_eq!(diff.share_before("a"), 0.1);
    }
}
