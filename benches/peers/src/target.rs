//! A busy thread that knows what time it loses: it reads the processor's clock in a tight loop at the bottom of a
//! recursion, and adds up the gaps that the loop cannot explain.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use gekkota::register_thread;

use crate::raw::{self, StoppableThread};

/// With the beginning of a thread and the end of the recursion, 36 frames.
const RECURSION: usize = 29;
pub(crate) const BUSY_NAME: &str = "busy";
/// The loop takes some 20 ns a turn, and the shortest interrupt more than a microsecond.
const SHORTEST_GAP: Duration = Duration::from_nanos(600);
/// No sample takes so long: another program had its turn, or the host.
pub(crate) const LONGEST_GAP: Duration = Duration::from_millis(1);

/// What a thread lost in a span.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lost {
    pub(crate) lost_ns: f64,
    /// Without the longest gaps.
    pub(crate) span_ns: f64,
    pub(crate) longest_gaps: u64,
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
        let add = |sum: &AtomicU64, number| {
            sum.store(sum.load(Ordering::Relaxed) + number, Ordering::Relaxed)
        };
        if gap < self.longest_gap {
            add(&self.lost, gap);
        } else {
            add(&self.left_out, gap);
            add(&self.left_out_gaps, 1);
        }
    }
}

/// The busy thread. It ends when this is dropped.
pub(crate) struct Target {
    meter: Arc<Meter>,
    cycles_per_ns: f64,
    pub(crate) stoppable: StoppableThread,
    pub(crate) thread_id: i32,
    /// The one that it has for itself.
    pub(crate) processor: Option<usize>,
    thread: Option<JoinHandle<u64>>,
}

impl Target {
    /// On a processor, or anywhere. Registered with gekkota.
    pub(crate) fn start(processor: Option<usize>) -> std::io::Result<Self> {
        let cycles_per_ns = measure_cycles_per_ns();
        let meter = Arc::new(Meter::new(cycles_per_ns));
        let of_thread = Arc::clone(&meter);
        let (sender, receiver) = channel();
        let thread = std::thread::Builder::new()
            .name(BUSY_NAME.to_owned())
            .spawn(move || {
                register_thread(BUSY_NAME);
                let pinned = processor.map_or(Ok(()), |processor| raw::run_on(&[processor]));
                let told =
                    pinned.and_then(|()| Ok((StoppableThread::current()?, raw::thread_id())));
                // Whoever waits for it is there until it was received.
                let _ = sender.send(told);
                descend(RECURSION, &of_thread)
            })?;
        let told = receiver
            .recv()
            .map_err(|_| std::io::Error::other("the busy thread has panicked"))?;
        let (stoppable, thread_id) = told?;
        Ok(Self {
            meter,
            cycles_per_ns,
            stoppable,
            thread_id,
            processor,
            thread: Some(thread),
        })
    }

    /// What it loses in a span that begins now.
    pub(crate) fn watch(&self, span: Duration) -> Lost {
        let start = self.read();
        std::thread::sleep(span);
        let end = self.read();
        let in_ns = |cycles: u64| cycles as f64 / self.cycles_per_ns;
        Lost {
            lost_ns: in_ns(end.lost - start.lost),
            span_ns: (end.time - start.time).as_nanos() as f64
                - in_ns(end.left_out - start.left_out),
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

pub(crate) fn measure_cycles_per_ns() -> f64 {
    let (start, cycles) = (Instant::now(), raw::cycles());
    std::thread::sleep(Duration::from_millis(20));
    (raw::cycles() - cycles) as f64 / start.elapsed().as_nanos() as f64
}

#[inline(never)]
fn descend(levels: usize, meter: &Meter) -> u64 {
    // As much as an ordinary function keeps on its stack.
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

#[cfg(test)]
mod tests {
    use super::*;

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
        assert_eq!(
            (reading.lost, reading.left_out),
            (2 * 1_020_999, 2 * 6_000_000)
        );
        assert_eq!(reading.left_out_gaps, 2);
    }

    #[test]
    fn the_busy_thread_loses_no_more_than_there_is() {
        let target = Target::start(None).expect("thread");
        let lost = target.watch(Duration::from_millis(50));
        assert!(
            lost.lost_ns >= 0.0 && lost.lost_ns <= lost.span_ns + 1e6,
            "{lost:?}"
        );
    }
}
