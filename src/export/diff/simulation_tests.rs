//! Compares simulated profiles, whose functions' costs are known.

use super::*;
use crate::export::diff::report::DiffRow;
use crate::export::options::{ExportOptions, SampleWeight};
use crate::export::summary::time_text;
use crate::export::test_profile::TestProfile;
use crate::model::{ProfileModel, StackId};

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

    /// Every second function is called by `left`, the others by `right`, and both by `main`.
    fn stacks(&self, test: &mut TestProfile) -> Vec<Option<StackId>> {
        let stack = |function| {
            let side = if function % 2 == 0 { "left" } else { "right" };
            test.stack(&["main", side, &format!("f{function}::h0123456789abcdef")])
        };
        (0..FUNCTIONS).map(stack).collect()
    }

    /// Draws a call: the function, and the time.
    fn call(&self, random: &mut Random) -> (usize, f64) {
        let all: f64 = self.calls.iter().sum();
        let mut drawn = random.unit() * all;
        let function = self.calls.iter().position(|calls| {
            drawn -= calls;
            drawn < 0.0
        });
        let function = function.unwrap_or(FUNCTIONS - 1);
        (function, self.lengths[function] * random.exponential())
    }

    /// Returns the profile of a run that always works, without CPU times.
    fn profile(&self, random: &mut Random, samples: usize) -> ProfileModel {
        let mut recording = Recording::new(false, samples);
        let stacks = self.stacks(&mut recording.test);
        while recording.now < samples as f64 {
            let (function, length) = self.call(random);
            recording.pass(length, stacks[function], true);
        }
        recording.test.profile
    }

    /// Returns the profile of a run that handles requests as they come, each by three calls, and
    /// waits for the next one. Each request has a marker.
    fn paced(&self, random: &mut Random, samples: usize) -> ProfileModel {
        /// Average time between two requests, in samples.
        const BETWEEN_REQUESTS: f64 = 10.0;
        let mut recording = Recording::new(true, samples);
        let stacks = self.stacks(&mut recording.test);
        let wait = recording.test.stack(&["main", "~wait"]);
        let mut arrival = 0.0;
        while recording.now < samples as f64 {
            arrival += BETWEEN_REQUESTS * random.exponential();
            recording.pass(arrival - recording.now, wait, false);
            for _ in 0..3 {
                let (function, length) = self.call(random);
                recording.pass(length, stacks[function], true);
            }
            let end_ns = (recording.now * 1e6) as i64;
            recording
                .test
                .interval(recording.thread, "request", end_ns, end_ns);
        }
        recording.test.profile
    }
}

/// A profile that is recorded, with a sample each millisecond.
struct Recording {
    test: TestProfile,
    thread: usize,
    has_cpu: bool,
    samples: usize,
    /// Time in samples.
    now: f64,
    /// CPU time since the last sample.
    used: f64,
}

impl Recording {
    fn new(has_cpu: bool, samples: usize) -> Self {
        let mut test = TestProfile::new(1_000_000);
        test.profile.meta.has_cpu_deltas = has_cpu;
        Self {
            thread: test.thread("main"),
            test,
            has_cpu,
            samples,
            now: 0.0,
            used: 0.0,
        }
    }

    /// Lets time pass, in which the thread runs or waits.
    fn pass(&mut self, length: f64, stack: Option<StackId>, is_running: bool) {
        let end = self.now + length.max(0.0);
        let go_to = |recording: &mut Self, time: f64| {
            if is_running {
                recording.used += time - recording.now;
            }
            recording.now = time;
        };
        loop {
            let written = self.test.profile.threads[self.thread].samples.len();
            if written == self.samples || written as f64 >= end {
                break;
            }
            go_to(self, written as f64);
            let cpu_ns = (std::mem::take(&mut self.used) * 1e6) as u64;
            self.test
                .sample_of(self.thread, stack, self.has_cpu.then_some(cpu_ns));
        }
        go_to(self, end);
    }
}

fn diff_of(before: &ProfileModel, after: &ProfileModel, options: &DiffOptions) -> Diff {
    compare(before, after, options).expect("both have samples")
}

fn per_request() -> DiffOptions {
    DiffOptions {
        unit_of_work: Some("request".to_owned()),
        ..DiffOptions::default()
    }
}

/// Returns the number of comparisons of a program with itself that show a change. `run` returns the
/// profile of a run, before and after.
fn false_alarms(
    comparisons: u64,
    (mean_length, seed): (f64, u64),
    options: &DiffOptions,
    run: impl Fn(&Program, &mut Random, usize) -> ProfileModel,
) -> usize {
    // Without the allowance for what differs from run to run: the simulation has no such part.
    let options = DiffOptions {
        run_to_run: 0.0,
        ..options.clone()
    };
    let is_alarm = |number: &u64| {
        let mut random = Random(seed + number);
        let program = Program::random(&mut random, mean_length);
        let [before, after] = [0, 1].map(|side| run(&program, &mut random, side));
        let diff = diff_of(&before, &after, &options);
        let rows = diff.own.iter().chain(&diff.total);
        rows.into_iter().any(|row| row.verdict != Verdict::Unclear)
    };
    (0..comparisons).filter(is_alarm).count()
}

#[test]
fn diff_of_a_program_with_itself_shows_no_change() {
    let busy = |program: &Program, random: &mut Random, _| program.profile(random, SAMPLES);
    let alarms = false_alarms(200, (1.5, 1_000), &DiffOptions::default(), busy);
    assert!(alarms <= 2, "{alarms} of 200");
}

#[test]
fn diff_with_long_calls_shows_no_change() {
    // 40 samples of a call say little more than one. Their number alone would raise an alarm in
    // nearly every comparison.
    let busy = |program: &Program, random: &mut Random, _| program.profile(random, SAMPLES);
    let alarms = false_alarms(50, (40.0, 5_000), &DiffOptions::default(), busy);
    assert!(alarms <= 1, "{alarms} of 50");
}

#[test]
fn diff_of_cpu_times_shows_no_change_whatever_the_length_and_the_unit() {
    for (lengths, options) in [
        ([SAMPLES, SAMPLES], DiffOptions::default()),
        ([SAMPLES, SAMPLES], per_request()),
        ([SAMPLES, SAMPLES / 3], DiffOptions::default()),
        ([SAMPLES / 3, SAMPLES], per_request()),
    ] {
        let paced = |program: &Program, random: &mut Random, side: usize| {
            program.paced(random, lengths[side])
        };
        let alarms = false_alarms(100, (1.0, 20_000), &options, paced);
        assert!(alarms <= 1, "{alarms} of 100: {lengths:?}, {options:?}");
    }
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
        if first.name == format!("f{culprit}") && first.values.change() > 0.0 {
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
        named >= 90 && sure >= 35,
        "{named} of 100 named, {sure} surely"
    );
}

/// A program with a function of 30 %, whose cost is multiplied by `factor`.
fn program(factor: f64) -> Program {
    let mut program = Program {
        calls: vec![1.0; FUNCTIONS],
        lengths: vec![1.0; FUNCTIONS],
    };
    program.calls[7] = 0.3 / 0.7 * (FUNCTIONS - 1) as f64;
    program.lengths[7] = factor;
    program
}

/// Returns the profiles of a busy program before and after a change.
fn changed(factor: f64) -> (ProfileModel, ProfileModel) {
    (
        program(1.0).profile(&mut Random(1), 40_000),
        program(factor).profile(&mut Random(2), 40_000),
    )
}

#[test]
fn functions_beside_a_faster_one_are_not_slower() {
    let (before, after) = changed(0.4);
    let diff = diff_of(&before, &after, &DiffOptions::default());
    assert_eq!(
        (diff.own[0].name.as_str(), diff.own[0].verdict),
        ("f7", Verdict::Faster)
    );
    let grown = |row: &DiffRow| matches!(row.verdict, Verdict::Slower | Verdict::Grew);
    let mut rows = diff.own.iter().chain(&diff.total);
    assert!(!rows.any(grown), "{diff:?}");
    assert!(diff.own.iter().any(|row| row.verdict == Verdict::Moved));
    assert!(!diff.is_regression());
}

/// Returns the functions that surely changed, by self time.
fn culprits(diff: &Diff) -> Vec<(&str, Verdict)> {
    let sure = diff.own.iter().filter(|row| row.verdict.is_sure());
    sure.map(|row| (row.name.as_str(), row.verdict)).collect()
}

#[test]
fn fix_of_a_program_that_waits_is_an_improvement() {
    let before = program(5.0).paced(&mut Random(1), 40_000);
    // Half as long, and requests are handled at once.
    let after = program(0.1).paced(&mut Random(2), 20_000);
    for (options, unit_ns) in [(DiffOptions::default(), 1e9), (per_request(), 1e7)] {
        let diff = diff_of(&before, &after, &options);
        assert_eq!(culprits(&diff), [("f7", Verdict::Faster)]);
        assert!(!diff.is_regression());
        let of_culprit = diff.own[0].values;
        assert!(of_culprit.before > 0.3 * unit_ns, "{of_culprit:?}");
        assert!(of_culprit.after < 0.02 * unit_ns, "{of_culprit:?}");
        let text = diff.text();
        assert!(text.starts_with("cpu "), "{text}");
        assert!(text.contains("\nverdict   improvement: f7, "), "{text}");
    }
}

#[test]
fn code_that_moves_to_another_function_is_no_regression() {
    let before = program(1.0).paced(&mut Random(1), 40_000);
    // The function `f8` does all of the work of `f7`, and then a part of it.
    for (share, verdict) in [(1.0, "no regression; "), (0.3, "improvement: f7, ")] {
        let mut other = program(1.0);
        other.calls[8] += other.calls[7] * share;
        other.calls[7] = 0.0;
        let after = other.paced(&mut Random(2), 40_000);
        let diff = diff_of(&before, &after, &per_request());
        assert!(culprits(&diff).contains(&("f8", Verdict::Slower)));
        assert!(!diff.is_regression());
        let text = diff.text();
        assert!(text.contains(&format!("\nverdict   {verdict}")), "{text}");
    }
}

#[test]
fn program_of_one_function_is_compared_too() {
    let run = |length: f64, seed| {
        let mut program = program(length);
        program.calls = vec![0.0; FUNCTIONS];
        program.calls[7] = 1.0;
        program.paced(&mut Random(seed), 20_000)
    };
    let before = run(1.0, 1);
    let verdict = |length, options: &DiffOptions| {
        let diff = diff_of(&before, &run(length, 2), options);
        (diff.own[0].verdict, diff.is_regression())
    };
    let a_second = DiffOptions::default();
    assert_eq!(verdict(0.05, &a_second), (Verdict::Faster, false));
    assert_eq!(verdict(0.05, &per_request()), (Verdict::Faster, false));
    // Twice the time a second may be twice the work.
    assert_eq!(verdict(2.0, &a_second), (Verdict::Moved, false));
    assert_eq!(verdict(2.0, &per_request()), (Verdict::Slower, true));
}

#[test]
fn slower_function_is_a_regression() {
    let before = program(1.0).paced(&mut Random(1), 40_000);
    let after = program(1.5).paced(&mut Random(2), 30_000);
    for options in [DiffOptions::default(), per_request()] {
        let diff = diff_of(&before, &after, &options);
        assert_eq!(culprits(&diff), [("f7", Verdict::Slower)]);
        assert!(diff.is_regression());
        assert!(!diff_of(&before, &before, &options).is_regression());
    }
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
    let options = per_request();
    let error = compare(&before, &after, &options);
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
    assert!(
        (diff.own[0].values.before - 6e6).abs() < 3e5,
        "{:?}",
        diff.own[0]
    );
    assert!(
        (diff.own[0].values.after - 12e6).abs() < 6e5,
        "{:?}",
        diff.own[0]
    );
    assert!(!diff_of(&before, &after, &DiffOptions::default()).is_regression());
}

#[test]
fn weights_are_cpu_times_only_if_both_profiles_have_them() {
    let of = |wait: bool, has_cpu: bool| {
        let mut test = TestProfile::new(1_000_000);
        test.profile.meta.has_cpu_deltas = has_cpu;
        let thread = test.thread("main");
        // If half of the samples wait, the others have twice the CPU time: the sums are equal.
        let cpu_ns = if wait { 2 } else { 1 };
        for number in 0..6_400 {
            let is_waiting = wait && number % 2 == 0;
            let name = if is_waiting { "wait" } else { "work" };
            test.sample(
                thread,
                &["main", name],
                has_cpu.then_some(if is_waiting { 0 } else { cpu_ns }),
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
    let error = compare(&before, &empty, &DiffOptions::default());
    assert_eq!(
        error.expect_err("no samples").to_string(),
        "cannot compare profiles: got no sampled time in the second one, expected some"
    );
}

#[test]
fn text_without_a_regression_has_the_widest_band() {
    let (before, after) = changed(1.0);
    let diff = diff_of(&before, &after, &DiffOptions::default());
    let mut bands: Vec<f64> = diff.own.iter().map(|row| row.values.band).collect();
    bands.sort_by(f64::total_cmp);
    assert!(bands[0] < bands[bands.len() - 1], "{bands:?}");
    let widest = format!(" ±{}\n", time_text(bands[bands.len() - 1] as u64));
    let text = diff.text();
    let verdict = text.split_once("\nverdict   no regression; ");
    let (_, verdict) = verdict.unwrap_or_else(|| panic!("{text}"));
    let (end, _) = verdict.split_once("values").expect("a line on the values");
    assert!(end.ends_with(&widest), "{end}");
}

#[test]
fn text_and_json_have_all_columns() {
    let (before, after) = changed(1.5);
    let diff = diff_of(&before, &after, &DiffOptions::default());
    let text = diff.text();
    assert!(text.contains("\nverdict   regression: f7, 30"), "{text}");
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
        let text = text.trim_matches(['±', '+']).trim_end_matches("ms");
        text.parse().expect("a number of ms")
    };
    assert!(
        (number(after) - number(before) - number(change)).abs() <= 1.0,
        "{first:?}"
    );
    assert!(
        number(band) > 0.0 && number(band) < number(change),
        "{first:?}"
    );
    // All but one of the functions, of which ten are shown.
    let others = diff.own.len() - 1;
    let left_out = format!("\n({} others, unclear or moved)\n", others - 10);
    assert!(table.contains(&left_out), "{text}");
    let (_, others) = table.split_once("\n--- ").expect("a line");
    assert_eq!(
        others
            .lines()
            .skip(1)
            .position(|line| line.starts_with('(')),
        Some(10)
    );
    let mut json = Vec::new();
    diff.write_json(&mut json).expect("a vector never fails");
    let json: serde_json::Value = serde_json::from_slice(&json).expect("JSON");
    assert_eq!(json["isRegression"], true);
    assert_eq!(json["unit"], "ns a second");
    assert_eq!(json["samples"]["before"], 40_000.0);
    assert_eq!(json["self"][0]["function"], "f7");
    assert_eq!(json["self"].as_array().expect("rows").len(), diff.own.len());
    assert_eq!(json["total"][0]["verdict"], "grew");
}
