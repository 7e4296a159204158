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
//! time. `seldom_called`
//! has regressions of the other functions, with 1 to 4 %: here a change of 30 % may be within the
//! noise of the samples.
//!
//! These profiles have the names of symbol tables. `in_full` compares the same runs with all debug
//! information, where the self time of an inlined function is its own. The functions call iterators
//! and operators of the standard library, which are inlined, and shared by all functions then.
//!
//! `false_alarms` is the share of comparisons of two runs without a change that call any function
//! changed, by self time or by total time. `Profile::diff` promises at most 1 %.

use gekkota::profile::{SnapshotOptions, Symbolicate};
use gekkota::{AutoProfilerInit, Profile};

use crate::kernels::{KERNELS, ROUNDS, run_for};
use crate::prelude::*;

const INTERVAL: Duration = Duration::from_micros(100);
/// CPU time of each thread: with the interval above, 8,000 samples.
const CPU_TIME: Duration = Duration::from_millis(800);
const SLOWER_ROUNDS: u64 = ROUNDS + ROUNDS * 3 / 10;
/// The calls of a function that is called often.
const OFTEN: u64 = 4;

pub(crate) const MEASUREMENT: Measurement = Measurement {
    name: "summary",
    unit: "share of regressions whose function is named first",
    goal: "ours >= 0.9, and false_alarms <= 0.01",
    better: f64::max,
    is_met: |study| study.figure("ours") >= 0.9 && study.at_most(&["false_alarms"], 0.01),
    measure,
    part: run,
    ..Measurement::NEW
};

fn measure(study: &mut Study) -> Fallible<()> {
    let (often, seldom) = study.pick((8, 0), (100, 20));
    let numbers = |is_often: bool| {
        let all = 0..KERNELS.len();
        all.filter(move |&number| (KERNELS[number].calls == OFTEN) == is_often)
    };
    let culprits = numbers(true).cycle().take(often);
    let culprits = culprits.chain(numbers(false).cycle().take(seldom));
    let about = format!(
        "{often} regressions in functions that are called often, {seldom} in others; {CPU_TIME:?} of each thread"
    );
    study.rounds(1, about, |study, _| {
        let mut last: Option<Run> = None;
        for (turn, culprit) in culprits.clone().enumerate() {
            let before = Run::record(2 * turn, None)?;
            let after = Run::record(2 * turn + 1, Some(culprit))?;
            if let Some(last) = &last {
                let changed = Difference::of(&last.names, &before.names)?.changed();
                study.push("false_alarms", f64::from(u8::from(!changed.is_empty())));
                if !changed.is_empty() {
                    study.note(format!("false alarm: {}", changed.join("; ")));
                }
            }
            let kernel = &KERNELS[culprit];
            let kinds = match kernel.calls == OFTEN {
                true => &["ours", "in_full"][..],
                false => &["seldom_called"],
            };
            for kind in kinds {
                let diff = match *kind {
                    "in_full" => Difference::of(&before.in_full, &after.in_full)?,
                    _ => Difference::of(&before.names, &after.names)?,
                };
                let named = diff.names(kernel.name);
                study.push(kind, f64::from(u8::from(named.is_ok())));
                if let Err(instead) = named {
                    study.note(format!("{kind}: {instead}"));
                }
            }
            last = Some(before);
        }
        Ok(())
    })?;
    for arm in ["ours", "in_full", "seldom_called", "false_alarms"] {
        study.take_mean(arm);
    }
    Ok(())
}

/// A run's profile, with the names of symbol tables and in full.
struct Run {
    names: Profile,
    in_full: Profile,
}

/// How a run's profile is saved.
const FILES: [Symbolicate; 2] = [Symbolicate::NamesOnly, Symbolicate::Full];

impl Run {
    /// Records a run, in which the function with this number may be slower.
    fn record(seed: usize, slower: Option<usize>) -> Fallible<Self> {
        let slower = slower.map_or(-1, |number| number as i64);
        let files = FILES.map(|_| Temporary::new(".json"));
        let [names, in_full] = files.each_ref().map(|file| file.display());
        child::run("summary", &[&seed, &slower, &names, &in_full])?;
        let [names, in_full] = files.map(|file| Profile::read(&*file));
        Ok(Self {
            names: names?,
            in_full: in_full?,
        })
    }
}

/// The difference of two profiles, as JSON.
struct Difference(Value);

impl Difference {
    fn of(before: &Profile, after: &Profile) -> Fallible<Self> {
        let mut text = Vec::new();
        before.diff(after)?.write_json(&mut text)?;
        Ok(Self(serde_json::from_slice(&text)?))
    }

    fn rows(&self, table: &str) -> impl Iterator<Item = &Value> {
        self.0[table].as_array().into_iter().flatten()
    }

    /// Whether the culprit comes first, and grew. If not, returns what comes first instead.
    fn names(&self, culprit: &str) -> Result<(), String> {
        let first = &self.0["self"][0];
        let number = |key: &str| first[key].as_f64().unwrap_or(0.0);
        match first["function"] == culprit && number("after") > number("before") {
            true => Ok(()),
            false => Err(format!("{culprit}: first is {}", row_text(first))),
        }
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

/// Records one run. Arguments: a seed, the number of the slower function or -1, and the files for the
/// profile with the names of symbol tables and in full.
fn run(arguments: &Arguments) -> Fallible<Value> {
    let (seed, slower): (u64, i64) = (arguments.get(0)?, arguments.get(1)?);
    let slower = usize::try_from(slower)
        .ok()
        .map(|number| (number, SLOWER_ROUNDS));
    let processors = std::thread::available_parallelism().map_or(2, usize::from);
    let threads = processors.min(4) as u64;
    let _profiler = AutoProfilerInit::new();
    let params = StartParams::default()
        .interval(INTERVAL)
        .filters(["kernels"]);
    let session = ProfilerSession::start(params)?;
    std::thread::scope(|scope| {
        for thread in 0..threads {
            scope.spawn(move || {
                let _registered = ThreadGuard::register("kernels");
                let seed = (seed * threads + thread + 1) << 20;
                run_for(CPU_TIME.as_nanos() as u64, seed, slower)
            });
        }
    });
    let profile = session.finish()?;
    for (place, symbolicate) in (2..).zip(FILES) {
        let options = SnapshotOptions::default().symbolicate(symbolicate);
        profile.save_with(arguments.text(place)?, &options)?;
    }
    Ok(json!({}))
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
        assert!(difference("a", 0.1, 0.2, "slower").names("a").is_ok());
        assert!(difference("a", 0.1, 0.2, "unclear").names("a").is_ok());
        assert!(difference("a", 0.2, 0.1, "faster").names("a").is_err());
        assert_eq!(
            difference("a", 0.1, 0.2, "slower")
                .names("b")
                .expect_err("a miss"),
            "b: first is a slower from 100.00 to 200.00 ms a second, band ± 10.00"
        );
    }

    #[test]
    fn changed_lists_sure_changes_only() {
        assert!(difference("a", 0.1, 0.1, "unclear").changed().is_empty());
        let diff = difference("a", 0.1, 0.2, "moved");
        assert_eq!(diff.changed().len(), 1);
    }
}
