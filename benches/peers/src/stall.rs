//! `stall`: the time that one sample takes from a busy thread whose stack is 36 frames deep.
//!
//! The thread reads the processor's clock in a tight loop at the bottom of a recursion. Where two readings are further
//! apart than the loop can explain, somebody had the processor meanwhile, and the thread adds the gap to what it lost.
//! What it loses without any profiler, to the kernel's ticks and a virtual machine's host, is measured in spans of the
//! same length before and after, and taken off; the rest, by the samples that were taken, is the figure. A gap of a
//! millisecond and more is another program's turn or the host's, which no sample takes; it belongs to no span, and the
//! notes tell how many there were.
//!
//! The thread has a processor of its own, where there are two or more, and all others of the process, the sampler among
//! them, share the rest: whoever samples comes from another processor.
//!
//! Each run is a process of its own. The arms take turns. The floor is a handler that does nothing but count, signalled
//! by a thread that does nothing but sleep and signal. `gecko_style` is `handshake.rs`.
//!
//! For local timers, the second engine, the bare costs stand beside: of a `perf_event_open` CPU clock that signals, and
//! of a POSIX timer whose interrupt comes on the thread's own processor, both into that same empty handler. No engine
//! can be cheaper than what it is built on.

use std::error::Error;
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use gekkota::{ProfilerSession, SamplingEngine, StartParams, register_thread};
use serde_json::{Value, json};

use crate::handshake::HandshakeSampler;
use crate::machine::{self, load_note};
use crate::profile::{count, engine_of, is_local_timers};
use crate::raw::{self, EmptyHandler, PerfTimer, PosixTimer, StoppableThread};
use crate::report::{Arm, Report, median};
use crate::schedule::Schedule;
use crate::{Effort, Outcome, child};

/// With the beginning of a thread and the end of the recursion, 36 frames.
const RECURSION: usize = 29;
const BUSY_NAME: &str = "busy";
/// The loop takes some 20 ns a turn, and the shortest interrupt more than a microsecond.
const SHORTEST_GAP: Duration = Duration::from_nanos(600);
const LONGEST_GAP: Duration = Duration::from_millis(1);
/// From a sampler's start until it samples, and from its end until the machine is quiet again.
const SETTLE: Duration = Duration::from_millis(20);
const SIGNALS_GOAL: f64 = 1.10;
const LOCAL_TIMERS_GOAL: f64 = 0.5;

/// What samples the thread: the name in the report at 10,000 Hz, which is the child's argument as well, and at 1,000.
const ARMS: [(&str, &str); 7] = [
    ("ours", "ours_1khz"),
    ("empty_handler", "empty_handler_1khz"),
    ("ours_local_timers", "ours_local_timers_1khz"),
    ("bare_perf_timer", "bare_perf_timer_1khz"),
    ("bare_posix_timer", "bare_posix_timer_1khz"),
    ("gecko_style", "gecko_style_1khz"),
    ("pprof", "pprof_1khz"),
];

pub(crate) fn measure(effort: Effort) -> Outcome {
    let (rounds, pairs, span_ms) = if effort.quick { (2, 2, 120) } else { (5, 4, 250) };
    let aside = ["ours_local_timers", "bare_perf_timer", "bare_posix_timer"];
    let mut fast =
        ARMS.map(|(name, _)| if aside.contains(&name) { Arm::aside(name) } else { Arm::new(name) });
    let mut slow = ARMS.map(|(_, name)| Arm::aside(name));
    let mut notes = vec![format!(
        "{rounds} rounds of {pairs} spans of {span_ms} ms an arm and frequency, in turns, as many quiet ones between; {}",
        load_note()
    )];
    let mut seen: Vec<Value> = Vec::new();
    for round in 1..=rounds {
        let (result, taken) = machine::watch(|| {
            for (hz, arms) in [(10_000, &mut fast), (1_000, &mut slow)] {
                for (arm, (name, _)) in arms.iter_mut().zip(ARMS) {
                    let arguments = [name.to_owned(), hz.to_string(), pairs.to_string(), span_ms.to_string()];
                    let run = child::run("stall", &arguments)?;
                    arm.runs.extend(run["ns_per_sample"].as_f64());
                    seen.push(run);
                }
            }
            Ok::<(), Box<dyn Error>>(())
        });
        result?;
        notes.push(format!("round {round}: processors that others + the hypervisor had: {taken}"));
    }
    notes.extend(notes_of(&seen));
    let figure = |name: &str| fast.iter().find(|arm| arm.name == name).map_or(f64::NAN, Arm::figure);
    let verdict = Verdict {
        floor: figure("empty_handler"),
        signals: figure("ours"),
        local_timers: figure("ours_local_timers"),
        allowed: figure("bare_perf_timer").is_finite(),
        used: seen
            .iter()
            .filter(|run| run["arm"] == "ours_local_timers")
            .all(|run| run["engine"].as_str().is_some_and(is_local_timers)),
    };
    notes.push(verdict.note());
    let met = verdict.is_met();
    let [ours, floor, others @ ..] = fast;
    let peers = others.into_iter().chain(slow).filter(|arm| !arm.runs.is_empty()).collect();
    Ok(Report {
        unit: "ns taken from a busy thread by one sample, 36 frames deep, at 10,000 Hz",
        ours,
        peers,
        floor: Some(floor),
        better: f64::min,
        goal: "ours <= 1.10 x empty_handler with signals, <= 0.5 x with local timers where allowed",
        met,
        notes,
    })
}

struct Verdict {
    floor: f64,
    signals: f64,
    local_timers: f64,
    /// Whether the kernel lets this process have the timers.
    allowed: bool,
    /// Whether the session that was asked to use them did.
    used: bool,
}

impl Verdict {
    fn is_met(&self) -> bool {
        let signals = self.signals <= SIGNALS_GOAL * self.floor;
        let local_timers = self.used && self.local_timers <= LOCAL_TIMERS_GOAL * self.floor;
        signals && (local_timers || !self.allowed)
    }

    fn note(&self) -> String {
        let signals = self.signals / self.floor;
        let local_timers = match (self.allowed, self.used) {
            (false, _) => "are not allowed here".to_owned(),
            (true, false) => "were asked for, and signals used".to_owned(),
            (true, true) => format!("{:.3}", self.local_timers / self.floor),
        };
        format!("by the floor: signals {signals:.3}, local timers {local_timers}")
    }
}

/// What the runs of each arm tell besides their figures.
fn notes_of(seen: &[Value]) -> Vec<String> {
    let mut notes = Vec::new();
    for (name, _) in ARMS {
        let of_arm = || seen.iter().filter(|run| run["arm"] == name);
        let rates = [10_000, 1_000].map(|hz| {
            let of_rate = of_arm().filter(|run| run["asked_hz"] == hz);
            let rates: Vec<f64> = of_rate.filter_map(|run| run["hz"].as_f64()).collect();
            format!("{:.0} of {hz}", median(&rates))
        });
        let refused = of_arm().find_map(|run| run["refused"].as_str());
        let mut note = match refused {
            Some(refused) => format!("{name}: {refused}"),
            None => format!("{name}: samples per second {}", rates.join(", ")),
        };
        let gaps: u64 = of_arm().filter_map(|run| run["longest_gaps"].as_u64()).sum();
        if gaps > 0 {
            note += &format!("; {gaps} gaps of {LONGEST_GAP:?} and more were left out");
        }
        if let Some(engine) = of_arm().find_map(|run| run["engine"].as_str()) {
            note += &format!("; engine: {engine}");
        }
        if let Some(frames) = of_arm().find_map(|run| run["frames"].as_u64()) {
            note += &format!("; {frames} frames");
        }
        notes.push(note);
    }
    notes
}

/// One arm's run in its own process. Arguments: the arm, samples per second, spans, and their length in ms.
pub(crate) fn run_part(arguments: &[String]) -> Result<Value, Box<dyn Error>> {
    let [arm, hz, pairs, span_ms] = arguments else { return Err("four arguments".into()) };
    let (hz, pairs, span_ms): (u32, u32, u64) = (hz.parse()?, pairs.parse()?, span_ms.parse()?);
    let span = Duration::from_millis(span_ms);
    let processors = raw::processors();
    let own = match processors.split_last() {
        Some((last, rest)) if !rest.is_empty() => {
            raw::run_on(rest)?;
            Some(*last)
        }
        _ => None,
    };
    let target = Target::start(own)?;
    let mut sampler = match Sampler::new(arm) {
        Ok(sampler) => sampler,
        Err(refusal) => return Ok(json!({"arm": arm, "asked_hz": hz, "refused": refusal.to_string()})),
    };
    // What a processor needs to get to its full speed.
    std::thread::sleep(Duration::from_millis(100));

    let (mut before, mut costs) = (target.watch(span), Vec::new());
    let (mut samples, mut seconds, mut longest_gaps) = (0, 0.0, 0);
    for _ in 0..pairs {
        let running = match sampler.start(&target, Duration::from_secs(1) / hz) {
            Ok(running) => running,
            Err(refusal) => return Ok(json!({"arm": arm, "asked_hz": hz, "refused": refusal.to_string()})),
        };
        let lost = target.watch(span);
        let taken = running.stop(&mut sampler)?;
        std::thread::sleep(SETTLE);
        let after = target.watch(span);
        if taken > 0 {
            costs.push(cost_of_sample(&lost, &[before, after], taken));
        }
        longest_gaps += before.longest_gaps + lost.longest_gaps;
        (samples, seconds, before) = (samples + taken, seconds + lost.span_ns / 1e9, after);
    }
    Ok(json!({
        "arm": arm,
        "asked_hz": hz,
        "hz": samples as f64 / seconds,
        "ns_per_sample": median(&costs),
        "longest_gaps": longest_gaps,
        "frames": sampler.frames,
        "engine": sampler.engine,
    }))
}

/// What a thread lost in a span.
#[derive(Clone, Copy, Debug)]
struct Lost {
    lost_ns: f64,
    /// Without the longest gaps.
    span_ns: f64,
    longest_gaps: u64,
}

/// What was lost above what is lost in quiet spans, by the samples.
fn cost_of_sample(lost: &Lost, quiet: &[Lost], samples: u64) -> f64 {
    let quiet_share =
        quiet.iter().map(|quiet| quiet.lost_ns / quiet.span_ns).sum::<f64>() / quiet.len() as f64;
    (lost.lost_ns - quiet_share * lost.span_ns) / samples as f64
}

/// What the busy thread and the others share.
struct Meter {
    stop: AtomicBool,
    /// In cycles.
    shortest_gap: u64,
    longest_gap: u64,
    /// In cycles, from the thread's beginning.
    lost: AtomicU64,
    /// Longest gaps, in cycles and in number.
    left_out: AtomicU64,
    left_out_gaps: AtomicU64,
}

impl Meter {
    fn new(cycles_per_ns: f64) -> Self {
        let cycles = |time: Duration| (time.as_nanos() as f64 * cycles_per_ns) as u64;
        Self {
            stop: AtomicBool::new(false),
            shortest_gap: cycles(SHORTEST_GAP),
            longest_gap: cycles(LONGEST_GAP),
            lost: AtomicU64::new(0),
            left_out: AtomicU64::new(0),
            left_out_gaps: AtomicU64::new(0),
        }
    }

    /// A gap that the loop cannot explain.
    fn add(&self, gap: u64) {
        // Nobody else writes these.
        let add =
            |sum: &AtomicU64, number| sum.store(sum.load(Ordering::Relaxed) + number, Ordering::Relaxed);
        if gap < self.longest_gap {
            add(&self.lost, gap);
        } else {
            add(&self.left_out, gap);
            add(&self.left_out_gaps, 1);
        }
    }
}

/// The busy thread.
struct Target {
    meter: Arc<Meter>,
    cycles_per_ns: f64,
    stoppable: StoppableThread,
    thread_id: i32,
    processor: Option<usize>,
    thread: Option<JoinHandle<u64>>,
}

impl Target {
    fn start(processor: Option<usize>) -> Result<Self, Box<dyn Error>> {
        let cycles_per_ns = measure_cycles_per_ns();
        let meter = Arc::new(Meter::new(cycles_per_ns));
        let of_thread = Arc::clone(&meter);
        let (sender, receiver) = channel();
        let thread = std::thread::Builder::new().name(BUSY_NAME.to_owned()).spawn(move || {
            register_thread(BUSY_NAME);
            let pinned = processor.map_or(Ok(()), |processor| raw::run_on(&[processor]));
            let told = pinned.and_then(|()| Ok((StoppableThread::current()?, raw::thread_id())));
            // Whoever waits for it is there until it was received.
            let _ = sender.send(told);
            descend(RECURSION, &of_thread)
        })?;
        let (stoppable, thread_id) = receiver.recv()??;
        Ok(Self { meter, cycles_per_ns, stoppable, thread_id, processor, thread: Some(thread) })
    }

    fn watch(&self, span: Duration) -> Lost {
        let start = self.read();
        std::thread::sleep(span);
        let end = self.read();
        let in_ns = |cycles: u64| cycles as f64 / self.cycles_per_ns;
        Lost {
            lost_ns: in_ns(end.lost - start.lost),
            span_ns: (end.time - start.time).as_nanos() as f64 - in_ns(end.left_out - start.left_out),
            longest_gaps: end.left_out_gaps - start.left_out_gaps,
        }
    }

    fn read(&self) -> Reading {
        let sum = |sum: &AtomicU64| sum.load(Ordering::Relaxed);
        Reading {
            time: Instant::now(),
            lost: sum(&self.meter.lost),
            left_out: sum(&self.meter.left_out),
            left_out_gaps: sum(&self.meter.left_out_gaps),
        }
    }
}

struct Reading {
    time: Instant,
    lost: u64,
    left_out: u64,
    left_out_gaps: u64,
}

impl Drop for Target {
    fn drop(&mut self) {
        self.meter.stop.store(true, Ordering::Relaxed);
        if let Some(Ok(result)) = self.thread.take().map(JoinHandle::join) {
            black_box(result);
        }
    }
}

fn measure_cycles_per_ns() -> f64 {
    let (start, cycles) = (Instant::now(), raw::cycles());
    std::thread::sleep(Duration::from_millis(20));
    (raw::cycles() - cycles) as f64 / start.elapsed().as_nanos() as f64
}

#[inline(never)]
fn descend(levels: usize, meter: &Meter) -> u64 {
    // As much as an ordinary function keeps on its stack.
    let kept = black_box([levels as u64; 8]);
    let below = if levels == 0 { add_up_gaps(meter) } else { descend(levels - 1, meter) };
    below ^ black_box(kept)[levels % 8]
}

#[inline(never)]
fn add_up_gaps(meter: &Meter) -> u64 {
    let mut last = raw::cycles();
    while !meter.stop.load(Ordering::Relaxed) {
        let now = raw::cycles();
        let gap = now.saturating_sub(last);
        if gap > meter.shortest_gap {
            meter.add(gap);
        }
        last = now;
    }
    last
}

/// What an arm keeps from one start to the next.
struct Sampler {
    kind: Kind,
    frames: Option<usize>,
    engine: Option<String>,
}

enum Kind {
    Ours(SamplingEngine),
    EmptyHandler(EmptyHandler),
    PerfTimer(EmptyHandler),
    PosixTimer(EmptyHandler),
    /// Away while its thread runs.
    GeckoStyle(Option<HandshakeSampler>),
    Pprof,
}

/// An arm that samples now.
enum Running {
    Ours(ProfilerSession),
    Thread {
        stop: Arc<AtomicBool>,
        thread: JoinHandle<(u64, Option<HandshakeSampler>)>,
        frames: Arc<AtomicU64>,
    },
    PerfTimer {
        handler: EmptyHandler,
        answers: u64,
        timer: PerfTimer,
    },
    PosixTimer {
        handler: EmptyHandler,
        answers: u64,
        timer: PosixTimer,
    },
    Pprof(pprof::ProfilerGuard<'static>),
}

impl Sampler {
    fn new(arm: &str) -> Result<Self, Box<dyn Error>> {
        let kind = match arm {
            "ours" => Kind::Ours(SamplingEngine::Signals),
            "ours_local_timers" => Kind::Ours(SamplingEngine::LocalTimers),
            "empty_handler" => Kind::EmptyHandler(EmptyHandler::install()?),
            "bare_perf_timer" => Kind::PerfTimer(EmptyHandler::install()?),
            "bare_posix_timer" => Kind::PosixTimer(EmptyHandler::install()?),
            "gecko_style" => Kind::GeckoStyle(Some(HandshakeSampler::new()?)),
            "pprof" => Kind::Pprof,
            other => return Err(format!("there is no arm `{other}`").into()),
        };
        Ok(Self { kind, frames: None, engine: None })
    }

    fn start(&mut self, target: &Target, interval: Duration) -> Result<Running, Box<dyn Error>> {
        Ok(match &mut self.kind {
            Kind::Ours(engine) => {
                let params = StartParams::default().interval(interval).engine(*engine);
                Running::Ours(ProfilerSession::start(params)?)
            }
            Kind::EmptyHandler(handler) => {
                let (handler, thread_id, before) = (*handler, target.thread_id, handler.answers());
                start_thread(interval, move |stop, tick| {
                    while !stop.load(Ordering::Relaxed) {
                        if handler.send(thread_id).is_err() {
                            break;
                        }
                        tick();
                    }
                    (handler.answers() - before, None)
                })
            }
            Kind::GeckoStyle(sampler) => {
                let mut sampler = sampler.take().ok_or("it runs already")?;
                let thread = target.stoppable.clone();
                let frames = Arc::new(AtomicU64::new(0));
                let found = Arc::clone(&frames);
                let mut running = start_thread(interval, move |stop, tick| {
                    let mut samples = 0;
                    while !stop.load(Ordering::Relaxed) {
                        found.store(sampler.sample(&thread).len() as u64, Ordering::Relaxed);
                        samples += 1;
                        tick();
                    }
                    (samples, Some(sampler))
                });
                if let Running::Thread { frames: of_running, .. } = &mut running {
                    *of_running = frames;
                }
                running
            }
            Kind::PerfTimer(handler) => Running::PerfTimer {
                answers: handler.answers(),
                timer: handler.start_perf_timer(target.thread_id, interval)?,
                handler: *handler,
            },
            Kind::PosixTimer(handler) => {
                // A timer's interrupts come where it was set.
                let before = raw::processors();
                if let Some(processor) = target.processor {
                    raw::run_on(&[processor])?;
                }
                let timer = handler.start_posix_timer(target.thread_id, interval);
                raw::run_on(&before)?;
                Running::PosixTimer { answers: handler.answers(), timer: timer?, handler: *handler }
            }
            Kind::Pprof => {
                let hz = (1.0 / interval.as_secs_f64()).round();
                Running::Pprof(pprof::ProfilerGuard::new(hz as i32)?)
            }
        })
    }
}

/// A thread that is prepared as gekkota's sampler is, and ticks as it does: on a schedule, of which it drops what it
/// misses.
fn start_thread(
    interval: Duration,
    body: impl FnOnce(&AtomicBool, &mut dyn FnMut()) -> (u64, Option<HandshakeSampler>) + Send + 'static,
) -> Running {
    let stop = Arc::new(AtomicBool::new(false));
    let of_thread = Arc::clone(&stop);
    let thread = std::thread::spawn(move || {
        raw::prepare_sampler_thread();
        let mut schedule = Schedule::start(interval);
        body(&of_thread, &mut || schedule.sleep_to_next())
    });
    Running::Thread { stop, thread, frames: Arc::default() }
}

impl Running {
    /// The samples that it has taken.
    fn stop(self, sampler: &mut Sampler) -> Result<u64, Box<dyn Error>> {
        match self {
            Self::Ours(session) => {
                let profile = session.finish()?;
                if sampler.engine.is_none() {
                    sampler.engine = Some(engine_of(&profile)?);
                }
                count(&profile, "captured_samples").ok_or_else(|| "the profile does not count samples".into())
            }
            Self::Thread { stop, thread, frames } => {
                stop.store(true, Ordering::Relaxed);
                let (samples, handshake) = thread.join().map_err(|_| "the sampler has panicked")?;
                if let (Kind::GeckoStyle(place), Some(handshake)) = (&mut sampler.kind, handshake) {
                    *place = Some(handshake);
                    sampler.frames = Some(frames.load(Ordering::Relaxed) as usize);
                }
                Ok(samples)
            }
            Self::PerfTimer { handler, answers, timer } => {
                drop(timer);
                Ok(handler.answers() - answers)
            }
            Self::PosixTimer { handler, answers, timer } => {
                drop(timer);
                Ok(handler.answers() - answers)
            }
            Self::Pprof(guard) => {
                let report = guard.report().build_unresolved()?;
                let of_busy = report
                    .data
                    .iter()
                    .filter(|(stack, _)| {
                        stack.thread_name.get(..stack.thread_name_length) == Some(BUSY_NAME.as_bytes())
                    })
                    .map(|(_, count)| *count);
                Ok(of_busy.sum::<isize>() as u64)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_lost_without_samples_is_taken_off() {
        let lost = |lost_ns, span_ns| Lost { lost_ns, span_ns, longest_gaps: 0 };
        let quiet = [lost(100.0, 1e6), lost(600.0, 2e6)];
        assert_eq!(cost_of_sample(&lost(20_400.0, 2e6), &quiet, 2), 10_000.0);
    }

    #[test]
    fn both_goals_count_where_timers_are_allowed() {
        let verdict = |signals, local_timers, allowed, used| {
            Verdict { floor: 10.0, signals, local_timers, allowed, used }.is_met()
        };
        assert!(verdict(11.0, 5.0, true, true));
        assert!(!verdict(11.1, 5.0, true, true));
        assert!(!verdict(11.0, 5.1, true, true));
        assert!(!verdict(11.0, 5.0, true, false), "signals were used");
        assert!(verdict(11.0, 9.0, false, false));
        assert!(!verdict(f64::NAN, 5.0, true, true));
    }

    #[test]
    fn a_gap_is_lost_time_unless_it_is_of_the_longest() {
        let meter = Meter::new(2.0);
        for ns in [1_000, 20_000, 999_999, 1_000_000, 5_000_000] {
            meter.add(ns * 2);
        }
        let target = |meter| Target {
            meter: Arc::new(meter),
            cycles_per_ns: 2.0,
            stoppable: StoppableThread::current().expect("bounds"),
            thread_id: raw::thread_id(),
            processor: None,
            thread: None,
        };
        let reading = target(meter).read();
        assert_eq!((reading.lost, reading.left_out), (2 * 1_020_999, 2 * 6_000_000));
        assert_eq!(reading.left_out_gaps, 2);
    }

    #[test]
    fn the_busy_thread_loses_no_more_than_there_is() {
        let target = Target::start(None).expect("thread");
        let lost = target.watch(Duration::from_millis(50));
        assert!(lost.lost_ns >= 0.0 && lost.lost_ns <= lost.span_ns + 1e6, "{lost:?}");
    }
}
