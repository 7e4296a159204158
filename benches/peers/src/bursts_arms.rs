//! The arms of `bursts`: what gekkota, pprof-rs and `perf record` say of its threads.

use std::collections::HashMap;
use std::error::Error;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use flate2::write::MultiGzDecoder;
use gekkota::profile::{Format, SnapshotOptions, Symbolicate};
use gekkota::{Profile, ProfilerSession, StartParams, register_thread};
use object::{Object, ObjectSymbol};
use prost::Message;
use serde_json::{Value, json};

use crate::bursts_work::{KINDS, Truth, Worked, price, render};
use crate::child;
use crate::own_program::{self, load_bias};
use crate::profile::engine_of;
use crate::raw_threads::refuse_perf_events;

type Fallible<T> = Result<T, Box<dyn Error>>;

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
    params: fn() -> StartParams,
}

pub(crate) const SETTINGS: [Setting; 3] = [
    Setting {
        name: "1ms",
        interval: Duration::from_millis(1),
        params: || StartParams::default().interval(Duration::from_millis(1)),
    },
    Setting {
        name: "10ms",
        interval: Duration::from_millis(10),
        params: || StartParams::default().interval(Duration::from_millis(10)),
    },
    Setting {
        name: "always_on",
        interval: Duration::from_millis(10),
        params: StartParams::always_on,
    },
];

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Profiler {
    Ours,
    /// With a signal for which threads have no events.
    OursWithoutEvents,
    /// In a process with a filter that refuses events.
    OursInSandbox,
    Pprof,
    Perf,
}

impl Profiler {
    pub(crate) const ALL: [Self; 5] = [
        Self::Ours,
        Self::OursWithoutEvents,
        Self::OursInSandbox,
        Self::Pprof,
        Self::Perf,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Ours => "ours",
            Self::OursWithoutEvents => "ours_without_events",
            Self::OursInSandbox => "ours_in_sandbox",
            Self::Pprof => "pprof",
            Self::Perf => "perf",
        }
    }

    pub(crate) fn is_ours(self) -> bool {
        !matches!(self, Self::Pprof | Self::Perf)
    }
}

/// CPU time in nanoseconds, or a number of samples, by function.
#[derive(Clone, Copy, Default, PartialEq, Debug)]
pub(crate) struct Times {
    pub(crate) price: f64,
    pub(crate) render: f64,
    /// With what is in neither function, such as the waits.
    pub(crate) all: f64,
}

impl Times {
    fn add(&mut self, other: Self) {
        self.price += other.price;
        self.render += other.render;
        self.all += other.all;
    }

    /// Adds the time of a stack. `function` is the one that it has.
    fn add_stack(&mut self, function: Option<Function>, time: f64) {
        self.all += time;
        match function {
            Some(Function::Price) => self.price += time,
            Some(Function::Render) => self.render += time,
            None => {}
        }
    }

    fn times(self, factor: f64) -> Self {
        Self {
            price: self.price * factor,
            render: self.render * factor,
            all: self.all * factor,
        }
    }

    /// Returns the part of `price` in the time of both functions.
    pub(crate) fn split(&self) -> f64 {
        self.price / (self.price + self.render)
    }

    /// Returns the part that is in neither function.
    pub(crate) fn elsewhere(&self) -> f64 {
        1.0 - (self.price + self.render) / self.all
    }

    fn to_json(self) -> Value {
        json!([self.price, self.render, self.all])
    }

    fn of_json(value: &Value) -> Self {
        let number = |place: usize| value[place].as_f64().unwrap_or(f64::NAN);
        Self {
            price: number(0),
            render: number(1),
            all: number(2),
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Function {
    Price,
    Render,
}

impl Function {
    /// Returns the function that a readable or mangled symbol names.
    fn of_symbol(symbol: &str) -> Option<Self> {
        match symbol.contains("bursts_work") {
            true if symbol.contains("price") => Some(Self::Price),
            true if symbol.contains("render") => Some(Self::Render),
            _ => None,
        }
    }
}

/// What the threads of one kind did, and what a profile says of them.
#[derive(Clone, Copy, Default, PartialEq, Debug)]
pub(crate) struct Reading {
    pub(crate) truth: Times,
    pub(crate) profile: Times,
    /// Samples of the profile; those of ours include sleeping threads in `all`.
    pub(crate) samples: Times,
    /// The largest share of a thread's CPU time that is in no sample. `None` if no thread used 100 ms.
    pub(crate) between: Option<f64>,
}

impl Reading {
    pub(crate) fn add(&mut self, other: &Self) {
        self.truth.add(other.truth);
        self.profile.add(other.profile);
        self.samples.add(other.samples);
        let between = self.between.into_iter().chain(other.between);
        self.between = between.reduce(f64::max);
    }

    fn to_json(self) -> Value {
        json!({
            "truth": self.truth.to_json(),
            "profile": self.profile.to_json(),
            "samples": self.samples.to_json(),
            "between": self.between,
        })
    }

    fn of_json(value: &Value) -> Self {
        Self {
            truth: Times::of_json(&value["truth"]),
            profile: Times::of_json(&value["profile"]),
            samples: Times::of_json(&value["samples"]),
            between: value["between"].as_f64(),
        }
    }
}

/// The readings of all kinds, in the order of [`KINDS`].
type Readings = [Reading; KINDS.len()];

/// Returns readings without a profile.
fn readings_of(truths: &[Truth]) -> Readings {
    let mut readings = Readings::default();
    for truth in truths {
        readings[truth.kind].truth.add(Times {
            price: truth.price_ns as f64,
            render: truth.render_ns as f64,
            all: truth.all_ns as f64,
        });
    }
    readings
}

/// Runs an arm in a child process. Returns the engine of ours, too.
pub(crate) fn run(
    profiler: Profiler,
    setting: &Setting,
    span: Duration,
    perf: Option<&Perf>,
) -> Fallible<(Readings, Option<String>)> {
    let arguments = [
        profiler.name().to_owned(),
        setting.name.to_owned(),
        span.as_millis().to_string(),
    ];
    let perf = perf.filter(|_| profiler == Profiler::Perf);
    let file = TemporaryFile::new();
    let answer = match perf {
        Some(perf) => {
            let recording = perf.recording(&file.0, setting.interval);
            child::run_under(recording, "bursts", &arguments)?
        }
        None => child::run("bursts", &arguments)?,
    };
    let kinds = answer["kinds"]
        .as_array()
        .ok_or("the answer has no kinds")?;
    let mut readings = Readings::default();
    for (reading, kind) in readings.iter_mut().zip(kinds) {
        *reading = Reading::of_json(kind);
    }
    if let Some(perf) = perf {
        let script = perf.script(&file.0)?;
        add_script(&script, &answer["threads"], &mut readings);
        weigh_samples(&mut readings, setting.interval);
    }
    Ok((readings, answer["engine"].as_str().map(str::to_owned)))
}

fn answer(readings: &Readings, rest: Value) -> Value {
    let mut answer = rest;
    let kinds = readings.iter().map(|reading| reading.to_json());
    answer["kinds"] = kinds.collect();
    answer
}

/// Runs an arm in the child process. Arguments: the profiler, the setting, and the span of each kind
/// in milliseconds.
pub(crate) fn run_part(arguments: &[String]) -> Fallible<Value> {
    let [profiler, setting, span_ms] = arguments else {
        return Err("expected a profiler, a setting, and the span in ms".into());
    };
    let mut profilers = Profiler::ALL.into_iter();
    let profiler = profilers.find(|known| known.name() == profiler);
    let setting = SETTINGS.iter().find(|known| known.name == setting);
    let setting = setting.ok_or("unknown setting")?;
    let span = Duration::from_millis(span_ms.parse()?);
    match profiler.ok_or("unknown profiler")? {
        Profiler::Ours => run_ours((setting.params)(), span),
        Profiler::OursWithoutEvents => {
            run_ours((setting.params)().signal(libc::SIGRTMIN() + 1), span)
        }
        Profiler::OursInSandbox => {
            refuse_perf_events()?;
            run_ours((setting.params)(), span)
        }
        Profiler::Pprof => run_pprof(setting, span),
        Profiler::Perf => run_bare(span),
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
        let function = functions().find_map(Function::of_symbol);
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
    Ok(answer(&readings, json!({"engine": engine_of(&profile)?})))
}

fn run_pprof(setting: &Setting, span: Duration) -> Fallible<Value> {
    let frequency = 1.0 / setting.interval.as_secs_f64();
    let guard = pprof::ProfilerGuard::new(frequency as i32)?;
    let worked = Worked::new(|| {}, span)?;
    let truths = worked.read_clocks()?;
    let report = guard.report().build_unresolved()?;
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
    weigh_samples(&mut readings, setting.interval);
    Ok(answer(&readings, json!({})))
}

/// Lets the threads work without a profiler in this process.
fn run_bare(span: Duration) -> Fallible<Value> {
    let truths = Worked::new(|| {}, span)?.read_clocks()?;
    let kinds = truths
        .iter()
        .map(|truth| (truth.thread.to_string(), truth.kind));
    let kinds: HashMap<_, _> = kinds.collect();
    Ok(answer(&readings_of(&truths), json!({"threads": kinds})))
}

/// Sets the times of profiles in which each sample counts for an interval.
fn weigh_samples(readings: &mut Readings, interval: Duration) {
    for reading in readings {
        reading.profile = reading.samples.times(interval.as_nanos() as f64);
    }
}

/// Returns a function that says which of both functions has an address of this process.
fn function_finder() -> Fallible<impl Fn(u64) -> Option<Function>> {
    let path = std::env::current_exe()?;
    let mapped = own_program::map(&path)?;
    let file = object::File::parse(&*mapped)?;
    let bias = load_bias()?;
    let range_of = |function: fn(u64) -> u64| {
        let start = function as usize as u64;
        let mut symbols = file.symbols();
        let symbol = symbols.find(|symbol| symbol.address() + bias == start && symbol.size() > 0);
        symbol.map(|symbol| start..start + symbol.size())
    };
    let [price, render] =
        [price, render].map(|function| range_of(function).ok_or("a function has no symbol"));
    let (price, render) = (price?, render?);
    Ok(move |address| match address {
        _ if price.contains(&address) => Some(Function::Price),
        _ if render.contains(&address) => Some(Function::Render),
        _ => None,
    })
}

/// `perf record` of the task clock.
pub(crate) struct Perf {
    program: PathBuf,
}

impl Perf {
    /// Returns a perf that works here, or the reason why there is none.
    pub(crate) fn find() -> Result<Self, String> {
        let mut refusal = "there is no perf in PATH and /usr/bin".to_owned();
        for program in ["perf", "/usr/bin/perf"] {
            let perf = Self {
                program: program.into(),
            };
            let file = TemporaryFile::new();
            let output = perf
                .recording(&file.0, Duration::from_millis(1))
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
            let function = lines.find_map(Function::of_symbol);
            readings[kind as usize].samples.add_stack(function, 1.0);
        }
    }
}

/// The recording of perf. Dropping this removes the file.
struct TemporaryFile(PathBuf);

impl TemporaryFile {
    fn new() -> Self {
        let name = format!("gekkota-peers-bursts-{}.data", std::process::id());
        Self(std::env::temp_dir().join(name))
    }
}

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        // Only perf makes the file.
        let _ = std::fs::remove_file(&self.0);
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
    to_rows(&PprofFile::decode(&*decoder.finish()?)?)
}

fn to_rows(file: &PprofFile) -> Fallible<Vec<Row>> {
    let text = |index: i64| file.texts.get(index as usize).map_or("", String::as_str);
    let place_of = |kind| {
        let place = file
            .values
            .iter()
            .position(|value| text(value.kind) == kind);
        place.ok_or_else(|| format!("the profile has no values of the type `{kind}`"))
    };
    let (samples, cpu) = (place_of("samples")?, place_of("cpu")?);
    let names = file
        .functions
        .iter()
        .map(|function| (function.id, text(function.name)));
    let names: HashMap<u64, &str> = names.collect();
    let lines = file
        .locations
        .iter()
        .map(|location| (location.id, &location.lines));
    let lines: HashMap<u64, &Vec<Line>> = lines.collect();
    let row = |sample: &Sample| {
        let thread = sample
            .labels
            .iter()
            .find(|label| text(label.key) == "thread_id");
        let lines = sample
            .locations
            .iter()
            .filter_map(|id| lines.get(id))
            .copied()
            .flatten();
        let names = lines.filter_map(|line| names.get(&line.function));
        let value = |place: usize| sample.values.get(place).map_or(0.0, |value| *value as f64);
        Row {
            thread: thread.map_or(0, |label| label.number as i32),
            functions: names.map(|name| (*name).to_owned()).collect(),
            samples: value(samples),
            cpu_ns: value(cpu),
        }
    };
    Ok(file.samples.iter().map(row).collect())
}

/// The messages of pprof's `profile.proto`, with the fields that are read here.
#[derive(Clone, PartialEq, Message)]
struct PprofFile {
    #[prost(message, repeated, tag = "1")]
    values: Vec<ValueType>,
    #[prost(message, repeated, tag = "2")]
    samples: Vec<Sample>,
    #[prost(message, repeated, tag = "4")]
    locations: Vec<Location>,
    #[prost(message, repeated, tag = "5")]
    functions: Vec<NamedFunction>,
    #[prost(string, repeated, tag = "6")]
    texts: Vec<String>,
}

#[derive(Clone, PartialEq, Message)]
struct ValueType {
    #[prost(int64, tag = "1")]
    kind: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Sample {
    #[prost(uint64, repeated, tag = "1")]
    locations: Vec<u64>,
    #[prost(int64, repeated, tag = "2")]
    values: Vec<i64>,
    #[prost(message, repeated, tag = "3")]
    labels: Vec<Label>,
}

#[derive(Clone, PartialEq, Message)]
struct Label {
    #[prost(int64, tag = "1")]
    key: i64,
    #[prost(int64, tag = "3")]
    number: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Location {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(message, repeated, tag = "4")]
    lines: Vec<Line>,
}

#[derive(Clone, PartialEq, Message)]
struct Line {
    #[prost(uint64, tag = "1")]
    function: u64,
}

#[derive(Clone, PartialEq, Message)]
struct NamedFunction {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(int64, tag = "2")]
    name: i64,
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
        let times = |price, render, all| Times { price, render, all };
        assert_eq!(readings[0].samples, times(1.0, 0.0, 2.0));
        assert_eq!(readings[2].samples, times(0.0, 1.0, 1.0));
        weigh_samples(&mut readings, Duration::from_micros(1));
        assert_eq!(readings[0].profile, times(1000.0, 0.0, 2000.0));
        assert_eq!(readings[0].profile.elsewhere(), 0.5);
    }

    #[test]
    fn rows_have_the_thread_and_the_functions_of_their_stacks() {
        let texts = ["", "samples", "cpu", "thread_id", "work", "main"];
        let file = PprofFile {
            values: vec![ValueType { kind: 1 }, ValueType { kind: 2 }],
            samples: vec![Sample {
                locations: vec![1, 2, 3],
                values: vec![2, 900],
                labels: vec![Label { key: 3, number: 17 }],
            }],
            locations: [(1, 1), (2, 2)]
                .map(|(id, function)| Location {
                    id,
                    lines: vec![Line { function }],
                })
                .into(),
            functions: [(1, 4), (2, 5)]
                .map(|(id, name)| NamedFunction { id, name })
                .into(),
            texts: texts.map(str::to_owned).into(),
        };
        let expected = Row {
            thread: 17,
            functions: vec!["work".to_owned(), "main".to_owned()],
            samples: 2.0,
            cpu_ns: 900.0,
        };
        assert_eq!(to_rows(&file).expect("rows"), [expected]);
        let problem = to_rows(&PprofFile::default()).expect_err("no values");
        assert!(problem.to_string().contains("`samples`"), "{problem}");
    }

    #[test]
    fn functions_are_found_by_their_addresses() {
        let find = function_finder().expect("symbols");
        assert_eq!(
            find(price as fn(u64) -> u64 as usize as u64 + 1),
            Some(Function::Price)
        );
        assert_eq!(
            find(render as fn(u64) -> u64 as usize as u64),
            Some(Function::Render)
        );
        assert_eq!(
            find(run_bare as fn(Duration) -> Fallible<Value> as usize as u64),
            None
        );
    }
}
