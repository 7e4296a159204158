//! A busy thread that measures its lost time: it reads the processor's clock in a tight loop at the
//! bottom of a recursion, and adds up the gaps that the loop cannot explain.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use gekkota::register_thread;

use crate::raw::{self, SuspendableThread};
use crate::threads::{BUSY_NAME, Threads};

/// Depth of the recursion: with the first and last functions of the thread, 36 frames.
const RECURSION: usize = 27;
/// Minimum gap that counts as lost: an iteration takes about 20 ns, the shortest interrupt more
/// than 1 µs.
const MIN_GAP: Duration = Duration::from_nanos(600);
/// Gaps of at least this length are excluded: no sample takes so much time, only another program or
/// the host.
pub(crate) const EXCLUDED_GAP: Duration = Duration::from_millis(1);

/// The time that a thread lost in a span.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lost {
    pub(crate) lost_ns: f64,
    /// Length of the span without the excluded gaps.
    pub(crate) span_ns: f64,
    pub(crate) excluded_gaps: u64,
}

/// What the busy thread tells the measuring thread.
struct Meter {
    /// In cycles.
    min_gap: u64,
    excluded_gap: u64,
    /// In cycles, since the thread's start.
    lost: AtomicU64,
    /// Excluded gaps, in cycles and in number.
    excluded: AtomicU64,
    excluded_count: AtomicU64,
}

impl Meter {
    fn new(cycles_per_ns: f64) -> Self {
        let cycles = |time: Duration| (time.as_nanos() as f64 * cycles_per_ns) as u64;
        Self {
            min_gap: cycles(MIN_GAP),
            excluded_gap: cycles(EXCLUDED_GAP),
            lost: AtomicU64::new(0),
            excluded: AtomicU64::new(0),
            excluded_count: AtomicU64::new(0),
        }
    }

    /// Adds a gap that the loop cannot explain.
    fn add(&self, gap: u64) {
        // Only the busy thread writes these counters, so a load and a store suffice.
        let add = |sum: &AtomicU64, number| {
            sum.store(sum.load(Ordering::Relaxed) + number, Ordering::Relaxed)
        };
        if gap < self.excluded_gap {
            add(&self.lost, gap);
        } else {
            add(&self.excluded, gap);
            add(&self.excluded_count, 1);
        }
    }
}

/// The busy thread. Dropping this ends it.
pub(crate) struct Target {
    meter: Arc<Meter>,
    cycles_per_ns: f64,
    pub(crate) suspendable: SuspendableThread,
    pub(crate) thread_id: i32,
    _thread: Threads,
}

impl Target {
    /// Starts the thread, pinned to `processor` if it is given, and registered with gekkota.
    pub(crate) fn start(processor: Option<usize>) -> std::io::Result<Self> {
        let cycles_per_ns = measure_cycles_per_ns();
        let meter = Arc::new(Meter::new(cycles_per_ns));
        let thread_meter = Arc::clone(&meter);
        let (sender, receiver) = channel();
        let prepare = move |_| {
            register_thread(BUSY_NAME);
            let pinned = processor.map_or(Ok(()), |processor| raw::run_on(&[processor]));
            // The receiver lives until it has received this.
            let _ = sender.send(pinned.and_then(|()| SuspendableThread::current()));
            Arc::clone(&thread_meter)
        };
        let thread = Threads::start(1, BUSY_NAME, prepare, |meter| {
            black_box(descend(RECURSION, meter));
        })?;
        let suspendable = receiver.recv().map_err(std::io::Error::other)??;
        Ok(Self {
            meter,
            cycles_per_ns,
            suspendable,
            thread_id: thread.ids[0],
            _thread: thread,
        })
    }

    /// Returns what the thread loses in a span that begins now.
    pub(crate) fn watch(&self, span: Duration) -> Lost {
        let start = Reading::of(&self.meter);
        std::thread::sleep(span);
        let end = Reading::of(&self.meter);
        let in_ns = |cycles: u64| cycles as f64 / self.cycles_per_ns;
        Lost {
            lost_ns: in_ns(end.lost - start.lost),
            span_ns: (end.time - start.time).as_nanos() as f64
                - in_ns(end.excluded - start.excluded),
            excluded_gaps: end.excluded_count - start.excluded_count,
        }
    }
}

struct Reading {
    time: Instant,
    lost: u64,
    excluded: u64,
    excluded_count: u64,
}

impl Reading {
    fn of(meter: &Meter) -> Self {
        let sum = |sum: &AtomicU64| sum.load(Ordering::Relaxed);
        Self {
            time: Instant::now(),
            lost: sum(&meter.lost),
            excluded: sum(&meter.excluded),
            excluded_count: sum(&meter.excluded_count),
        }
    }
}

pub(crate) fn measure_cycles_per_ns() -> f64 {
    let (start, cycles) = (Instant::now(), raw::cycles());
    std::thread::sleep(Duration::from_millis(20));
    (raw::cycles() - cycles) as f64 / start.elapsed().as_nanos() as f64
}

#[inline(never)]
fn descend(levels: usize, meter: &Meter) -> u64 {
    // About as much as an ordinary function keeps on its stack.
    let kept = black_box([levels as u64; 8]);
    let below = if levels == 0 {
        add_up_gaps(meter)
    } else {
        descend(levels - 1, meter)
    };
    below ^ black_box(kept)[levels % 8]
}

#[inline(never)]
fn add_up_gaps(meter: &Meter) -> u64 {
    // Often enough that the gaps between two calls of this do not count.
    const READINGS: usize = 100_000;
    let mut last = raw::cycles();
    for _ in 0..READINGS {
        let now = raw::cycles();
        let gap = now.saturating_sub(last);
        if gap > meter.min_gap {
            meter.add(gap);
        }
        last = now;
    }
    last
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn meter_add_excludes_long_gaps() {
        let meter = Meter::new(2.0);
        for ns in [1_000, 20_000, 999_999, 1_000_000, 5_000_000] {
            meter.add(ns * 2);
        }
        let reading = Reading::of(&meter);
        assert_eq!(
            (reading.lost, reading.excluded),
            (2 * 1_020_999, 2 * 6_000_000)
        );
        assert_eq!(reading.excluded_count, 2);
    }

    #[test]
    fn watch_returns_no_more_than_the_span() {
        let target = Target::start(None).expect("thread");
        let lost = target.watch(Duration::from_millis(50));
        assert!(
            lost.lost_ns >= 0.0 && lost.lost_ns <= lost.span_ns + 1e6,
            "{lost:?}"
        );
    }
}
