//! `wide`: what a session costs in a program with 100, 1,000 and 10,000 threads, of which 0, 2 or 8
//! run on and off.
//!
//! The others sleep from before the session's start until after its end. A runner works for 4 ms and
//! sleeps for 46 ms, which is so long that the profiler takes it for a sleeper each time, and has
//! to notice when it wakes.
//!
//! The figure is the CPU time of the sampler's thread, as the session counts it, in percent of one
//! processor, with 10,000 threads of which 2 run on and off, at 1,000 Hz. `sampler_…` has it for the
//! other arms, `missed_…` the share of the ticks that were missed, in percent. The others are for 2
//! runners at 1,000 Hz:
//!
//! - `start_…`, `stop_…`: time of the session's start and of its end, in ms.
//! - `resident_…`: memory that the session has after it has settled, in KiB per thread that exists.
//! - `growth_…`: memory that it takes from then on, in KiB per second.
//! - `buffer_…`: bytes of buffer per second.
//! - `gecko_…`, `processed_…`: time to save the profile, in ms, and size of the file, in MB; with
//!   names that are known already. `…_gz_…` is compressed.
//! - `captured_…`: CPU time in the runners' samples, divided by what their clocks show.
//!   `in_work_…` has only samples with a stack of the work.
//!
//! `grows_…` is a figure with the most threads, divided by that with 1,000: about 1 if it grows with
//! what runs, and about 10 if it grows with what exists.
//!
//! Each run is a separate process; the arms are interleaved. If the system does not allow 10,000
//! threads, the notes say how many there were.

use std::error::Error;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use gekkota::{Profile, ProfilerSession, StartParams, profiler_get_buffer_info, register_thread};
use serde_json::{Value, json};

use crate::machine::{self, load_note};
use crate::memory::resident_bytes;
use crate::profile::count;
use crate::raw::{monotonic_ns, thread_cpu_ns, thread_id};
use crate::raw_threads::cpu_ns_of;
use crate::report::{Arm, Report};
use crate::sleepers::{STACK_BYTES, Sleepers};
use crate::{Effort, Outcome, child};

const WORK: Duration = Duration::from_millis(4);
const PAUSE: Duration = Duration::from_millis(46);
/// Wait after a session's start, until the profiler has found that the threads sleep.
const SETTLE: Duration = Duration::from_millis(1500);
/// Numbers of threads to try, if the system does not allow the first of them.
const MOST: [usize; 4] = [10_000, 8000, 5000, 2000];
const RUNNER: &str = "runner";
const GOAL_PERCENT: f64 = 10.0;
const GOAL_GROWTH: f64 = 3.0;

/// One setting of the program and of the session.
struct Setting {
    threads: usize,
    runners: usize,
    is_registered: bool,
    hz: u32,
}

impl Setting {
    fn name(&self) -> String {
        let unregistered = if self.is_registered {
            ""
        } else {
            "_unregistered"
        };
        let hz = if self.hz == 1000 {
            String::new()
        } else {
            format!("_{}hz", self.hz)
        };
        format!("{}_{}{unregistered}{hz}", self.threads, self.runners)
    }

    /// Returns whether all figures of this setting are in the report.
    fn is_central(&self) -> bool {
        self.is_registered && self.hz == 1000 && self.runners == 2
    }
}

/// Further figures of a central setting, besides the sampler's CPU time and the missed ticks.
const FIGURES: [&str; 15] = [
    "start",
    "stop",
    "resident",
    "growth",
    "buffer",
    "gecko_ms",
    "gecko_mb",
    "gecko_gz_ms",
    "gecko_gz_mb",
    "processed_ms",
    "processed_mb",
    "processed_gz_ms",
    "processed_gz_mb",
    "captured",
    "in_work",
];

pub(crate) fn measure(effort: Effort) -> Outcome {
    let (rounds, span_ms) = if effort.quick { (1, 700) } else { (3, 5000) };
    let most = most_threads()?;
    let settings = |threads| {
        let setting = move |runners, is_registered, hz| Setting {
            threads,
            runners,
            is_registered,
            hz,
        };
        [
            setting(0, true, 1000),
            setting(2, true, 1000),
            setting(8, true, 1000),
            setting(2, true, 100),
            setting(2, false, 1000),
        ]
    };
    let settings: Vec<Setting> = [100, 1000, most].into_iter().flat_map(settings).collect();
    let mut arms: Vec<Arm> = Vec::new();
    let mut add = |name: String, figure: f64| match arms.iter_mut().find(|arm| arm.name == name) {
        Some(arm) => arm.runs.push(figure),
        None => {
            let mut arm = Arm::extra(String::leak(name));
            arm.runs.push(figure);
            arms.push(arm);
        }
    };
    let mut notes = vec![format!(
        "{rounds} rounds of {span_ms} ms per arm after {SETTLE:?}, interleaved; at most {most} threads, stacks of {} \
         KiB; {}",
        STACK_BYTES >> 10,
        load_note()
    )];
    for round in 1..=rounds {
        for setting in &settings {
            let arguments = [
                setting.threads.to_string(),
                setting.runners.to_string(),
                setting.is_registered.to_string(),
                setting.hz.to_string(),
                span_ms.to_string(),
                setting.is_central().to_string(),
            ];
            let (run, taken) = machine::watch(|| child::run("wide", &arguments));
            let run = run?;
            let name = setting.name();
            for figure in ["sampler", "missed"] {
                add(format!("{figure}_{name}"), number(&run, figure));
            }
            if setting.is_central() {
                for figure in FIGURES {
                    add(format!("{figure}_{name}"), number(&run, figure));
                }
            }
            notes.push(format!(
                "round {round}: {name}: {}; CPUs used by other processes + the hypervisor: {taken}",
                run["note"].as_str().unwrap_or_default(),
            ));
        }
    }
    let figure = |arms: &[Arm], name: &str| {
        let arm = arms.iter().find(|arm| arm.name == name);
        arm.map_or(f64::NAN, Arm::figure)
    };
    for name in ["sampler"].iter().chain(&FIGURES) {
        let [more, fewer] =
            [most, 1000].map(|threads| figure(&arms, &format!("{name}_{threads}_2")));
        let mut arm = Arm::extra(String::leak(format!("grows_{name}")));
        arm.runs.push(more / fewer);
        arms.push(arm);
    }
    let central = format!("sampler_{most}_2");
    let at = arms.iter().position(|arm| arm.name == central);
    let ours = Arm {
        runs: arms
            .remove(at.ok_or("the arm of the figure is missing")?)
            .runs,
        ..Arm::new("ours")
    };
    let met = ours.figure() <= GOAL_PERCENT && figure(&arms, "grows_sampler") <= GOAL_GROWTH;
    Ok(Report {
        unit: "sampler's CPU time in % of one CPU, with the most threads, of which 2 run on and off; the others by name",
        ours,
        peers: arms,
        floor: None,
        better: f64::min,
        goal: "ours <= 10 %, and <= 3 times that with 1,000 threads",
        met,
        notes,
    })
}

/// Returns the largest of the numbers of threads that the system allows.
fn most_threads() -> Result<usize, Box<dyn Error>> {
    for threads in MOST {
        if child::run("wide", &["probe".to_owned(), threads.to_string()]).is_ok() {
            return Ok(threads);
        }
    }
    Err("the system does not allow 2,000 threads".into())
}

/// Runs one arm in the child process. Arguments: the fields of [`Setting`], the span in
/// milliseconds, and whether to save the profile; or `probe` and a number of threads to make.
pub(crate) fn run_part(arguments: &[String]) -> Result<Value, Box<dyn Error>> {
    match arguments {
        [what, threads] if what == "probe" => {
            // Signal stacks take memory mappings, too, and the kernel limits their number.
            Sleepers::start(threads.parse()?, || register_thread("sleeper"))?;
            Ok(Value::Null)
        }
        [threads, runners, is_registered, hz, span_ms, saves] => {
            let setting = Setting {
                threads: threads.parse()?,
                runners: runners.parse()?,
                is_registered: is_registered.parse()?,
                hz: hz.parse()?,
            };
            let span = Duration::from_millis(span_ms.parse()?);
            run(&setting, span, saves.parse()?)
        }
        _ => Err("expected a setting, the span in ms, and whether to save".into()),
    }
}

fn run(setting: &Setting, span: Duration, saves: bool) -> Result<Value, Box<dyn Error>> {
    let bare_bytes = resident_bytes();
    let first = |name: &'static str| {
        let is_registered = setting.is_registered;
        move || {
            if is_registered {
                register_thread(name);
            }
        }
    };
    let register: fn() = if setting.is_registered {
        || register_thread("sleeper")
    } else {
        || {}
    };
    let begin = Instant::now();
    let sleepers = Sleepers::start(setting.threads - setting.runners, register)?;
    let made_ms = ms_since(begin);
    let runners = Runners::start(setting.runners, first(RUNNER))?;
    let before_bytes = resident_bytes();

    let interval = Duration::from_secs(1) / setting.hz;
    let params = StartParams::default().interval(interval);
    let runners_before_ns = runners.cpu_ns();
    let begin = Instant::now();
    let session = ProfilerSession::start(params)?;
    let start_ms = ms_since(begin);
    std::thread::sleep(SETTLE);
    let (counts_before, put_before) = (Counts::of(&session.snapshot()?), put_bytes());
    let (settled_bytes, before) = (resident_bytes(), monotonic_ns());
    std::thread::sleep(span);
    let (end_bytes, put_after, after) = (resident_bytes(), put_bytes(), monotonic_ns());
    let runners_ns = runners.cpu_ns() - runners_before_ns;
    let begin = Instant::now();
    let profile = session.finish()?;
    let stop_ms = ms_since(begin);
    let all_counts = Counts::of(&profile);
    let counts = all_counts.since(&counts_before);
    drop(runners);

    let seconds = (after - before) as f64 / 1e9;
    let growth = |before: u64, after: u64| after as f64 - before as f64;
    let kib = |bytes: f64| bytes / 1024.0;
    let mut answer = json!({
        "sampler": counts.sampler_cpu_ns as f64 / 1e7 / seconds,
        "missed": counts.missed_ticks as f64 * 100.0 / (counts.ticks + counts.missed_ticks) as f64,
        "start": start_ms,
        "stop": stop_ms,
        "resident": kib(growth(before_bytes, settled_bytes)) / setting.threads as f64,
        "growth": kib(growth(settled_bytes, end_bytes)) / seconds,
        "buffer": put_after.saturating_sub(put_before) as f64 / seconds,
    });
    let mut note = format!(
        "sampler {:.2} %, {} ticks of {:.1} µs of CPU time, {} missed; before the span {:.0} ms of CPU time and {} \
         missed; start {start_ms:.1} ms, stop {stop_ms:.1} ms; KiB per thread: {:.1} to exist and register, {:.1} in the \
         session; {:.0} KiB per second; {:.0} bytes of buffer per second; {made_ms:.0} ms to make the threads, {} of \
         whose calls were interrupted",
        number(&answer, "sampler"),
        counts.ticks,
        counts.sampler_cpu_ns as f64 / 1e3 / counts.ticks.max(1) as f64,
        counts.missed_ticks,
        counts_before.sampler_cpu_ns as f64 / 1e6,
        counts_before.missed_ticks,
        kib(growth(bare_bytes, before_bytes)) / setting.threads as f64,
        number(&answer, "resident"),
        number(&answer, "growth"),
        number(&answer, "buffer"),
        sleepers.interrupted(),
    );
    if setting.runners > 0 {
        // Also looks up the names, so that the times of saving are without that.
        let (captured, in_work) = captured_in(&profile);
        let share = |cpu: Duration| cpu.as_nanos() as f64 / runners_ns as f64;
        answer["captured"] = json!(share(captured));
        answer["in_work"] = json!(share(in_work));
        note += &format!(
            "; the samples have {:.1} % of the runners' {:.0} ms of CPU time, {:.1} % in their work",
            share(captured) * 100.0,
            runners_ns as f64 / 1e6,
            share(in_work) * 100.0
        );
    }
    if saves {
        for (name, ending) in [
            ("gecko", "json"),
            ("gecko_gz", "json.gz"),
            ("processed", "processed.json"),
            ("processed_gz", "processed.json.gz"),
        ] {
            let file = TemporaryFile::new(ending);
            let begin = Instant::now();
            profile.save(&file.0)?;
            let (ms, mb) = (ms_since(begin), file.bytes()? as f64 / 1e6);
            answer[format!("{name}_ms")] = json!(ms);
            answer[format!("{name}_mb")] = json!(mb);
            note += &format!("; {name}: {mb:.2} MB in {ms:.0} ms");
        }
    }
    answer["note"] = json!(note);
    Ok(answer)
}

fn number(run: &Value, name: &str) -> f64 {
    run[name].as_f64().unwrap_or(f64::NAN)
}

fn ms_since(begin: Instant) -> f64 {
    begin.elapsed().as_secs_f64() * 1e3
}

fn put_bytes() -> u64 {
    profiler_get_buffer_info().map_or(0, |info| info.range_end)
}

/// Returns the CPU time in the runners' samples, and that in samples of their work.
fn captured_in(profile: &Profile) -> (Duration, Duration) {
    let threads = profile.summarize();
    let runners = threads.iter().filter(|thread| thread.name == RUNNER);
    runners.fold(
        (Duration::ZERO, Duration::ZERO),
        |(cpu, in_work), thread| {
            let works = thread
                .functions
                .iter()
                .filter(|function| function.name.contains("work_of_a_runner"));
            let work: Duration = works
                .map(|function| function.total_time)
                .max()
                .unwrap_or_default();
            (cpu + thread.cpu, in_work + work)
        },
    )
}

/// Threads that work on and off. Dropping this ends them.
struct Runners {
    ids: Vec<i32>,
    stop: Arc<AtomicBool>,
    threads: Vec<std::thread::JoinHandle<()>>,
}

impl Runners {
    /// Starts threads that each call `first`, and returns when all have done so.
    fn start(
        count: usize,
        first: impl Fn() + Clone + Send + 'static,
    ) -> Result<Self, Box<dyn Error>> {
        let stop = Arc::new(AtomicBool::new(false));
        let (ready, is_ready) = channel();
        let mut threads = Vec::new();
        for _ in 0..count {
            let (stop, ready, first) = (Arc::clone(&stop), ready.clone(), first.clone());
            let builder = std::thread::Builder::new().name(RUNNER.to_owned());
            threads.push(builder.spawn(move || {
                first();
                // The receiver lives until it has received this.
                let _ = ready.send(thread_id());
                while !stop.load(Ordering::Relaxed) {
                    work_of_a_runner();
                    std::thread::sleep(PAUSE);
                }
            })?);
        }
        drop(ready);
        let ids: Vec<i32> = is_ready.iter().take(count).collect();
        if ids.len() < count {
            return Err("a thread panicked".into());
        }
        Ok(Self { ids, stop, threads })
    }

    /// Returns the CPU time of all of them.
    fn cpu_ns(&self) -> u64 {
        self.ids.iter().filter_map(|id| cpu_ns_of(*id)).sum()
    }
}

impl Drop for Runners {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // A panic has been printed.
            let _ = thread.join();
        }
    }
}

/// Works until the calling thread has used [`WORK`] of CPU time.
#[inline(never)]
fn work_of_a_runner() {
    let end_ns = thread_cpu_ns() + WORK.as_nanos() as u64;
    while thread_cpu_ns() < end_ns {
        std::hint::black_box((0..2000u64).fold(1u64, |hash, number| {
            (hash ^ number).wrapping_mul(0x100_0000_01b3)
        }));
    }
}

/// Counters of the session.
struct Counts {
    ticks: u64,
    missed_ticks: u64,
    sampler_cpu_ns: u64,
}

impl Counts {
    fn of(profile: &Profile) -> Self {
        let count = |name| count(profile, name).unwrap_or(0);
        Self {
            ticks: count("ticks"),
            missed_ticks: count("missed_ticks"),
            sampler_cpu_ns: count("sampler_cpu_ns"),
        }
    }

    fn since(&self, before: &Self) -> Self {
        Self {
            ticks: self.ticks - before.ticks,
            missed_ticks: self.missed_ticks - before.missed_ticks,
            sampler_cpu_ns: self.sampler_cpu_ns - before.sampler_cpu_ns,
        }
    }
}

/// A file of a profile. Dropping this removes it.
struct TemporaryFile(PathBuf);

impl TemporaryFile {
    fn new(ending: &str) -> Self {
        let name = format!("gekkota-peers-wide-{}.{ending}", std::process::id());
        Self(std::env::temp_dir().join(name))
    }

    fn bytes(&self) -> std::io::Result<u64> {
        Ok(std::fs::metadata(&self.0)?.len())
    }
}

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        // If it could not be saved, there is no file.
        let _: std::io::Result<()> = std::fs::remove_file(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_the_settings_apart() {
        let setting = |is_registered, hz| Setting {
            threads: 1000,
            runners: 2,
            is_registered,
            hz,
        };
        assert_eq!(setting(true, 1000).name(), "1000_2");
        assert_eq!(setting(true, 100).name(), "1000_2_100hz");
        assert_eq!(setting(false, 1000).name(), "1000_2_unregistered");
        assert!(setting(true, 1000).is_central() && !setting(false, 1000).is_central());
    }

    #[test]
    fn run_has_each_figure() {
        let setting = Setting {
            threads: 6,
            runners: 1,
            is_registered: true,
            hz: 1000,
        };
        let run = run(&setting, Duration::from_millis(100), true).expect("a run");
        for figure in ["sampler", "missed"].iter().chain(&FIGURES) {
            assert!(number(&run, figure).is_finite(), "{figure}: {run}");
        }
    }
}
