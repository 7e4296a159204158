//! The program of `bursts`: threads that work for 0.3 to 3 ms between waits, and know how much CPU
//! time each of their two functions used.

use std::cell::{Cell, RefCell};
use std::hint::black_box;
use std::io::{self, Read, Write};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread::{JoinHandle, sleep};
use std::time::Duration;

use crate::random::Random;
use crate::raw::{cpu_ns_of, monotonic_ns, sleep_until_ns, thread_cpu_ns, thread_id};

/// What one thread does with its [`Worker`].
type Task = Box<dyn FnOnce(&Rc<Worker>) + Send>;

/// Returns the tasks of a kind's threads, which end at this time.
type Tasks = fn(until_ns: u64) -> io::Result<Vec<Task>>;

/// The kinds of work, one after another. The threads have the names of their kinds.
pub(crate) const KINDS: [&str; 6] = ["sleep", "random", "pipe", "channel", "async", "100hz"];

const TASKS: [Tasks; KINDS.len()] = [
    sleeping,
    random,
    fed_by_pipes,
    fed_by_a_channel,
    suspended,
    at_100_hz,
];

/// Uses the CPU time of three quarters of the work.
#[inline(never)]
pub(crate) fn price(turns: u64) -> u64 {
    (0..turns).fold(1, |number: u64, _| {
        black_box(number.wrapping_mul(0x5851_f42d_4c95_7f2d) ^ 1)
    })
}

/// Uses that of the last quarter.
#[inline(never)]
pub(crate) fn render(turns: u64) -> u64 {
    (0..turns).fold(7, |number: u64, _| {
        black_box(number.wrapping_mul(0x2545_f491_4f6c_dd1d) ^ 3)
    })
}

/// Works, and reads its thread's clock around each function. The functions read no clock: its system
/// call would be most of the profile.
struct Worker {
    turns_per_us: f64,
    price_ns: Cell<u64>,
    render_ns: Cell<u64>,
    random: RefCell<Random>,
}

impl Worker {
    fn new(turns_per_us: f64, place: usize) -> Self {
        Self {
            turns_per_us,
            price_ns: Cell::new(0),
            render_ns: Cell::new(0),
            random: RefCell::new(Random::new(0x9e37_79b9_7f4a_7c15 ^ (place as u64) << 32)),
        }
    }

    /// Works for about this CPU time.
    fn burst(&self, us: u64) {
        let turns = us as f64 * self.turns_per_us;
        let begin = thread_cpu_ns();
        black_box(price((turns * 0.75) as u64));
        let middle = thread_cpu_ns();
        black_box(render((turns * 0.25) as u64));
        let end = thread_cpu_ns();
        self.price_ns.set(self.price_ns.get() + middle - begin);
        self.render_ns.set(self.render_ns.get() + end - middle);
    }

    /// Returns a random number from `least` up to `most`.
    fn random(&self, least: u64, most: u64) -> u64 {
        let number = self.random.borrow_mut().next();
        least + (number >> 16) % (most - least + 1)
    }
}

fn tasks(count: usize, mut make: impl FnMut(usize) -> io::Result<Task>) -> io::Result<Vec<Task>> {
    (0..count).map(&mut make).collect()
}

fn sleeping(until_ns: u64) -> io::Result<Vec<Task>> {
    tasks(4, |_| {
        Ok(Box::new(move |worker| {
            while monotonic_ns() < until_ns {
                worker.burst(400);
                sleep(Duration::from_micros(4600));
            }
        }))
    })
}

fn random(until_ns: u64) -> io::Result<Vec<Task>> {
    tasks(2, |_| {
        Ok(Box::new(move |worker| {
            while monotonic_ns() < until_ns {
                worker.burst(worker.random(200, 3000));
                sleep(Duration::from_micros(worker.random(1000, 10_000)));
            }
        }))
    })
}

fn fed_by_pipes(until_ns: u64) -> io::Result<Vec<Task>> {
    let mut writers = Vec::new();
    let tasks = tasks(4, |_| {
        let (mut reader, writer) = io::pipe()?;
        writers.push(writer);
        Ok(Box::new(move |worker| {
            // The pipe ends when the feeder has dropped its other side.
            while reader.read_exact(&mut [0]).is_ok() {
                worker.burst(worker.random(300, 1500));
            }
        }))
    });
    start_feeder(until_ns, move |number| {
        let place = number % writers.len();
        let _ = writers[place].write_all(&[1]);
    })?;
    tasks
}

fn fed_by_a_channel(until_ns: u64) -> io::Result<Vec<Task>> {
    let mut senders = Vec::new();
    let tasks = tasks(2, |_| {
        let (sender, orders) = channel();
        senders.push(sender);
        Ok(Box::new(move |worker| {
            for () in orders {
                worker.burst(worker.random(300, 1500));
            }
        }))
    });
    start_feeder(until_ns, move |number| {
        let place = number % senders.len();
        let _ = senders[place].send(());
    })?;
    tasks
}

/// Calls `feed` every 2 ms, with the number of the call.
fn start_feeder(until_ns: u64, mut feed: impl FnMut(usize) + Send + 'static) -> io::Result<()> {
    let feeder = std::thread::Builder::new().name("feeder".to_owned());
    feeder.spawn(move || {
        for number in 0.. {
            if monotonic_ns() >= until_ns {
                break;
            }
            feed(number);
            sleep(Duration::from_millis(2));
        }
    })?;
    Ok(())
}

/// Each thread has a runtime, whose three tasks sleep in turn.
fn suspended(until_ns: u64) -> io::Result<Vec<Task>> {
    tasks(2, |_| {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()?;
        Ok(Box::new(move |worker| {
            let tasks = tokio::task::LocalSet::new();
            for _ in 0..3 {
                let worker = Rc::clone(worker);
                tasks.spawn_local(async move {
                    while monotonic_ns() < until_ns {
                        worker.burst(worker.random(300, 1500));
                        let pause = Duration::from_millis(worker.random(5, 15));
                        tokio::time::sleep(pause).await;
                    }
                });
            }
            runtime.block_on(tasks);
        }))
    })
}

fn at_100_hz(until_ns: u64) -> io::Result<Vec<Task>> {
    const PERIOD_NS: u64 = 10_000_000;
    tasks(2, |place| {
        let offset_ns = place as u64 * PERIOD_NS / 2;
        Ok(Box::new(move |worker| {
            while monotonic_ns() < until_ns {
                let now = monotonic_ns() - offset_ns;
                sleep_until_ns(now - now % PERIOD_NS + PERIOD_NS + offset_ns);
                worker.burst(2000);
            }
        }))
    })
}

/// What a thread's clock says.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Truth {
    /// Its place in [`KINDS`].
    pub(crate) kind: usize,
    pub(crate) thread: i32,
    pub(crate) price_ns: u64,
    pub(crate) render_ns: u64,
    /// With what the waits used.
    pub(crate) all_ns: u64,
}

/// Threads that have worked, and wait. Dropping this ends them.
pub(crate) struct Worked {
    may_end: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
    truths: Vec<Truth>,
}

impl Worked {
    /// Lets threads of each kind work for `span`, after they have called `first`.
    pub(crate) fn new(first: fn(), span: Duration) -> Result<Self, Box<dyn std::error::Error>> {
        let turns_per_us = measure_turns_per_us();
        let mut worked = Self {
            may_end: Arc::default(),
            threads: Vec::new(),
            truths: Vec::new(),
        };
        for (kind, (name, tasks)) in KINDS.into_iter().zip(TASKS).enumerate() {
            let tasks = tasks(monotonic_ns() + span.as_nanos() as u64)?;
            let (truth, truths) = channel();
            for (place, task) in tasks.into_iter().enumerate() {
                let (truth, may_end) = (truth.clone(), Arc::clone(&worked.may_end));
                let thread = std::thread::Builder::new().name(name.to_owned());
                worked.threads.push(thread.spawn(move || {
                    first();
                    let worker = Rc::new(Worker::new(turns_per_us, place));
                    task(&worker);
                    // The receiver lives until it has received this.
                    let _ = truth.send(Truth {
                        kind,
                        thread: thread_id(),
                        price_ns: worker.price_ns.get(),
                        render_ns: worker.render_ns.get(),
                        all_ns: 0,
                    });
                    drop(truth);
                    while !may_end.load(Ordering::Acquire) {
                        std::thread::park();
                    }
                })?);
            }
            drop(truth);
            worked.truths.extend(truths);
        }
        match worked.truths.len() == worked.threads.len() {
            true => Ok(worked),
            false => Err("a thread has panicked".into()),
        }
    }

    /// Returns what the threads' clocks say now.
    pub(crate) fn read_clocks(&self) -> Result<Vec<Truth>, Box<dyn std::error::Error>> {
        let read = |truth: &Truth| {
            Some(Truth {
                all_ns: cpu_ns_of(truth.thread)?,
                ..*truth
            })
        };
        let read: Option<_> = self.truths.iter().map(read).collect();
        read.ok_or_else(|| "cannot read the CPU clock of a thread".into())
    }
}

impl Drop for Worked {
    fn drop(&mut self) {
        self.may_end.store(true, Ordering::Release);
        for thread in self.threads.drain(..) {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}

fn measure_turns_per_us() -> f64 {
    const TURNS: u64 = 200_000;
    let turns = [(); 11].map(|()| {
        let begin = thread_cpu_ns();
        black_box(price(TURNS));
        TURNS as f64 * 1e3 / (thread_cpu_ns() - begin) as f64
    });
    crate::numbers::median(&turns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_of_each_kind_know_how_they_divide_their_time() {
        let worked = Worked::new(|| {}, Duration::from_millis(60)).expect("threads");
        let truths = worked.read_clocks().expect("clocks");
        for (kind, name) in KINDS.iter().enumerate() {
            let of_kind = || truths.iter().filter(|truth| truth.kind == kind);
            let sum = |part: fn(&Truth) -> u64| of_kind().map(part).sum::<u64>() as f64;
            let (price, render) = (sum(|truth| truth.price_ns), sum(|truth| truth.render_ns));
            let split = price / (price + render);
            assert!((0.5..0.95).contains(&split), "{name}: {split}");
            assert!(price + render <= sum(|truth| truth.all_ns), "{name}");
        }
    }
}
