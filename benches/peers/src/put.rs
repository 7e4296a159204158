//! `put`: time to add a small marker, from 1, 2 and 16 threads at once.
//!
//! A figure is CPU time per call: the time from the first thread's first call to the last thread's
//! last call, times the processors in use, divided by the number of all calls. So it grows when
//! threads wait for each other. Every arm reads the clock once for its marker, as
//! `ProfilerTime::now` does. `clock_N` is that reading by itself, from N threads, and is subtracted
//! from the other figures; this also subtracts the loop around the calls.
//!
//! `ours` is `add_untyped_marker` with a name and a category. `mutex` encodes the same marker as
//! Gecko does, into a `Vec` behind a `parking_lot::Mutex`, overwriting the oldest bytes. `channel`
//! sends the marker through a bounded `crossbeam` channel; a sender that finds it full removes the
//! oldest marker, so it is a ring as well. These three hold 16 MiB of markers and are full from the
//! start. `channel_drained` is unbounded; an additional thread drains it and needs a processor of
//! its own.
//!
//! `…_p999` are 99.9th percentiles of single calls. They include the marker's reading of the clock
//! and two readings of the processor's clock; `clock_N_p999` shows these readings by themselves.
//! With more threads than processors, some calls include a time in which the thread was
//! descheduled.
//!
//! All arms run in one session at 1,000 Hz, on sampled threads. Their batches are interleaved in
//! one process, and the order rotates; each round is a separate process.

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, TrySendError, bounded, unbounded};
use gekkota::{
    MarkerOptions, ProfilerSession, ProfilerTime, StartParams, ThreadGuard, add_untyped_marker,
    gecko_profiler_category,
};
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::machine::{self, load_note};
use crate::profile::engine_of_params;
use crate::raw::{cycles, processors};
use crate::report::{Arm, Report, median};
use crate::target::measure_cycles_per_ns;
use crate::{Effort, Outcome, child};

const INTERVAL: Duration = Duration::from_millis(1);
const CAPACITY_BYTES: usize = 16 << 20;
/// Calls per batch, of all threads together: about ten milliseconds.
const CALLS: usize = 480_000;
/// Calls per thread before the batch begins.
const WARM_UP_CALLS: usize = 1_000;
const GOAL_NANOSECONDS: f64 = 25.0;

const THREADS: [usize; 3] = [1, 2, 16];

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Method {
    Clock,
    Ours,
    Mutex,
    Channel,
    DrainedChannel,
}

impl Method {
    const ALL: [Self; 5] = [
        Self::Clock,
        Self::Ours,
        Self::Mutex,
        Self::Channel,
        Self::DrainedChannel,
    ];

    /// Returns the names of the method's arms: for the means and for the percentiles, one name per
    /// number of threads.
    fn names(self) -> [[&'static str; 3]; 2] {
        match self {
            Self::Clock => [
                ["clock_1", "clock_2", "clock_16"],
                ["clock_1_p999", "clock_2_p999", "clock_16_p999"],
            ],
            Self::Ours => [
                ["ours", "ours_2", "ours_16"],
                ["ours_1_p999", "ours_2_p999", "ours_16_p999"],
            ],
            Self::Mutex => [
                ["mutex", "mutex_2", "mutex_16"],
                ["mutex_1_p999", "mutex_2_p999", "mutex_16_p999"],
            ],
            Self::Channel => [
                ["channel", "channel_2", "channel_16"],
                ["channel_1_p999", "channel_2_p999", "channel_16_p999"],
            ],
            Self::DrainedChannel => [
                ["channel_drained", "channel_drained_2", "channel_drained_16"],
                [
                    "channel_drained_1_p999",
                    "channel_drained_2_p999",
                    "channel_drained_16_p999",
                ],
            ],
        }
    }
}

/// The arms that `ours` is compared with: with one thread, where they are at their best.
const PEERS: [&str; 3] = ["mutex", "channel", "channel_drained"];

pub(crate) fn measure(effort: Effort) -> Outcome {
    let (rounds, batches) = if effort.quick { (2, 5) } else { (7, 20) };
    let mut arms: Vec<Arm> = Vec::new();
    for names in [0, 1].map(|single| Method::ALL.map(|method| method.names()[single])) {
        for name in names.as_flattened() {
            arms.push(if PEERS.contains(name) {
                Arm::new(name)
            } else {
                Arm::extra(name)
            });
        }
    }
    let mut notes = vec![format!(
        "{rounds} rounds of {batches} batches of {CALLS} calls per arm, interleaved; {}",
        load_note()
    )];
    for round in 1..=rounds {
        let (run, taken) = machine::watch(|| child::run("put", &[batches.to_string()]));
        let run = run?;
        for arm in &mut arms {
            arm.runs.push(
                run[arm.name]
                    .as_f64()
                    .ok_or("the child's answer lacks the figure of an arm")?,
            );
        }
        notes.push(format!(
            "round {round}: engine: {}; CPUs used by other processes + the hypervisor: {taken}",
            run["engine"].as_str().unwrap_or_default()
        ));
    }
    let processors = processors().len();
    let mut figures = Method::Ours.names()[0]
        .into_iter()
        .zip(THREADS)
        .map(|(name, threads)| {
            (
                threads,
                arms.iter()
                    .find(|arm| arm.name == name)
                    .map_or(f64::NAN, Arm::figure),
            )
        });
    let met = figures.all(|(threads, figure)| threads > processors || figure <= GOAL_NANOSECONDS);
    let place = arms
        .iter()
        .position(|arm| arm.name == "ours")
        .ok_or("no arm `ours`")?;
    let ours = Arm {
        extra: false,
        ..arms.remove(place)
    };
    Ok(Report {
        unit: "ns per marker without reading the clock (`clock_N` and `…_p999`: with it)",
        ours,
        peers: arms,
        floor: None,
        better: f64::min,
        goal: "ours <= 25 ns, with one thread and with as many as there are processors",
        met,
        notes,
    })
}

/// Runs one round in the child process. Argument: the number of batches per arm.
pub(crate) fn run_part(arguments: &[String]) -> Result<Value, Box<dyn Error>> {
    let [batches] = arguments else {
        return Err("expected the number of batches".into());
    };
    let batches: usize = batches.parse()?;
    let params = StartParams::default()
        .interval(INTERVAL)
        .capacity_bytes(CAPACITY_BYTES as u64);
    let engine = engine_of_params(params.clone())?;
    let session = ProfilerSession::start(params)?;
    let stores = Stores::new();
    let cycles_per_ns = measure_cycles_per_ns();
    let fill = Batch {
        method: Method::Ours,
        threads: 2,
        calls: CAPACITY_BYTES / 16,
    };
    for method in Method::ALL {
        Batch { method, ..fill }.run(&stores)?;
    }

    let places: Vec<(Method, usize)> = Method::ALL
        .into_iter()
        .flat_map(|method| (0..THREADS.len()).map(move |at| (method, at)))
        .collect();
    let mut times = BTreeMap::<&str, Vec<f64>>::new();
    for turn in 0..batches {
        for place in 0..places.len() {
            let (method, at) = places[(turn + place) % places.len()];
            let batch = Batch {
                method,
                threads: THREADS[at],
                calls: CALLS,
            };
            let [mean, single] = method.names().map(|names| names[at]);
            times.entry(mean).or_default().push(batch.run(&stores)?);
            let p999 = batch.run_singly(&stores)? / cycles_per_ns;
            times.entry(single).or_default().push(p999);
        }
    }
    drop(session.finish()?);
    let mut figures: BTreeMap<&str, f64> = times
        .into_iter()
        .map(|(name, times)| (name, median(&times)))
        .collect();
    for (at, clock) in Method::Clock.names()[0].into_iter().enumerate() {
        let clock_ns = figures.get(clock).copied().unwrap_or(f64::NAN);
        for method in Method::ALL
            .into_iter()
            .filter(|method| *method != Method::Clock)
        {
            figures
                .entry(method.names()[0][at])
                .and_modify(|figure| *figure -= clock_ns);
        }
    }
    let mut answer = json!(figures);
    answer["engine"] = json!(engine);
    Ok(answer)
}

/// A marker to send through a channel.
struct Marker {
    _time: ProfilerTime,
    _name: &'static str,
    _thread: u64,
    _category: u16,
}

/// Destinations of the arms' markers.
struct Stores {
    gecko: Mutex<GeckoBuffer>,
    ring: (Sender<Marker>, Receiver<Marker>),
    drained: (Sender<Marker>, Receiver<Marker>),
}

impl Stores {
    fn new() -> Self {
        Self {
            gecko: Mutex::new(GeckoBuffer {
                bytes: vec![0; CAPACITY_BYTES],
                at: 0,
            }),
            ring: bounded(CAPACITY_BYTES / size_of::<Marker>()),
            drained: unbounded(),
        }
    }

    #[inline(always)]
    fn put(&self, method: Method, thread: u64) {
        const NAME: &str = "a marker";
        let marker = || Marker {
            _time: ProfilerTime::now(),
            _name: NAME,
            _thread: thread,
            _category: 1,
        };
        match method {
            Method::Clock => drop(std::hint::black_box(ProfilerTime::now())),
            Method::Ours => {
                add_untyped_marker(
                    NAME,
                    gecko_profiler_category!(Other),
                    MarkerOptions::default(),
                );
            }
            Method::Mutex => {
                let now = std::hint::black_box(ProfilerTime::now());
                self.gecko.lock().put(thread, now, NAME);
            }
            Method::Channel => {
                let mut marker = marker();
                while let Err(TrySendError::Full(back)) = self.ring.0.try_send(marker) {
                    drop(self.ring.1.try_recv());
                    marker = back;
                }
            }
            // The receiver lives as long as the sender.
            Method::DrainedChannel => drop(self.drained.0.send(marker())),
        }
    }
}

/// A ring of entries like Gecko's: length, kind, thread, timing, no stack, no window, the name as a
/// pointer, category, and the tag for no payload. The time is a number of milliseconds.
struct GeckoBuffer {
    bytes: Vec<u8>,
    at: usize,
}

impl GeckoBuffer {
    const ENTRY_BYTES: usize = 1 + 1 + 8 + 1 + 8 + 1 + 1 + 1 + 8 + 1 + 1;

    #[inline(never)]
    fn put(&mut self, thread: u64, _now: ProfilerTime, name: &'static str) {
        if self.at + Self::ENTRY_BYTES > self.bytes.len() {
            self.at = 0;
        }
        let entry = &mut self.bytes[self.at..self.at + Self::ENTRY_BYTES];
        self.at += Self::ENTRY_BYTES;
        let mut at = 0;
        let mut write = |part: &[u8]| {
            entry[at..at + part.len()].copy_from_slice(part);
            at += part.len();
        };
        write(&[Self::ENTRY_BYTES as u8 - 1, 25]);
        write(&thread.to_le_bytes());
        write(&[1]);
        // Any value will do for the time: `ProfilerTime` does not reveal its own.
        write(&(self.at as f64).to_le_bytes());
        write(&[0, 0, (name.len() << 1) as u8]);
        write(&name.as_ptr().addr().to_le_bytes());
        write(&[1, 0]);
    }
}

#[derive(Clone, Copy)]
struct Batch {
    method: Method,
    threads: usize,
    /// Calls of all threads together.
    calls: usize,
}

impl Batch {
    /// Runs the batch and returns the nanoseconds per call.
    fn run(self, stores: &Stores) -> Result<f64, Box<dyn Error>> {
        let calls = self.calls / self.threads;
        // Each arm gets its own copy of the loop.
        macro_rules! run {
            ($($method:ident)*) => {
                match self.method {
                    $(Method::$method => self.run_on_threads(stores, |thread| {
                        let begin = Instant::now();
                        for _ in 0..calls {
                            stores.put(Method::$method, thread);
                        }
                        (begin, Instant::now())
                    }),)*
                }
            };
        }
        let spans = run!(Clock Ours Mutex Channel DrainedChannel)?;
        let first = spans.iter().map(|span| span.0).min();
        let last = spans.iter().map(|span| span.1).max();
        let (first, last) = first.zip(last).ok_or("the batch has no threads")?;
        let processors = processors().len().min(self.threads);
        Ok((last - first).as_secs_f64() * 1e9 * processors as f64 / (calls * self.threads) as f64)
    }

    /// Runs the batch and returns the 99.9th percentile of single calls, in cycles.
    fn run_singly(self, stores: &Stores) -> Result<f64, Box<dyn Error>> {
        let calls = self.calls / self.threads;
        macro_rules! run {
            ($($method:ident)*) => {
                match self.method {
                    $(Method::$method => self.run_on_threads(stores, |thread| {
                        // Zeros would not do: their pages would be mapped only during the
                        // measurement.
                        let mut times = vec![u32::MAX; calls];
                        for time in &mut times {
                            let begin = cycles();
                            stores.put(Method::$method, thread);
                            *time = u32::try_from(cycles().saturating_sub(begin)).unwrap_or(u32::MAX);
                        }
                        times
                    }),)*
                }
            };
        }
        let mut times = run!(Clock Ours Mutex Channel DrainedChannel)?.concat();
        let place = times.len() - 1 - times.len() / 1000;
        Ok(f64::from(*times.select_nth_unstable(place).1))
    }

    /// Runs `calls` on each thread once all are ready. For the unbounded channel, an additional
    /// thread drains it.
    fn run_on_threads<T: Send>(
        self,
        stores: &Stores,
        calls: impl Fn(u64) -> T + Sync,
    ) -> Result<Vec<T>, Box<dyn Error>> {
        let all_are_ready = Barrier::new(self.threads);
        let (done, is_done) = bounded::<()>(0);
        std::thread::scope(|scope| {
            if self.method == Method::DrainedChannel {
                let (receiver, is_done) = (&stores.drained.1, is_done);
                scope.spawn(move || {
                    loop {
                        crossbeam_channel::select_biased! {
                            recv(receiver) -> marker => drop(std::hint::black_box(marker)),
                            recv(is_done) -> _ => break,
                        }
                    }
                });
            }
            let (all_are_ready, calls) = (&all_are_ready, &calls);
            let threads: Vec<_> = (0..self.threads as u64)
                .map(|thread| {
                    scope.spawn(move || {
                        let _registered = ThreadGuard::register("put");
                        for _ in 0..WARM_UP_CALLS {
                            stores.put(self.method, thread);
                        }
                        all_are_ready.wait();
                        calls(thread)
                    })
                })
                .collect();
            let results = threads
                .into_iter()
                .map(|thread| thread.join())
                .collect::<Result<Vec<_>, _>>();
            drop(done);
            results.map_err(|_| "a thread panicked".into())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gecko_buffer_overwrites_the_oldest_entry() {
        let mut buffer = GeckoBuffer {
            bytes: vec![0; 3 * GeckoBuffer::ENTRY_BYTES],
            at: 0,
        };
        for _ in 0..4 {
            buffer.put(7, ProfilerTime::now(), "a marker");
        }
        assert_eq!(buffer.at, GeckoBuffer::ENTRY_BYTES);
        assert_eq!(&buffer.bytes[..2], [31, 25]);
    }

    #[test]
    fn every_method_runs() {
        let stores = Stores::new();
        for method in Method::ALL {
            let batch = Batch {
                method,
                threads: 2,
                calls: 2_000,
            };
            assert!(batch.run(&stores).expect("a batch") > 0.0, "{method:?}");
            assert!(
                batch.run_singly(&stores).expect("a batch") > 0.0,
                "{method:?}"
            );
        }
        assert!(stores.drained.1.is_empty() && !stores.ring.1.is_empty());
    }
}
