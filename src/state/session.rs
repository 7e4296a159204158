//! What a session's sampler and its snapshots share.

use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use crate::base::{
    ChangeCount, Features, Generation, LockRank, NamedMutex, SamplingEngine,
    ThreadProfilingFeatures, TimeStamp,
};
use crate::counters::CounterDescription;
use crate::state::after_sampling::AfterSampling;
use crate::state::pauses::Pauses;
use crate::unwind::{CodeMap, ModuleTable, registered_code};

/// A session's settings, after adjustment.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SessionSettings {
    pub(crate) capacity_bytes: u64,
    pub(crate) interval: Duration,
    pub(crate) features: Features,
    pub(crate) filters: Vec<String>,
    pub(crate) signal: i32,
    pub(crate) engine: SamplingEngine,
    /// How much of the past a profile holds.
    pub(crate) duration: Option<Duration>,
    pub(crate) active_tab_id: u64,
    /// Whether each tick writes down what its steps took.
    pub(crate) records_overheads: bool,
}

/// What a stop by each engine was found to take from a running thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct EngineTrial {
    pub(crate) signal_ns: u64,
    /// `None` where the system makes no timers.
    pub(crate) timer_ns: Option<u64>,
}

impl EngineTrial {
    /// Timers cost a little with each switch of their threads as well, so they have to be clearly cheaper.
    pub(crate) fn is_for_timers(&self) -> bool {
        self.timer_ns
            .is_some_and(|timer_ns| timer_ns < self.signal_ns / 4 * 3)
    }
}

macro_rules! counts {
    ($($(#[$doc:meta])* $name:ident,)+) => {
        /// What the sampler did, could not do, and cost.
        #[derive(Debug, Default)]
        pub(crate) struct SessionCounts {
            $($(#[$doc])* pub(crate) $name: AtomicU64,)+
        }

        impl SessionCounts {
            /// Each count by its name.
            pub(crate) fn all(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name.load(Ordering::Relaxed)),)+]
            }
        }
    };
}

counts! {
    /// Ticks that the sampler woke for.
    ticks,
    /// Ticks that began later than half an interval after their time.
    late_ticks,
    /// Ticks of the schedule that passed while the sampler could not run.
    missed_ticks,
    /// Samples taken by a signal.
    captured_samples,
    /// Samples of sleeping threads whose stacks the sampler read itself, without waking them.
    samples_from_outside,
    /// Samples of threads that had not run since the one before.
    same_samples,
    /// Requests to threads that were asleep, which may have cost them an `EINTR`.
    signals_to_sleepers,
    /// Threads of which the system does not tell whether they sleep: each sleep costs them a signal.
    hidden_threads,
    /// Samples on a signal stack, a coroutine's, or another that the thread was not born with.
    samples_on_other_stacks,
    /// Samples whose stack could not be followed to its root.
    truncated_samples,
    /// Ticks on which a thread that was running had not answered.
    unanswered_ticks,
    /// Threads for which the system made no timer.
    refused_timers,
    /// Requests that a thread's timer left unanswered while the thread ran, so that a signal was sent.
    silent_timers,
    /// Requests that the system did not pass on.
    refused_signals,
    /// How often somebody else had replaced the signal's handler. While theirs stays, threads that run are not sampled.
    handler_replacements,
    /// Threads that were found dead without having unregistered.
    threads_found_dead,
    /// Threads for whose stacks there was no room; they have markers and CPU times.
    threads_without_stacks,
    /// 1 when the sampler ended by an error of its own; nothing was sampled from then on.
    sampler_panics,
    /// Samples that found no room in the buffer.
    dropped_samples,
    /// CPU time of the sampler thread, in nanoseconds.
    sampler_cpu_ns,
    /// Stacks that were unwound, the native frames that were found, and the time that it took.
    unwound_stacks,
    unwound_frames,
    unwind_ns,
    /// Stacks of markers among them, and those of labels alone.
    marker_stacks,
    /// The frames and the time of those stacks that were unwound once more, at once, for comparison.
    repeated_frames,
    repeated_unwind_ns,
}

impl SessionCounts {
    pub(crate) fn add(count: &AtomicU64, number: u64) {
        count.fetch_add(number, Ordering::Relaxed);
    }
}

/// A running session, shared by reference.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) generation: Generation,
    pub(crate) settings: SessionSettings,
    pub(crate) process_start: TimeStamp,
    pub(crate) started_at: TimeStamp,
    pub(crate) counters: Vec<&'static CounterDescription>,
    pub(crate) counts: SessionCounts,
    pub(crate) pauses: Pauses,
    pub(crate) after_sampling: AfterSampling,
    /// Of the session's live threads, so that the sampler looks at the list only then.
    pub(crate) thread_changes: ChangeCount,
    /// Written by the sampler when something was loaded or unloaded, read by snapshots.
    modules: NamedMutex<ModuleTable>,
    /// What `/tmp/perf-PID.map` says, as far as the sampler has read it.
    perf_map: NamedMutex<Arc<CodeMap>>,
    stop: AtomicBool,
    uses_timers: AtomicBool,
    /// The nice value that the system granted the sampler thread.
    sampler_nice: AtomicI32,
    /// What the trial of the engines found, when there was one.
    trial: OnceLock<EngineTrial>,
    /// How often somebody asked that everything be written, and up to which of them that was done.
    writes_asked: AtomicU64,
    writes_done: AtomicU64,
}

impl Session {
    pub(crate) fn new(
        settings: SessionSettings,
        process_start: TimeStamp,
        started_at: TimeStamp,
        counters: Vec<&'static CounterDescription>,
    ) -> Self {
        let counts_cpu = settings.features.contains(Features::PROCESS_CPU);
        Self {
            generation: Generation::next(),
            settings,
            process_start,
            started_at,
            counters,
            counts: SessionCounts::default(),
            pauses: Pauses::new(counts_cpu),
            after_sampling: AfterSampling::new(),
            thread_changes: ChangeCount::new(),
            modules: NamedMutex::new(
                "session modules",
                LockRank::ThreadData,
                ModuleTable::default(),
            ),
            perf_map: NamedMutex::new("session perf map", LockRank::ThreadData, Arc::default()),
            stop: AtomicBool::new(false),
            uses_timers: AtomicBool::new(false),
            sampler_nice: AtomicI32::new(0),
            trial: OnceLock::new(),
            writes_asked: AtomicU64::new(0),
            writes_done: AtomicU64::new(0),
        }
    }

    /// Whether stacks are recorded of a thread of which this is.
    pub(crate) fn records_stacks_of(&self, of_thread: ThreadProfilingFeatures) -> bool {
        let of_session = !self.settings.features.contains(Features::NO_STACK_SAMPLING);
        of_session && of_thread.intersects(ThreadProfilingFeatures::SAMPLING)
    }

    /// Whether CPU times are recorded of a thread of which this is.
    pub(crate) fn records_cpu_of(&self, of_thread: ThreadProfilingFeatures) -> bool {
        let of_session = self.settings.features.contains(Features::CPU);
        of_session && of_thread.intersects(ThreadProfilingFeatures::CPU_UTILIZATION)
    }

    /// Whether threads that run are stopped by timers of their own.
    pub(crate) fn uses_timers(&self) -> bool {
        self.uses_timers.load(Ordering::Relaxed)
    }

    pub(crate) fn set_uses_timers(&self, uses: bool) {
        self.uses_timers.store(uses, Ordering::Relaxed);
    }

    pub(crate) fn sampler_nice(&self) -> i32 {
        self.sampler_nice.load(Ordering::Relaxed)
    }

    pub(crate) fn set_sampler_nice(&self, nice: i32) {
        self.sampler_nice.store(nice, Ordering::Relaxed);
    }

    pub(crate) fn set_trial(&self, trial: EngineTrial) {
        // Only the sampler does, once.
        let _ = self.trial.set(trial);
    }

    pub(crate) fn trial(&self) -> Option<EngineTrial> {
        self.trial.get().copied()
    }

    /// Before anybody else knows of the session.
    pub(crate) fn set_first_modules(&mut self, table: &ModuleTable) {
        *self.modules.get_mut() = table.clone();
    }

    pub(crate) fn set_modules(&self, table: &ModuleTable) {
        let table = table.clone();
        let before = std::mem::replace(&mut *self.modules.lock(), table);
        drop(before);
    }

    pub(crate) fn modules(&self) -> ModuleTable {
        self.modules.lock().clone()
    }

    /// Asks the sampler to write what it holds back of threads at rest, and waits for that, not long: it does so on its
    /// next tick, unless it gets no processor. It may hold a minute of each thread.
    pub(crate) fn wait_until_all_is_written(&self) {
        const LONGEST_WAIT: Duration = Duration::from_secs(2);
        let asked = self.writes_asked.fetch_add(1, Ordering::AcqRel) + 1;
        let end = Instant::now() + LONGEST_WAIT;
        let is_open = || self.writes_done.load(Ordering::Acquire) < asked;
        let has_sampler = || self.counts.sampler_panics.load(Ordering::Relaxed) == 0;
        // Before it calls back it writes everything; and it may be one of its callbacks that asks.
        let may_write =
            || has_sampler() && !self.is_stopping() && !self.after_sampling.is_calling_back();
        while is_open() && may_write() && Instant::now() < end {
            std::thread::sleep(Duration::from_micros(100));
        }
    }

    /// Up to which asking everything is to be written, if somebody waits for it.
    pub(crate) fn asked_to_write(&self) -> Option<u64> {
        let asked = self.writes_asked.load(Ordering::Acquire);
        (asked > self.writes_done.load(Ordering::Acquire)).then_some(asked)
    }

    /// Everything is written, as far as was asked until this.
    pub(crate) fn set_written(&self, asked: u64) {
        self.writes_done.store(asked, Ordering::Release);
    }

    pub(crate) fn set_perf_map(&self, map: Arc<CodeMap>) {
        *self.perf_map.lock() = map;
    }

    /// The generated code that samples of the session may lie in.
    pub(crate) fn generated_code(&self) -> CodeMap {
        let perf_map = Arc::clone(&self.perf_map.lock());
        let mut code = CodeMap::clone(&perf_map);
        code.put_all(&registered_code());
        code
    }

    /// Tells the sampler to end.
    pub(crate) fn request_stop(&self) {
        self.stop.store(true, Ordering::Release);
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }
}
