//! `put`: time to add a small marker, from 1, 2 and 16 threads at once.
//!
//! A figure is CPU time per call: the time from the first thread's first call to the last thread's
//! last call, times the processors in use, divided by the number of all calls. So it grows when
//! threads wait for each other. Every arm reads the clock once for its marker, as
//! `ProfilerTime::now` does. `clock_N` is that reading by itself, from N threads, and is subtracted
//! from the other figures; this also subtracts the loop and the call by a pointer.
//!
//! `ours` is `add_untyped_marker` with a name and a category. `mutex` encodes the same marker as
//! Gecko does, into a `Vec` behind a `parking_lot::Mutex`, overwriting the oldest bytes. `channel`
//! sends the marker through a bounded `crossbeam` channel; a sender that finds it full removes the
//! oldest marker, so it is a ring as well. These three hold 16 MiB of markers and are full from the
//! start.
//!
//! `…_p999` are 99.9th percentiles of single calls. They include the marker's reading of the clock
//! and two readings of the processor's clock; `clock_N_p999` shows these readings by themselves.
//! With more threads than processors, some calls include a time in which the thread was
//! descheduled.
//!
//! All arms run in one session at 1,000 Hz, on sampled threads. Their batches are interleaved in
//! one process, and the order rotates; each round is a separate process.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::sync::Barrier;

use crossbeam_channel::{Receiver, Sender, TrySendError, bounded};
use gekkota::{MarkerOptions, ProfilerTime, add_untyped_marker, gecko_profiler_category};
use parking_lot::Mutex;

use crate::prelude::*;
use crate::raw::{cycles, processors};
use crate::target::measure_cycles_per_ns;

const CAPACITY_BYTES: usize = 16 << 20;
/// Calls per batch, of all threads together: about ten milliseconds.
const CALLS: usize = 480_000;
/// Calls per thread before the batch begins.
const WARM_UP_CALLS: usize = 1_000;
const THREADS: [usize; 3] = [1, 2, 16];
const NAME: &str = "a marker";

/// Adds a marker in the manner of an arm. The other argument is the number of the thread.
type Put = fn(&Stores, u64);

/// The arms, without the number of threads.
const ARMS: [(&str, Put); 4] = [
    ("clock", |_, _| _ = black_box(ProfilerTime::now())),
    ("ours", |_, _| {
        let category = gecko_profiler_category!(Other);
        add_untyped_marker(NAME, category, MarkerOptions::default());
    }),
    ("mutex", |stores, thread| {
        let now = black_box(ProfilerTime::now());
        stores.gecko.lock().put(thread, now, NAME);
    }),
    ("channel", |stores, thread| {
        let mut marker = Marker {
            _time: ProfilerTime::now(),
            _name: NAME,
            _thread: thread,
            _category: 1,
        };
        while let Err(TrySendError::Full(back)) = stores.ring.0.try_send(marker) {
            drop(stores.ring.1.try_recv());
            marker = back;
        }
    }),
];

pub(crate) const MEASUREMENT: Measurement = Measurement {
    name: "put",
    unit: "ns per marker without reading the clock (`clock_N` and `…_p999`: with it)",
    goal: "ours <= 25 ns, with one thread and with as many as there are processors",
    ours: "ours_1",
    // With one thread, the peers are at their best.
    peers: &["mutex_1", "channel_1"],
    is_met: |study| {
        let mut possible = THREADS
            .iter()
            .filter(|threads| **threads <= processors().len());
        possible.all(|threads| study.figure(&format!("ours_{threads}")) <= 25.0)
    },
    rounds: [2, 7],
    sizes: [&[5], &[20]],
    size_names: &["batches of 480,000 calls per arm"],
    part: run,
    ..Measurement::NEW
};

/// Runs one round. Arguments: the arm, which is all, and the number of batches per arm.
fn run(arguments: &Arguments) -> Fallible<Value> {
    let batches: usize = arguments.get(1)?;
    let params = StartParams::default().interval(INTERVAL);
    let session = ProfilerSession::start(params.capacity_bytes(CAPACITY_BYTES as u64))?;
    let stores = Stores::new();
    let cycles_per_ns = measure_cycles_per_ns();
    for (_, put) in ARMS {
        time(put, 2, CAPACITY_BYTES / 16, &stores)?;
    }
    let places = ARMS.map(|arm| THREADS.map(|threads| (arm, threads)));
    let places = places.as_flattened();
    let mut times = BTreeMap::<String, Vec<f64>>::new();
    for turn in 0..batches {
        for place in 0..places.len() {
            let ((name, put), threads) = places[(turn + place) % places.len()];
            let name = format!("{name}_{threads}");
            let p999 = time_singly(put, threads, CALLS, &stores)? / cycles_per_ns;
            times.entry(format!("{name}_p999")).or_default().push(p999);
            let mean = time(put, threads, CALLS, &stores)?;
            times.entry(name).or_default().push(mean);
        }
    }
    drop(session.finish()?);
    let figure = |name: &str| median(&times[name]);
    let mut answer = json!({});
    for name in times.keys() {
        let (method, rest) = name.split_once('_').unwrap_or_default();
        let is_without_clock = method != "clock" && !rest.ends_with("p999");
        let clock = if is_without_clock {
            figure(&format!("clock_{rest}"))
        } else {
            0.0
        };
        answer[name] = json!(figure(name) - clock);
    }
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
}

impl Stores {
    fn new() -> Self {
        Self {
            gecko: Mutex::new(GeckoBuffer {
                bytes: vec![0; CAPACITY_BYTES],
                at: 0,
            }),
            ring: bounded(CAPACITY_BYTES / size_of::<Marker>()),
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

/// Returns the nanoseconds per call, of `calls` by all threads together.
fn time(put: Put, threads: usize, calls: usize, stores: &Stores) -> Fallible<f64> {
    let calls = calls / threads;
    let spans = run_on_threads(put, threads, stores, |thread| {
        let begin = Instant::now();
        for _ in 0..calls {
            put(stores, thread);
        }
        (begin, Instant::now())
    })?;
    let first = spans.iter().map(|span| span.0).min();
    let last = spans.iter().map(|span| span.1).max();
    let (first, last) = first.zip(last).ok_or("the batch has no threads")?;
    let processors = processors().len().min(threads);
    Ok((last - first).as_secs_f64() * 1e9 * processors as f64 / (calls * threads) as f64)
}

/// Returns the 99.9th percentile of single calls, in cycles.
fn time_singly(put: Put, threads: usize, calls: usize, stores: &Stores) -> Fallible<f64> {
    let times = run_on_threads(put, threads, stores, |thread| {
        // Zeros would not do: their pages would be mapped only during the measurement.
        let mut times = vec![u32::MAX; calls / threads];
        for time in &mut times {
            let begin = cycles();
            put(stores, thread);
            *time = u32::try_from(cycles().saturating_sub(begin)).unwrap_or(u32::MAX);
        }
        times
    })?;
    let mut times = times.concat();
    let place = times.len() - 1 - times.len() / 1000;
    Ok(f64::from(*times.select_nth_unstable(place).1))
}

/// Runs `calls` on each thread once all are ready.
fn run_on_threads<T: Send>(
    put: Put,
    threads: usize,
    stores: &Stores,
    calls: impl Fn(u64) -> T + Sync,
) -> Fallible<Vec<T>> {
    let all_are_ready = Barrier::new(threads);
    let run = |thread| {
        let _registered = ThreadGuard::register("put");
        for _ in 0..WARM_UP_CALLS {
            put(stores, thread);
        }
        all_are_ready.wait();
        calls(thread)
    };
    std::thread::scope(|scope| {
        let run = &run;
        let threads = (0..threads as u64).map(|thread| scope.spawn(move || run(thread)));
        let threads: Vec<_> = threads.collect();
        let results = threads.into_iter().map(|thread| thread.join());
        let results = results.collect::<Result<Vec<_>, _>>();
        results.map_err(|_| "a thread panicked".into())
    })
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
    fn every_arm_runs() {
        let stores = Stores::new();
        for (name, put) in ARMS {
            assert!(
                time(put, 2, 2_000, &stores).expect("a batch") > 0.0,
                "{name}"
            );
            assert!(
                time_singly(put, 2, 2_000, &stores).expect("a batch") > 0.0,
                "{name}"
            );
        }
        assert!(!stores.ring.1.is_empty());
    }
}
