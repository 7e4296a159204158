//! Stop 1 of 12: the sampler wakes on an absolute schedule, and takes the threads one after another.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;

use crate::base::{Features, StartError, TimeStamp};
use crate::buffer::{ChunkedBuffer, EntryHead, EntryKind};
use crate::counters::{PROCESS_CPU, sample_process_cpu_ns};
use crate::platform::{
    current_process_id, current_thread_id, monotonic_now, prepare_sampler_thread, sleep_until, thread_cpu_ns,
    with_signals_blocked,
};
use crate::sampler::sample_writer::SampleWriter;
use crate::sampler::thread_sampler::{Scratch, ThreadLife, ThreadSampler, TickContext};
use crate::state::{RunningSampler, Session, SessionCounts};
use crate::threads::ThreadRegistry;
use crate::unwind::{Unwinder, forget_unregistered_code};

/// The kernel brings the CPU time of threads on other cores up to date once a scheduler tick, every 1 to 10 ms; read more
/// often, the process's would stand still and jump.
const COUNTER_INTERVAL_NS: u64 = 20_000_000;
/// A long sleep is taken in steps, so that a stop is noticed soon.
const LONGEST_SLEEP_NS: u64 = 50_000_000;

struct SamplerHandle(JoinHandle<()>);

impl RunningSampler for SamplerHandle {
    fn join(self: Box<Self>) {
        // It catches its own panics.
        let _ = self.0.join();
    }
}

/// Starts the sampler thread, with every signal blocked.
///
/// # Errors
/// The system's refusal to make a thread.
pub(crate) fn spawn_sampler(
    session: Arc<Session>,
    buffer: &'static ChunkedBuffer,
) -> Result<Box<dyn RunningSampler>, StartError> {
    // Made here, so that the first tick is not late by it, and a snapshot taken at once finds the modules.
    forget_unregistered_code();
    let unwinder = Unwinder::new();
    session.set_modules(unwinder.modules());
    let builder = std::thread::Builder::new().name("SamplerThread".to_owned());
    let body = move || {
        let shared = Arc::clone(&session);
        let thread = SamplerThread::new(session, buffer, unwinder);
        // The host goes on without a sampler, and the profile says so.
        if catch_unwind(AssertUnwindSafe(|| thread.run())).is_err() {
            SessionCounts::add(&shared.counts.sampler_panics, 1);
        }
    };
    let spawned = with_signals_blocked(|| builder.spawn(body));
    match spawned {
        Ok(thread) => Ok(Box::new(SamplerHandle(thread))),
        Err(error) => {
            Err(StartError::System { action: "make the sampler thread", answer: error.to_string() })
        }
    }
}

/// The sampler's loop and what it keeps from tick to tick.
struct SamplerThread {
    session: Arc<Session>,
    buffer: &'static ChunkedBuffer,
    unwinder: Unwinder,
    threads: Vec<ThreadSampler>,
    registry_version: u64,
    /// The thread that is first in the next tick, so that none is always first.
    first: usize,
    scratch: Scratch,
    next_counters: TimeStamp,
    /// The process's CPU time when the session began; the counter counts from here.
    process_cpu_ns: i64,
}

impl SamplerThread {
    fn new(session: Arc<Session>, buffer: &'static ChunkedBuffer, unwinder: Unwinder) -> Self {
        let scratch = Scratch::default();
        let process_cpu_ns = sample_process_cpu_ns();
        Self {
            session,
            buffer,
            unwinder,
            threads: Vec::new(),
            registry_version: 0,
            first: 0,
            scratch,
            next_counters: TimeStamp(0),
            process_cpu_ns,
        }
    }

    fn run(mut self) {
        prepare_sampler_thread();
        let interval_ns = self.session.settings.interval.as_nanos() as u64;
        let mut schedule = Schedule { next: monotonic_now(), interval_ns };
        while !self.session.is_stopping() {
            let counts = &self.session.counts;
            SessionCounts::add(&counts.ticks, 1);
            self.tick();
            let missed = schedule.advance(monotonic_now());
            SessionCounts::add(&self.session.counts.missed_ticks, missed);
            self.sleep_to(schedule.next);
        }
        for thread in &mut self.threads {
            thread.give_up();
        }
    }

    fn sleep_to(&self, deadline: TimeStamp) {
        while !self.session.is_stopping() {
            let step = monotonic_now().plus_ns(LONGEST_SLEEP_NS);
            sleep_until(deadline.min(step));
            if deadline <= step {
                return;
            }
        }
    }

    fn tick(&mut self) {
        if self.unwinder.refresh_modules() {
            self.session.set_modules(self.unwinder.modules());
        }
        self.refresh_threads();
        self.sample_counters();
        self.sample_threads();
        if let Some(map) = self.unwinder.changed_perf_map() {
            self.session.set_perf_map(map);
        }
        self.buffer.provide_spare_chunk();
        let own_cpu_ns = thread_cpu_ns(current_thread_id()).unwrap_or(0);
        self.session.counts.sampler_cpu_ns.store(own_cpu_ns, std::sync::atomic::Ordering::Relaxed);
    }

    /// Follows the registry, when it has changed.
    fn refresh_threads(&mut self) {
        let version = ThreadRegistry::version();
        if version == self.registry_version {
            return;
        }
        self.registry_version = version;
        let mut known: HashMap<u64, ThreadSampler> =
            self.threads.drain(..).map(|thread| (thread.registration.serial, thread)).collect();
        for registration in ThreadRegistry::profiled_threads() {
            let thread = known.remove(&registration.serial);
            self.threads.push(thread.unwrap_or_else(|| ThreadSampler::new(registration, &self.session)));
        }
        for (_, mut gone) in known {
            gone.give_up();
        }
        let range = self.buffer.range();
        ThreadRegistry::stamp_dead_threads(range.end, range.start);
    }

    fn sample_counters(&mut self) {
        if !self.session.settings.features.contains(Features::PROCESS_CPU) {
            return;
        }
        let now = monotonic_now();
        if now < self.next_counters {
            return;
        }
        self.next_counters = now.plus_ns(COUNTER_INTERVAL_NS);
        let entry = EntryHead::new(EntryKind::Counter)
            .number(PROCESS_CPU.id)
            .number(now.since_ns(self.session.process_start))
            .signed(sample_process_cpu_ns() - self.process_cpu_ns);
        self.buffer.put(now, &[entry.bytes()]);
    }

    fn sample_threads(&mut self) {
        let Self { session, buffer, unwinder, threads, scratch, .. } = self;
        let writer = SampleWriter {
            buffer,
            process_start: session.process_start,
            dropped: &session.counts.dropped_samples,
        };
        let mut context = TickContext { session, process: current_process_id(), unwinder, writer, scratch };
        let count = threads.len();
        self.first = if count == 0 { 0 } else { (self.first + 1) % count };
        let (before, from) = threads.split_at_mut(self.first);
        for thread in from.iter_mut().chain(before) {
            // One that has unregistered and ended since this tick began is no surprise.
            if thread.tick(&mut context) == ThreadLife::Dead
                && thread.registration.unregistered_at().is_none()
            {
                SessionCounts::add(&session.counts.threads_found_dead, 1);
                ThreadRegistry::remove(&thread.registration, monotonic_now());
            }
        }
    }
}

/// When the ticks are.
struct Schedule {
    next: TimeStamp,
    interval_ns: u64,
}

impl Schedule {
    /// Goes to the next tick after `now`, and gives how many were missed. They are dropped, not made up for.
    fn advance(&mut self, now: TimeStamp) -> u64 {
        let late_ns = now.since_ns(self.next);
        let missed = late_ns / self.interval_ns;
        self.next = self.next.plus_ns((missed + 1) * self.interval_ns);
        missed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_stay_on_the_schedule_and_missed_ones_are_counted_once() {
        let mut schedule = Schedule { next: TimeStamp(1000), interval_ns: 100 };
        assert_eq!((schedule.advance(TimeStamp(1030)), schedule.next), (0, TimeStamp(1100)));
        assert_eq!((schedule.advance(TimeStamp(1100)), schedule.next), (0, TimeStamp(1200)));
        assert_eq!((schedule.advance(TimeStamp(1530)), schedule.next), (3, TimeStamp(1600)));
        assert_eq!((schedule.advance(TimeStamp(1540)), schedule.next), (0, TimeStamp(1700)));
    }
}
