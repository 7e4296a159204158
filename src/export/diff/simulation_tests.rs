//! Compares simulated profiles, whose functions' costs are known.

use super::*;
use crate::export::options::{ExportOptions, SampleWeight};
use crate::export::test_profile::TestProfile;
use crate::model::{ProfileModel, StackId};
use crate::util::ProgressLogger;

const FUNCTIONS: usize = 40;
const SAMPLES: usize = 10_000;

/// Numbers by SplitMix64 (Steele, Lea and Flood, Fast Splittable Pseudorandom Number Generators).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut number = self.0;
        number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        number ^ (number >> 31)
    }

    /// Returns a number from 0 to 1.
    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn exponential(&mut self) -> f64 {
        -(1.0 - self.unit()).ln()
    }
}

/// A program that calls its functions at random.
#[derive(Clone)]
struct Program {
    /// How often each function is called.
    calls: Vec<f64>,
    /// Average time of a call, in samples.
    lengths: Vec<f64>,
}

impl Program {
    /// Returns a program of a few functions with much time and many with little, as most are.
    fn random(random: &mut Random, mean_length: f64) -> Self {
        let calls = (0..FUNCTIONS).map(|_| random.exponential().powi(2) + 0.01);
        let calls = calls.collect();
        let lengths = (0..FUNCTIONS).map(|_| mean_length * (0.5 + random.unit()));
        let lengths = lengths.collect();
        Self { calls, lengths }
    }

    fn share(&self, function: usize) -> f64 {
        let time = |at: usize| self.calls[at] * self.lengths[at];
        time(function) / (0..FUNCTIONS).map(time).sum::<f64>()
    }

    /// Returns the profile of a run. Every second function is called by `left`, the others by
    /// `right`, and both by `main`.
    fn profile(&self, random: &mut Random, samples: usize) -> ProfileModel {
        let mut test = TestProfile::new(1_000_000);
        let thread = test.thread("main");
        let stacks: Vec<Option<StackId>> = (0..FUNCTIONS)
            .map(|function| {
                let side = if function % 2 == 0 { "left" } else { "right" };
                test.stack(&["main", side, &format!("f{function}::h0123456789abcdef")])
            })
            .collect();
        let all: f64 = self.calls.iter().sum();
        let (mut now, mut written) = (0.0, 0);
        while written < samples {
            let mut drawn = random.unit() * all;
            let function = self.calls.iter().position(|calls| {
                drawn -= calls;
                drawn < 0.0
            });
            let function = function.unwrap_or(FUNCTIONS - 1);
            now += self.lengths[function] * random.exponential();
            while written < samples && (written as f64) < now {
                test.sample_of(thread, stacks[function], None);
                written += 1;
            }
        }
        test.profile
    }
}

fn diff_of(before: &ProfileModel, after: &ProfileModel, options: &DiffOptions) -> Diff {
    compare(before, after, options, &ProgressLogger::unwatched()).expect("both have samples")
}

/// Returns the number of comparisons of a program with itself that show a change.
fn false_alarms(comparisons: u64, mean_length: f64, seed: u64) -> usize {
    let is_alarm = |number: &u64| {
        let mut random = Random(seed + number);
        let program = Program::random(&mut random, mean_length);
        let before = program.profile(&mut random, SAMPLES);
        let after = program.profile(&mut random, SAMPLES);
        // Without the allowance for what differs from run to run: the simulation has no such part.
        let options = DiffOptions {
            run_to_run: 0.0,
            ..DiffOptions::default()
        };
        let diff = diff_of(&before, &after, &options);
        let rows = diff.own.iter().chain(&diff.total);
        rows.into_iter().any(|row| row.verdict != Verdict::Unclear)
    };
    (0..comparisons).filter(is_alarm).count()
}

#[test]
fn diff_of_a_program_with_itself_shows_no_change() {
    let alarms = false_alarms(200, 1.5, 1_000);
    assert!(alarms <= 2, "{alarms} of 200");
}

#[test]
fn diff_with_long_calls_shows_no_change() {
    // 40 samples of a call say little more than one. Their number alone would raise an alarm in
    // nearly every comparison.
    let alarms = false_alarms(50, 40.0, 5_000);
    assert!(alarms <= 1, "{alarms} of 50");
}

/// Makes a function of 100 programs slower by 30 %. Returns in how many comparisons the function
/// comes first, and in how many it is surely slower.
///
/// The function has at least the share `min_share`: the noise of 10,000 samples hides a change of
/// rare functions.
fn regressions_found(mean_length: f64, min_share: f64) -> (usize, usize) {
    let (mut named, mut sure) = (0, 0);
    for number in 0..100 {
        let mut random = Random(9_000 + number);
        let (program, culprit) = loop {
            let program = Program::random(&mut random, mean_length);
            let is_heavy = |at: &usize| program.share(*at) >= min_share;
            let heavy: Vec<usize> = (0..FUNCTIONS).filter(is_heavy).collect();
            if let Some(&culprit) = heavy.get(random.next() as usize % heavy.len().max(1)) {
                break (program, culprit);
            }
        };
        let mut slower = program.clone();
        slower.calls[culprit] *= 1.3;
        let before = program.profile(&mut random, SAMPLES);
        let after = slower.profile(&mut random, SAMPLES);
        let diff = diff_of(&before, &after, &DiffOptions::default());
        let first = &diff.own[0];
        if first.name == format!("f{culprit}") && first.after > first.before {
            named += 1;
            sure += usize::from(first.verdict == Verdict::Slower && diff.is_regression());
        }
    }
    (named, sure)
}

#[test]
fn diff_names_the_slower_function_first() {
    let (named, sure) = regressions_found(1.0, 0.08);
    assert!(
        named >= 90 && sure >= 40,
        "{named} of 100 named, {sure} surely"
    );
}

/// Returns the programs before and after, with a function of 30 % whose cost is multiplied.
fn changed(factor: f64) -> (ProfileModel, ProfileModel) {
    let mut program = Program {
        calls: vec![1.0; FUNCTIONS],
        lengths: vec![1.0; FUNCTIONS],
    };
    program.calls[7] = 0.3 / 0.7 * (FUNCTIONS - 1) as f64;
    let before = program.profile(&mut Random(1), 40_000);
    program.calls[7] *= factor;
    (before, program.profile(&mut Random(2), 40_000))
}

#[test]
fn functions_beside_a_faster_one_are_not_slower() {
    let (before, after) = changed(0.4);
    let diff = diff_of(&before, &after, &DiffOptions::default());
    assert_eq!(
        (diff.own[0].name.as_str(), diff.own[0].verdict),
        ("f7", Verdict::Faster)
    );
    assert!(
        diff.own.iter().all(|row| row.verdict != Verdict::Slower),
        "{:?}",
        diff.own
    );
    assert!(diff.own.iter().any(|row| row.verdict == Verdict::Moved));
    assert!(!diff.is_regression());
}

#[test]
fn regression_depends_on_the_threshold() {
    let (before, after) = changed(1.5);
    let with = |threshold| DiffOptions {
        threshold,
        ..DiffOptions::default()
    };
    // The share grows from 30 to 39 points.
    assert!(diff_of(&before, &after, &with(0.03)).is_regression());
    assert!(!diff_of(&before, &after, &with(0.12)).is_regression());
    assert!(!diff_of(&before, &before, &with(0.0)).is_regression());
}

/// Adds this many markers, at equal distances.
fn add_work(profile: &mut ProfileModel, units: i64) {
    let name = profile.intern("request");
    let end_ns = profile.threads[0].samples.len() as i64 * 1_000_000;
    for unit in 0..units {
        let time_ns = end_ns * unit / units;
        profile.threads[0].markers.push(crate::model::Marker {
            name,
            phase: crate::model::MarkerPhase::Instant,
            start_ns: Some(time_ns),
            end_ns: None,
            category: 0,
            payload: None,
        });
    }
}

#[test]
fn time_per_unit_of_work_shows_what_shares_hide() {
    let (mut before, mut after) = changed(1.0);
    let options = DiffOptions {
        unit_of_work: Some("request".to_owned()),
        ..DiffOptions::default()
    };
    let error = compare(&before, &after, &options, &ProgressLogger::unwatched());
    let error = error.expect_err("no work").to_string();
    assert_eq!(
        error,
        "cannot compare by unit of work: got no marker \"request\" in the first profile, expected \
         at least one"
    );
    add_work(&mut before, 2_000);
    add_work(&mut after, 1_000);
    let diff = diff_of(&before, &after, &options);
    // All is slower by half, and the shares are the same.
    assert_eq!(
        (diff.own[0].name.as_str(), diff.own[0].verdict),
        ("f7", Verdict::Slower)
    );
    assert!((diff.own[0].before - 6e6).abs() < 3e5, "{:?}", diff.own[0]);
    assert!((diff.own[0].after - 12e6).abs() < 6e5, "{:?}", diff.own[0]);
    assert!(!diff_of(&before, &after, &DiffOptions::default()).is_regression());
}

#[test]
fn weights_are_cpu_times_only_if_both_profiles_have_them() {
    let of = |wait: bool, has_cpu: bool| {
        let mut test = TestProfile::new(1_000_000);
        test.profile.meta.has_cpu_deltas = has_cpu;
        let thread = test.thread("main");
        for number in 0..6_400 {
            let is_waiting = wait && number % 2 == 0;
            let name = if is_waiting { "wait" } else { "work" };
            test.sample(
                thread,
                &["main", name],
                has_cpu.then_some(u64::from(!is_waiting)),
            );
        }
        test.profile
    };
    let options = DiffOptions {
        export: ExportOptions {
            weight: SampleWeight::Cpu,
            ..ExportOptions::default()
        },
        ..DiffOptions::default()
    };
    assert_eq!(
        diff_of(&of(false, true), &of(true, true), &options).own[0].verdict,
        Verdict::Unclear
    );
    let by_samples = diff_of(&of(false, true), &of(true, false), &options);
    assert_eq!(by_samples.own[0].name, "wait");
    assert_eq!(by_samples.own[0].verdict, Verdict::Slower);
}

#[test]
fn profile_without_time_is_an_error() {
    let (before, _) = changed(1.0);
    let empty = TestProfile::new(1).profile;
    let error = compare(
        &before,
        &empty,
        &DiffOptions::default(),
        &ProgressLogger::unwatched(),
    );
    assert_eq!(
        error.expect_err("no samples").to_string(),
        "cannot compare profiles: got no sampled time in the second one, expected some"
    );
}

#[test]
fn text_without_a_regression_has_the_widest_band() {
    let (before, after) = changed(1.0);
    let diff = diff_of(&before, &after, &DiffOptions::default());
    let mut bands: Vec<f64> = diff.own.iter().map(|row| row.band * 100.0).collect();
    bands.sort_by(f64::total_cmp);
    assert!(bands[0] < bands[bands.len() - 1], "{bands:?}");
    let widest = format!(" ±{:.2}%\n", bands[bands.len() - 1]);
    let text = diff.text();
    let verdict = text.split_once("\nverdict   no regression; ");
    let (_, verdict) = verdict.unwrap_or_else(|| panic!("{text}"));
    let (end, _) = verdict.split_once('#').expect("a table");
    assert!(end.trim_end().ends_with(widest.trim()), "{end}");
}

#[test]
fn text_and_json_have_all_columns() {
    let (before, after) = changed(1.5);
    let diff = diff_of(&before, &after, &DiffOptions::default());
    let text = diff.text();
    assert!(text.contains("\nverdict   regression: f7\n"), "{text}");
    let (_, table) = text.split_once("# self time\n").expect("a table");
    let first: Vec<&str> = table
        .lines()
        .nth(1)
        .expect("a row")
        .split_whitespace()
        .collect();
    let [verdict, before, after, change, band, function, library] = first[..] else {
        panic!("{first:?}")
    };
    assert_eq!((verdict, function, library), ("slower", "f7", "app"));
    let number = |text: &str| -> f64 {
        text.trim_matches(['±', '+', '%'])
            .parse()
            .expect("a number")
    };
    assert!(
        (number(after) - number(before) - number(change)).abs() < 0.02,
        "{first:?}"
    );
    assert!(
        number(band) > 0.0 && number(band) < number(change),
        "{first:?}"
    );
    assert!(text.contains(" more functions)"));
    let mut json = Vec::new();
    diff.write_json(&mut json).expect("a vector never fails");
    let json: serde_json::Value = serde_json::from_slice(&json).expect("JSON");
    assert_eq!(json["isRegression"], true);
    assert_eq!(json["self"][0]["function"], "f7");
    assert_eq!(json["self"].as_array().expect("rows").len(), diff.own.len());
    assert_eq!(json["total"][0]["verdict"], "grew");
}
