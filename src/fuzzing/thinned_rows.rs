//! Compares profiles in which rows of sleeping threads are left out with profiles that have all of
//! their rows.

use crate::buffer::{BufferSnapshot, ChunkedBuffer};
use crate::capture::EventLoopState;
use crate::export::{DiffOptions, compare, explain, write_profile};
use crate::fuzzing::samples::context;
use crate::fuzzing::scripted_source::{PROCESS_START, SERIALS, scripted_source};
use crate::markers::{MarkerDestination, MarkerEntry, MarkerTiming, NewMarker, TextPayload};
use crate::model::{ProfileModel, Samples};
use crate::sampler::{SampleScript, ScriptedFrame, ScriptedSample, ScriptedStack};
use crate::stream::{StreamOptions, build_model};
use crate::types::{
    ExportOptions, Format, NameOptions, ProfilerTime, ProfilingCategoryPair, SampleWeight,
    Symbolicate, TimeStamp, Wait, Wanted,
};
use crate::unwind::NamedCode;

const MS: u64 = 1_000_000;
const SLEEPER: &str = "other";
const ALL_ROWS: u64 = 1_000_000;
/// Number of the context of the sleeper's second sleep.
const REQUEST: u64 = 3;
/// Time in the middle of the sleeper's first sleep, and of its third one, in ms.
const CUTS_MS: [u64; 2] = [1234, 6100];

/// How the script writes the repeats of a sample.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Repeats {
    InRuns,
    AsSamples,
}

fn at(ms: u64) -> TimeStamp {
    PROCESS_START.plus_ns(ms * MS)
}

fn stack(function: u64, wait: Option<Wait>, context_number: u64) -> ScriptedStack {
    let native = |address| ScriptedFrame::Native {
        address,
        is_innermost: false,
    };
    let address = 0x7f00_0000 + 0x100 * function;
    ScriptedStack {
        frames: vec![
            native(0x7e00_0000),
            match wait {
                Some(wait) => ScriptedFrame::Waiting { address, wait },
                None => native(address),
            },
        ],
        event_loop: EventLoopState::Unknown,
        context: context(context_number),
        ..ScriptedStack::default()
    }
}

struct Script<'a> {
    script: SampleScript<'a>,
    repeats: Repeats,
}

impl Script<'_> {
    /// Writes a sample and its repeats, one in each millisecond.
    fn sample(&mut self, thread: u64, stack: &ScriptedStack, ms: u64, (cpu_ns, more): (u64, u64)) {
        self.script.set_stack(thread, stack);
        let mut write = |ms, cpu_ns, more| {
            let sample = ScriptedSample {
                thread,
                time: at(ms),
                cpu_delta_ns: Some(cpu_ns),
                more,
                span_ns: more * MS,
                first_tick: None,
                weight: 1,
                modules: 1,
            };
            assert_eq!(self.script.write(sample), more + 1);
        };
        match self.repeats {
            Repeats::InRuns => write(ms, cpu_ns, more),
            Repeats::AsSamples => {
                write(ms, cpu_ns, 0);
                (1..=more).for_each(|later| write(ms + later, 0, 0));
            }
        }
    }
}

/// Returns the profile of a thread that works and sleeps in turn, and of one that mostly sleeps.
fn profile(repeats: Repeats, since_ms: Option<u64>, max_rows: u64) -> ProfileModel {
    let buffer = ChunkedBuffer::for_test(1 << 22);
    let mut script = Script {
        script: SampleScript::new(&buffer, ChunkedBuffer::TEST_SESSION, PROCESS_START),
        repeats,
    };
    let [main, sleeper, _] = SERIALS;
    let mut ms = 1;
    for turn in 0..60 {
        for index in 0..8 {
            let stack = stack(index % 3, None, 0);
            script.sample(main, &stack, ms, (900_000, 0));
            ms += 1;
        }
        let repeats = 40 + turn % 5;
        let stack = stack(4 + turn % 2, Some(Wait::Timer), 0);
        script.sample(main, &stack, ms, (100_000, repeats));
        ms += repeats + 1;
    }
    let work = |number| stack(5, None, number);
    for (ms, stack, of_sample) in [
        (5, work(0), (300_000, 0)),
        (6, stack(6, Some(Wait::Lock), 0), (40_000, 4000)),
        (4007, work(REQUEST), (500_000, 0)),
        (4008, stack(7, Some(Wait::Io), REQUEST), (0, 1999)),
        (6008, work(0), (0, 500)),
        (6509, stack(7, Some(Wait::Io), 0), (20_000, 1)),
        (6511, stack(7, Some(Wait::Io), 0), (0, 2)),
        (6514, work(0), (700_000, 0)),
    ] {
        script.sample(sleeper, &stack, ms, of_sample);
    }
    // Another thread may add markers to one that sleeps.
    let markers = buffer.take_lane();
    for (name, start_ms, end_ms) in [
        ("wide", 3, 6400),
        ("late", 2000, 3001),
        ("short", 2500, 2500),
    ] {
        let time = |ms| ProfilerTime::from_monotonic_ns(at(ms).0);
        let marker = NewMarker {
            name,
            category: ProfilingCategoryPair::Network(None).indices().0,
            timing: &MarkerTiming::interval(time(start_ms), time(end_ms)),
            stack: 0,
        };
        let destination = MarkerDestination {
            session: ChunkedBuffer::TEST_SESSION,
            thread: sleeper,
            now: at(7000),
            rarity: None,
        };
        let entry = MarkerEntry::new(&destination, PROCESS_START, &marker, TextPayload(name));
        let is_put = markers.put(ChunkedBuffer::TEST_SESSION, at(7000), &entry);
        assert!(is_put.is_some());
    }
    let snapshot = buffer.snapshot();
    let chunks: Vec<_> = snapshot.bytes_of_chunks().collect();
    let mut source = scripted_source(BufferSnapshot::of_bytes(&chunks), None);
    source.generated_code = NamedCode::of_range(0x1000..u64::MAX / 2);
    let names = NameOptions {
        symbolicate: Symbolicate::No,
        max_cache_bytes: 0,
        max_threads: None,
    };
    let since = since_ms.map(|ms| ProfilerTime::from_monotonic_ns(at(ms).0));
    let options = StreamOptions::new(names, since, max_rows, None);
    let (profile, _) = build_model(source, &options).expect("memory");
    profile
}

fn written(profile: &ProfileModel, format: Format, options: &ExportOptions) -> Vec<u8> {
    let mut out = Vec::new();
    write_profile(profile, format, options, &mut out).expect("a vector never fails");
    out
}

/// The thinned profile and the whole one, for the ways to thin.
fn pairs() -> impl Iterator<Item = (String, ProfileModel, ProfileModel)> {
    let cuts = [None].into_iter().chain(CUTS_MS.map(Some));
    let cases = cuts.flat_map(|since| [ALL_ROWS, 2000, 0].map(|max_rows| (since, max_rows)));
    cases.map(|(since, max_rows)| {
        let name = format!("since {since:?}, at most {max_rows} rows");
        let thinned = profile(Repeats::InRuns, since, max_rows);
        (name, thinned, profile(Repeats::AsSamples, since, ALL_ROWS))
    })
}

fn rows_of(profile: &ProfileModel, name: &str) -> usize {
    let mut threads = profile.threads.iter();
    let thread = threads.find(|thread| thread.name == name);
    thread.expect("the thread").samples.len()
}

#[test]
fn sleeping_thread_has_few_rows_whatever_the_maximum() {
    let rows = |repeats, max_rows| rows_of(&profile(repeats, None, max_rows), SLEEPER);
    assert_eq!(rows(Repeats::AsSamples, ALL_ROWS), 6510);
    // Eight entries, of which two are one run. Four of the runs have more than one repeat.
    assert_eq!(rows(Repeats::InRuns, ALL_ROWS), 7 + 4 * 2);
    assert_eq!(rows(Repeats::InRuns, 0), 7 + 4 * 2);
    // A thread that works and sleeps in turn keeps its rows, as far as the maximum allows.
    let main = profile(Repeats::InRuns, None, ALL_ROWS);
    let whole = profile(Repeats::AsSamples, None, ALL_ROWS);
    let name = &main.threads[0].name;
    assert_eq!(rows_of(&main, name), rows_of(&whole, name));
    let limited = rows_of(&profile(Repeats::InRuns, None, 2000), name);
    assert!((1000..2000).contains(&limited), "{limited}");
    let least = rows_of(&profile(Repeats::InRuns, None, 0), name);
    assert_eq!(least, 60 * (8 + 1 + 2));
}

#[test]
fn thinned_threads_have_the_ticks_of_all_their_rows() {
    for (case, thinned, whole) in pairs() {
        assert_eq!(thinned.threads.len(), whole.threads.len());
        for (thinned, whole) in thinned.threads.iter().zip(&whole.threads) {
            let (few, all) = (&thinned.samples, &whole.samples);
            let mut ticks = (0..few.len()).flat_map(|row| {
                let (sample, ticks) = (few.get(row), few.row_ticks(row));
                (0..ticks.count).map(move |tick| (ticks.time_ns(tick), sample.stack))
            });
            for sample in all.iter() {
                let tick = ticks.next().expect("a tick");
                assert_eq!(tick, (sample.time_ns, sample.stack), "{case}");
            }
            assert_eq!(ticks.next(), None, "{case}: {}", thinned.name);
            let cpu = |samples: &Samples| -> u64 {
                samples.iter().filter_map(|row| row.cpu_delta_ns).sum()
            };
            assert_eq!(cpu(few), cpu(all), "{case}");
        }
    }
}

/// Returns a summary without the line on the memory of the data: the entries of runs are smaller.
fn without_cost(summary: &[u8]) -> Vec<u8> {
    let lines = summary.split_inclusive(|byte| *byte == b'\n');
    let kept = lines.filter(|line| !line.starts_with(b"cost "));
    kept.flatten().copied().collect()
}

/// Compares all formats byte for byte, except formats that contain the rows themselves.
#[test]
fn thinned_profile_is_the_same_in_formats_without_rows() {
    for (case, thinned, whole) in pairs() {
        for format in Format::all() {
            // Above the maximum, the summary says how many rows are left out.
            let has_rows = format == Format::Processed;
            let is_limited = format == Format::Text && !case.contains("1000000");
            let is_written = format != Format::Gecko && format.missing_feature().is_none();
            if has_rows || is_limited || !is_written {
                continue;
            }
            for thread in [None, Some(SLEEPER.to_owned())] {
                for weight in [SampleWeight::Samples, SampleWeight::Cpu] {
                    let options = ExportOptions {
                        thread: thread.clone(),
                        weight,
                        ..ExportOptions::default()
                    };
                    let [few, all] = [&thinned, &whole].map(|profile| {
                        let mut out = written(profile, format, &options);
                        if format == Format::Text {
                            out = without_cost(&out);
                        }
                        out
                    });
                    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                    assert!(
                        few == all,
                        "{case}: {} of {thread:?} by {weight:?}:\n{}\ninstead of\n{}",
                        format.name(),
                        text(&few).chars().take(3000).collect::<String>(),
                        text(&all).chars().take(3000).collect::<String>()
                    );
                }
            }
        }
    }
}

#[test]
fn thinned_profile_has_the_same_differences() {
    let other = profile(Repeats::AsSamples, Some(CUTS_MS[0]), ALL_ROWS);
    for weight in [SampleWeight::Samples, SampleWeight::Cpu] {
        for (case, thinned, whole) in pairs() {
            let mut options = DiffOptions::default();
            options.export.weight = weight;
            let difference = |profile: &ProfileModel| {
                let found = compare(&other, profile, &options).expect("profiles");
                format!("{found:#?}")
            };
            assert_eq!(difference(&thinned), difference(&whole), "{case}");
        }
    }
}

#[test]
fn thinned_profile_explains_requests_the_same() {
    let [first, second] = context(REQUEST).trace;
    let trace_id = u128::from(first) << 64 | u128::from(second);
    let range =
        |from_us: i64, to_us: i64| Wanted::Range(SLEEPER.to_owned(), from_us * 1000, to_us * 1000);
    for (case, thinned, whole) in pairs() {
        for wanted in [
            Wanted::Trace(trace_id),
            Wanted::Marker("wide".to_owned()),
            Wanted::Marker("late".to_owned()),
            range(0, 7_000_000),
            range(2_000_300, 2_100_700),
            range(3_999_500, 4_500_250),
            range(6_010_100, 6_300_900),
            range(6_400_000, 6_520_000),
        ] {
            let explained = |profile: &ProfileModel| match explain(profile, &wanted) {
                Ok(explanation) => format!("{explanation:#?}"),
                Err(error) => error.to_string(),
            };
            assert_eq!(explained(&thinned), explained(&whole), "{case}: {wanted:?}");
        }
    }
}
