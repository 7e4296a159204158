//! The arms of `bursts`: what gekkota, pprof-rs and `perf record` say of its threads.

use std::collections::HashMap;
use std::fmt::Display;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use flate2::write::MultiGzDecoder;
use gekkota::profile::{Format, SnapshotOptions, Symbolicate};
use gekkota::{Profile, ProfilerSession, StartParams, register_thread};
use object::{Object, ObjectSymbol};
use pprof::protos::{self, Message};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::bursts_work::{KINDS, Truth, Worked, price, render};
use crate::own_program::{self, load_bias};
use crate::profile::Counts;
use crate::raw_threads::refuse_perf_events;
use crate::study::{Arguments, Fallible};
use crate::temporary::Temporary;
use crate::{child, pprof_rs};

/// Wait between the end of the work and that of the session, in which the last sample of each thread
/// arrives.
const SETTLE: Duration = Duration::from_millis(100);
/// A thread with less CPU time does not count for [`Reading::between`].
const LEAST_NS: f64 = 1e8;
/// Function with the CPU time that is in no sample of a running thread.
const BETWEEN: &str = "(ran between samples)";

/// An interval, and the parameters of ours for it.
pub(crate) struct Setting {
    pub(crate) name: &'static str,
    pub(crate) interval: Duration,
}

pub(crate) const SETTINGS: [Setting; 3] = [
    setting("1ms", 1),
    setting("10ms", 10),
    setting("always_on", 10),
];

const fn setting(name: &'static str, ms: u64) -> Setting {
    let interval = Duration::from_millis(ms);
    Setting { name, interval }
}

impl Setting {
    fn params(&self) -> StartParams {
        match self.name {
            "always_on" => StartParams::always_on(),
            _ => StartParams::default().interval(self.interval),
        }
    }
}

/// The profilers. `ours_without_events` has a signal for which threads have no events, and
/// `ours_in_sandbox` is in a process with a filter that refuses events.
pub(crate) const PROFILERS: [&str; 5] = [
    "ours",
    "ours_without_events",
    "ours_in_sandbox",
    "pprof",
    "perf",
];

/// The functions of the work.
const FUNCTIONS: [&str; 2] = ["price", "render"];

/// CPU time in nanoseconds, or a number of samples.
#[derive(Clone, Copy, Default, PartialEq, Debug, Deserialize, Serialize)]
pub(crate) struct Times {
    /// By function.
    pub(crate) of: [f64; FUNCTIONS.len()],
    /// With what is in neither function, such as the waits.
    pub(crate) all: f64,
}

impl Times {
    fn add(&mut self, other: &Self) {
        let sums = self.of.iter_mut().zip(other.of);
        sums.for_each(|(sum, time)| *sum += time);
        self.all += other.all;
    }

    /// Adds the time of a stack. `function` is the one that it has.
    fn add_stack(&mut self, function: Option<usize>, time: f64) {
        self.all += time;
        if let Some(function) = function {
            self.of[function] += time;
        }
    }

    /// Returns the part of `price` in the time of both functions.
    pub(crate) fn split(&self) -> f64 {
        self.of[0] / self.of.iter().sum::<f64>()
    }

    /// Returns the part that is in neither function.
    pub(crate) fn elsewhere(&self) -> f64 {
        1.0 - self.of.iter().sum::<f64>() / self.all
    }
}

/// Returns the function that a readable or mangled symbol names.
fn function_of(symbol: &str) -> Option<usize> {
    let is_ours = symbol.contains("bursts_work");
    let mut functions = FUNCTIONS.iter();
    functions.position(|function| is_ours && symbol.contains(function))
}

/// What the threads of one kind did, and what a profile says of them.
#[derive(Clone, Copy, Default, PartialEq, Debug, Deserialize, Serialize)]
pub(crate) struct Reading {
    pub(crate) truth: Times,
    pub(crate) profile: Times,
    /// Samples of the profile; those of ours include sleeping threads in `all`.
    pub(crate) samples: Times,
    /// The largest share of a thread's CPU time that is in no sample. `None` if no thread used 100 ms.
    pub(crate) between: Option<f64>,
    pub(crate) interval_ns: f64,
}

impl Reading {
    pub(crate) fn add(&mut self, other: &Self) {
        self.truth.add(&other.truth);
        self.profile.add(&other.profile);
        self.samples.add(&other.samples);
        self.interval_ns = other.interval_ns;
        let between = self.between.into_iter().chain(other.between);
        self.between = between.reduce(f64::max);
    }
}

/// The readings of all kinds, in the order of [`KINDS`].
type Readings = [Reading; KINDS.len()];

/// Returns readings without a profile.
fn readings_of(truths: &[Truth]) -> Readings {
    let mut readings = Readings::default();
    for truth in truths {
        readings[truth.kind].truth.add(&Times {
            of: [truth.price_ns as f64, truth.render_ns as f64],
            all: truth.all_ns as f64,
        });
    }
    readings
}

/// Runs an arm in a child process. Returns whether threads had events, too.
pub(crate) fn run(
    profiler: &str,
    setting: &Setting,
    span: Duration,
    perf: Option<&Perf>,
) -> Fallible<(Readings, bool)> {
    let arguments: [&dyn Display; 3] = [&profiler, &setting.name, &span.as_millis()];
    let perf = perf.filter(|_| profiler == "perf");
    let file = Temporary::new(".data");
    let answer = match perf {
        Some(perf) => {
            let mut recording = perf.recording(&file, setting.interval);
            recording.arg(std::env::current_exe()?);
            child::add_part(&mut recording, "bursts", &arguments);
            child::answer_of(recording)?
        }
        None => child::run("bursts", &arguments)?,
    };
    let mut readings: Readings = serde_json::from_value(answer["kinds"].clone())?;
    if let Some(perf) = perf {
        let script = perf.script(&file)?;
        add_script(&script, &answer["threads"], &mut readings);
    }
    for reading in &mut readings {
        reading.interval_ns = setting.interval.as_nanos() as f64;
        if !profiler.starts_with("ours") {
            // Each sample counts for an interval.
            reading.profile.add(&reading.samples);
            reading.profile.of = reading
                .profile
                .of
                .map(|samples| samples * reading.interval_ns);
            reading.profile.all *= reading.interval_ns;
        }
    }
    Ok((readings, answer["has_events"] == true))
}

/// Runs an arm in the child process. Arguments: the profiler, the setting, and the span of each kind
/// in milliseconds.
pub(crate) fn run_part(arguments: &Arguments) -> Fallible<Value> {
    let (profiler, setting) = (arguments.text(0)?, arguments.text(1)?);
    let span = arguments.milliseconds(2)?;
    let setting = SETTINGS.iter().find(|known| known.name == setting);
    let setting = setting.ok_or("unknown setting")?;
    match profiler {
        "ours" => run_ours(setting.params(), span),
        "ours_without_events" => run_ours(setting.params().signal(libc::SIGRTMIN() + 1), span),
        "ours_in_sandbox" => {
            refuse_perf_events()?;
            run_ours(setting.params(), span)
        }
        "pprof" => run_pprof(setting, span),
        _ => run_bare(span),
    }
}

fn run_ours(params: StartParams, span: Duration) -> Fallible<Value> {
    let session = ProfilerSession::start(params)?;
    let worked = Worked::new(|| register_thread(""), span)?;
    std::thread::sleep(SETTLE);
    let truths = worked.read_clocks()?;
    let profile = session.finish()?;
    drop(worked);
    let mut readings = readings_of(&truths);
    let mut between: HashMap<i32, f64> = HashMap::new();
    let truth_of: HashMap<i32, &Truth> = truths.iter().map(|truth| (truth.thread, truth)).collect();
    for row in read_rows(&profile)? {
        let Some(truth) = truth_of.get(&row.thread) else {
            continue;
        };
        let reading = &mut readings[truth.kind];
        let functions = || row.functions.iter().map(String::as_str);
        let function = functions().find_map(function_of);
        reading.profile.add_stack(function, row.cpu_ns);
        reading.samples.add_stack(function, row.samples);
        if functions().any(|name| name == BETWEEN) {
            *between.entry(row.thread).or_default() += row.cpu_ns;
        }
    }
    for truth in &truths {
        let all_ns = truth.all_ns as f64;
        if all_ns >= LEAST_NS {
            let share = between.get(&truth.thread).unwrap_or(&0.0) / all_ns;
            let known = &mut readings[truth.kind].between;
            *known = Some(known.unwrap_or(0.0).max(share));
        }
    }
    let has_events = Counts::of(&profile).get("refused_events") == 0.0;
    Ok(json!({"kinds": readings, "has_events": has_events}))
}

fn run_pprof(setting: &Setting, span: Duration) -> Fallible<Value> {
    let guard = pprof_rs::start(setting.interval)?;
    let worked = Worked::new(|| {}, span)?;
    let truths = worked.read_clocks()?;
    let report = pprof_rs::report(&guard)?;
    drop(guard);
    drop(worked);
    let find = function_finder()?;
    let mut readings = readings_of(&truths);
    for (stack, &count) in &report.data {
        let thread = &stack.thread_name[..stack.thread_name_length];
        let kind = KINDS.iter().position(|name| name.as_bytes() == thread);
        if let Some(kind) = kind {
            let mut addresses = stack.frames.iter().map(|frame| frame.ip() as u64);
            let function = addresses.find_map(&find);
            readings[kind].samples.add_stack(function, count as f64);
        }
    }
    Ok(json!({"kinds": readings}))
}

/// Lets the threads work without a profiler in this process.
fn run_bare(span: Duration) -> Fallible<Value> {
    let truths = Worked::new(|| {}, span)?.read_clocks()?;
    let kinds = truths
        .iter()
        .map(|truth| (truth.thread.to_string(), truth.kind));
    let kinds: HashMap<_, _> = kinds.collect();
    Ok(json!({"kinds": readings_of(&truths), "threads": kinds}))
}

/// Returns a function that says which of both functions has an address of this process.
fn function_finder() -> Fallible<impl Fn(u64) -> Option<usize>> {
    let path = std::env::current_exe()?;
    let mapped = own_program::map(&path)?;
    let file = object::File::parse(&*mapped)?;
    let bias = load_bias()?;
    let mut ranges = Vec::new();
    for function in [price, render] {
        let start = function as fn(u64) -> u64 as usize as u64;
        let mut symbols = file.symbols();
        let symbol = symbols.find(|symbol| symbol.address() + bias == start && symbol.size() > 0);
        ranges.push(start..start + symbol.ok_or("a function has no symbol")?.size());
    }
    Ok(move |address| ranges.iter().position(|range| range.contains(&address)))
}

/// `perf record` of the task clock.
pub(crate) struct Perf {
    program: PathBuf,
}

impl Perf {
    /// Returns a perf that works here, or the reason why no perf works.
    pub(crate) fn find() -> Result<Self, String> {
        let mut refusal = "there is no perf in PATH and /usr/bin".to_owned();
        for program in ["perf", "/usr/bin/perf"] {
            let perf = Self {
                program: program.into(),
            };
            let file = Temporary::new(".data");
            let output = perf
                .recording(&file, Duration::from_millis(1))
                .arg("true")
                .output();
            match output {
                Ok(output) if output.status.success() => return Ok(perf),
                Ok(output) => {
                    let text = String::from_utf8_lossy(&output.stderr);
                    let line = text.lines().find(|line| !line.trim().is_empty());
                    refusal = format!("perf is refused: {}", line.unwrap_or_default().trim());
                }
                Err(_) => {}
            }
        }
        Err(refusal)
    }

    /// Returns the command that records to `file`, without the program to record.
    fn recording(&self, file: &Path, interval: Duration) -> Command {
        let mut command = Command::new(&self.program);
        let period = interval.as_nanos().to_string();
        // The program's file is large, so perf may not copy it.
        let options = [
            "record",
            "-q",
            "-B",
            "-N",
            "-g",
            "-e",
            "task-clock",
            "-c",
            &period,
        ];
        command
            .args(options)
            .arg("-o")
            .arg(file)
            .arg("--")
            .stdin(Stdio::null());
        command
    }

    /// Returns the samples of a recording, as text.
    fn script(&self, file: &Path) -> Fallible<String> {
        let mut command = Command::new(&self.program);
        command.args(["script", "--no-inline", "-F", "tid,ip,sym", "-i"]);
        let output = command.arg(file).stdin(Stdio::null()).output()?;
        if !output.status.success() {
            let problem = String::from_utf8_lossy(&output.stderr);
            return Err(format!("`perf script` ended with {}: {problem}", output.status).into());
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

/// Adds the samples of `perf script`: for each the thread's id, and the lines of its stack, with an
/// empty line at the end. `kinds` has the kinds of the threads by their ids.
fn add_script(script: &str, kinds: &Value, readings: &mut Readings) {
    for sample in script.split("\n\n") {
        let mut lines = sample.trim_start().lines();
        let thread = lines.next().unwrap_or_default().trim();
        if let Some(kind) = kinds[thread].as_u64() {
            let function = lines.find_map(function_of);
            readings[kind as usize].samples.add_stack(function, 1.0);
        }
    }
}

/// The values of all samples with one stack of one thread.
#[derive(Debug, PartialEq)]
struct Row {
    thread: i32,
    /// With the inlined ones, the innermost first.
    functions: Vec<String>,
    samples: f64,
    cpu_ns: f64,
}

/// Returns the rows of a profile's export for `go tool pprof`, as its users read it.
fn read_rows(profile: &Profile) -> Fallible<Vec<Row>> {
    let mut decoder = MultiGzDecoder::new(Vec::new());
    let options = SnapshotOptions::default().symbolicate(Symbolicate::NamesOnly);
    profile.write_with(Format::Pprof, &mut decoder, &options)?;
    decoder.flush()?;
    to_rows(&protos::Profile::decode(&*decoder.finish()?)?)
}

fn to_rows(file: &protos::Profile) -> Fallible<Vec<Row>> {
    let text = |index: i64| {
        file.string_table
            .get(index as usize)
            .map_or("", String::as_str)
    };
    let place_of = |kind| {
        let place = file
            .sample_type
            .iter()
            .position(|value| text(value.ty) == kind);
        place.ok_or_else(|| format!("the profile has no values of the type `{kind}`"))
    };
    let (samples, cpu) = (place_of("samples")?, place_of("cpu")?);
    let names = file
        .function
        .iter()
        .map(|function| (function.id, text(function.name)));
    let names: HashMap<u64, &str> = names.collect();
    let lines = file
        .location
        .iter()
        .map(|location| (location.id, &location.line));
    let lines: HashMap<u64, _> = lines.collect();
    let row = |sample: &protos::Sample| {
        let mut labels = sample.label.iter();
        let thread = labels.find(|label| text(label.key) == "thread_id");
        let lines = sample.location_id.iter().filter_map(|id| lines.get(id));
        let functions = lines
            .copied()
            .flatten()
            .filter_map(|line| names.get(&line.function_id));
        let value = |place: usize| sample.value.get(place).map_or(0.0, |value| *value as f64);
        Row {
            thread: thread.map_or(0, |label| label.num as i32),
            functions: functions.map(|name| (*name).to_owned()).collect(),
            samples: value(samples),
            cpu_ns: value(cpu),
        }
    };
    Ok(file.sample.iter().map(row).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn script_samples_are_added_by_thread_and_function() {
        let script = "   17 \n\t  8b9b0 _RNvNtCs_5peers11bursts_work5price\n\t 1a34f [unknown]\n\n   17 \n\t 1 clock_nanosleep\n\n   \
                      18 \n\t 2 timer\n\t 3 peers::bursts_work::render\n\n   99 \n\t 4 peers::bursts_work::render\n\n";
        let mut readings = Readings::default();
        add_script(script, &json!({"17": 0, "18": 2}), &mut readings);
        let times = |price, render, all| Times {
            of: [price, render],
            all,
        };
        assert_eq!(readings[0].samples, times(1.0, 0.0, 2.0));
        assert_eq!(readings[2].samples, times(0.0, 1.0, 1.0));
        assert_eq!(readings[0].samples.elsewhere(), 0.5);
    }

    #[test]
    fn rows_have_the_thread_and_the_functions_of_their_stacks() {
        let texts = ["", "samples", "cpu", "thread_id", "work", "main"];
        let value_type = |ty| protos::ValueType {
            ty,
            ..Default::default()
        };
        let location = |(id, function_id)| protos::Location {
            id,
            line: vec![protos::Line {
                function_id,
                ..Default::default()
            }],
            ..Default::default()
        };
        let function = |(id, name)| protos::Function {
            id,
            name,
            ..Default::default()
        };
        let label = protos::Label {
            key: 3,
            num: 17,
            ..Default::default()
        };
        let file = protos::Profile {
            sample_type: vec![value_type(1), value_type(2)],
            sample: vec![protos::Sample {
                location_id: vec![1, 2, 3],
                value: vec![2, 900],
                label: vec![label],
            }],
            location: [(1, 1), (2, 2)].map(location).into(),
            function: [(1, 4), (2, 5)].map(function).into(),
            string_table: texts.map(str::to_owned).into(),
            ..Default::default()
        };
        let expected = Row {
            thread: 17,
            functions: vec!["work".to_owned(), "main".to_owned()],
            samples: 2.0,
            cpu_ns: 900.0,
        };
        assert_eq!(to_rows(&file).expect("rows"), [expected]);
        let problem = to_rows(&protos::Profile::default()).expect_err("no values");
        assert!(problem.to_string().contains("`samples`"), "{problem}");
    }

    #[test]
    fn functions_are_found_by_their_addresses() {
        let find = function_finder().expect("symbols");
        assert_eq!(find(price as fn(u64) -> u64 as usize as u64 + 1), Some(0));
        assert_eq!(find(render as fn(u64) -> u64 as usize as u64), Some(1));
        assert_eq!(
            find(run_bare as fn(Duration) -> Fallible<Value> as usize as u64),
            None
        );
    }
}
