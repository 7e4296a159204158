//! The data of a session that the sampler, snapshots and callers share.

use std::path::PathBuf;
use std::sync::Arc;
#[cfg(not(all(test, loom)))]
use std::sync::atomic::AtomicBool as StopFlag;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

#[cfg(all(test, loom))]
use loom::sync::atomic::AtomicBool as StopFlag;

use crate::allocations::AllocationCounts;
use crate::counters::{ApplicationCounter, CounterDescription, CounterReading};
use crate::state::callbacks::AfterSampling;
use crate::state::crash_facts::{CrashFacts, KeepsFact};
use crate::state::expiring_list::KeptKind;
use crate::state::facts::{Fact, OwnerWord, SessionFact};
use crate::state::pauses::Pauses;
use crate::state::sampler_stage::SamplerStage;
use crate::state::session_counts::{SamplerOverheads, SessionCounts, SessionLog};
use crate::symbols::NameCache;
use crate::types::{
    Features, Generation, KeptLimits, ThreadProfilingFeatures, TimeStamp, UnavailableFeature,
};
use crate::unwind::{CodeMap, ModuleTable, NamedCode, registered_code};
use crate::util::{ChangeCount, LockRank, NamedMutex};

/// Settings of a session, adjusted to what is supported.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SessionSettings {
    pub(crate) capacity_bytes: u64,
    pub(crate) interval: Duration,
    /// Maximum CPU time of the sampler, in millionths of a processor.
    pub(crate) max_cpu_ppm: Option<u64>,
    /// Number of markers of a name that are recorded in a second; 0 for no limit.
    pub(crate) max_markers_per_second: u32,
    pub(crate) features: Features,
    pub(crate) filters: Vec<String>,
    pub(crate) signal: i32,
    /// Maximum age of the samples in a profile.
    pub(crate) duration: Option<Duration>,
    /// Mean number of allocated bytes between two sampled allocations.
    pub(crate) allocation_interval_bytes: u64,
    pub(crate) active_tab_id: u64,
    /// Whether each tick records how long its steps took.
    pub(crate) records_overheads: bool,
    /// Whether child processes take part.
    pub(crate) has_children: bool,
    /// Whether the session may be part of that of a parent process, which then reads the chunks if this
    /// process is killed.
    pub(crate) has_parent: bool,
    /// The crash file that was asked for, as it was given.
    pub(crate) crash_file: Option<PathBuf>,
}

impl SessionSettings {
    /// Returns the maximum CPU time of the sampler, in percent of a processor.
    pub(crate) fn max_cpu_percent(&self) -> Option<f64> {
        self.max_cpu_ppm.map(|ppm| ppm as f64 / 1e4)
    }

    /// Returns the limits of a kind of data that the session keeps outside the buffer's chunks.
    pub(crate) fn kept_limits(&self, kind: KeptKind) -> KeptLimits {
        KeptLimits::new(self.capacity_bytes / kind.divisor(), self.duration)
    }
}

#[cfg(any(test, fuzzing))]
impl SessionSettings {
    /// Returns settings for tests that send no signals.
    pub(crate) fn for_tests() -> Self {
        Self {
            capacity_bytes: 1 << 20,
            interval: Duration::from_millis(1),
            max_cpu_ppm: None,
            max_markers_per_second: 0,
            features: Features::default_set(),
            filters: Vec::new(),
            signal: 0,
            duration: None,
            allocation_interval_bytes: 512 << 10,
            active_tab_id: 0,
            records_overheads: false,
            has_children: false,
            has_parent: false,
            crash_file: None,
        }
    }
}

/// A session, as the sampler, snapshots and callers share it.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) generation: Generation,
    /// The capacity is at most a share of the memory that was left at the start.
    pub(crate) settings: SessionSettings,
    /// The capacity that the caller asked for.
    pub(crate) asked_capacity_bytes: u64,
    /// The features that the caller asked for and that record nothing here.
    pub(crate) unavailable_features: Vec<UnavailableFeature>,
    pub(crate) process_start: TimeStamp,
    pub(crate) started_at: TimeStamp,
    pub(crate) counters: Vec<&'static CounterDescription>,
    /// The application's counters when the session began, with their values.
    pub(crate) counters_at_start: Vec<(Arc<ApplicationCounter>, CounterReading)>,
    /// What the application's threads had allocated when the session began.
    pub(crate) allocated_at_start: AllocationCounts,
    /// The facts in the session's crash file, if it has one.
    pub(crate) crash_facts: Option<Arc<CrashFacts>>,
    /// The counters of this crate that the sampler has found on this machine.
    found_counters: NamedMutex<Vec<Arc<CounterDescription>>>,
    pub(crate) counts: SessionCounts,
    pub(crate) overheads: SamplerOverheads,
    pub(crate) pauses: Pauses,
    /// The events that `profilingLog` reports.
    pub(crate) log: SessionLog,
    pub(crate) after_sampling: AfterSampling,
    pub(crate) stage: SamplerStage,
    /// Changes of the session's live threads. The sampler reads the list of threads only after a
    /// change.
    pub(crate) thread_changes: ChangeCount,
    /// The loaded modules. The sampler updates them after a load or unload; snapshots read them.
    modules: NamedMutex<ModuleTable>,
    /// The part of `/tmp/perf-PID.map` that the sampler has read.
    perf_map: NamedMutex<CodeMap>,
    /// Size of that part in memory, in bytes.
    perf_map_bytes: AtomicU64,
    /// The names of addresses that earlier profiles of the session have looked up.
    names: NamedMutex<NameCache>,
    stop: StopFlag,
    /// Nice value that the kernel granted the sampler thread.
    sampler_nice: AtomicI32,
    /// Number of the last requested flush, and number of the last completed one.
    flushes_requested: AtomicU64,
    flushes_done: AtomicU64,
    /// Whether threads may have events of their CPU clocks.
    may_use_events: AtomicBool,
    signal: AtomicI32,
}

impl Session {
    pub(crate) fn new(
        settings: SessionSettings,
        process_start: TimeStamp,
        started_at: TimeStamp,
        counters: Vec<&'static CounterDescription>,
    ) -> Self {
        let counts_cpu = settings.features.contains(Features::PROCESS_CPU);
        let signal = AtomicI32::new(settings.signal);
        Self {
            generation: Generation::next(),
            asked_capacity_bytes: settings.capacity_bytes,
            settings,
            unavailable_features: Vec::new(),
            process_start,
            started_at,
            counters,
            counters_at_start: Vec::new(),
            allocated_at_start: AllocationCounts::default(),
            crash_facts: None,
            found_counters: shared_data("session counters"),
            counts: SessionCounts::default(),
            overheads: SamplerOverheads::default(),
            pauses: Pauses::new(counts_cpu),
            log: SessionLog::new(),
            after_sampling: AfterSampling::new(),
            stage: SamplerStage::default(),
            thread_changes: ChangeCount::new(),
            modules: shared_data("session modules"),
            perf_map: shared_data("session perf map"),
            perf_map_bytes: AtomicU64::new(0),
            names: shared_data("session names"),
            stop: StopFlag::new(false),
            sampler_nice: AtomicI32::new(0),
            flushes_requested: AtomicU64::new(0),
            flushes_done: AtomicU64::new(0),
            may_use_events: AtomicBool::new(false),
            signal,
        }
    }

    /// Returns whether to record the stacks of a thread with these features.
    pub(crate) fn records_stacks_of(&self, thread_features: ThreadProfilingFeatures) -> bool {
        let is_enabled = !self.settings.features.contains(Features::NO_STACK_SAMPLING);
        is_enabled && thread_features.intersects(ThreadProfilingFeatures::SAMPLING)
    }

    /// Returns whether to record script frames.
    pub(crate) fn records_scripts(&self) -> bool {
        self.settings.features.contains(Features::JS)
    }

    /// Returns whether to record the CPU time of a thread with these features.
    pub(crate) fn records_cpu_of(&self, thread_features: ThreadProfilingFeatures) -> bool {
        let is_enabled = self.settings.features.contains(Features::CPU);
        is_enabled && thread_features.intersects(ThreadProfilingFeatures::CPU_UTILIZATION)
    }

    /// Returns whether threads may have events of their CPU clocks.
    pub(crate) fn may_use_events(&self) -> bool {
        self.may_use_events.load(Ordering::Relaxed)
    }

    pub(crate) fn set_may_use_events(&self, may_use: bool) {
        self.may_use_events.store(may_use, Ordering::Relaxed);
    }

    /// Returns the sampling signal: that of the settings, or the next one after other code has
    /// replaced the profiler's handler.
    pub(crate) fn signal(&self) -> i32 {
        self.signal.load(Ordering::Relaxed)
    }

    pub(crate) fn set_signal(&self, signal: i32) {
        self.signal.store(signal, Ordering::Relaxed);
    }

    pub(crate) fn sampler_nice(&self) -> i32 {
        self.sampler_nice.load(Ordering::Relaxed)
    }

    pub(crate) fn set_sampler_nice(&self, nice: i32) {
        self.sampler_nice.store(nice, Ordering::Relaxed);
    }

    /// Sets the modules of a session that is not shared yet.
    pub(crate) fn set_first_modules(&mut self, table: &ModuleTable) {
        self.crash_facts
            .iter()
            .for_each(|facts| facts.add_modules(table));
        *self.modules.get_mut() = table.clone();
    }

    pub(crate) fn set_modules(&self, table: &ModuleTable) {
        self.crash_facts
            .iter()
            .for_each(|facts| facts.add_modules(table));
        let table = table.clone();
        let before = std::mem::replace(&mut *self.modules.lock(), table);
        drop(before);
    }

    pub(crate) fn modules(&self) -> ModuleTable {
        self.modules.lock().clone()
    }

    /// Adds counters that the sampler has found, before their first values are written.
    pub(crate) fn add_found_counters(&self, counters: Vec<Arc<CounterDescription>>) {
        if let Some(facts) = &self.crash_facts {
            counters
                .iter()
                .for_each(|counter| facts.add_counter(counter));
        }
        self.found_counters.lock().extend(counters);
    }

    /// Adds the facts that have come into being since the last call to the crash file, if there is
    /// one. Called by the sampler before it takes samples, which may refer to them.
    pub(crate) fn follow_facts(&self, lasting: fn(&Self) -> KeepsFact) {
        if let Some(facts) = &self.crash_facts {
            facts.follow();
            facts.rewrite_if_needed(|| lasting(self));
        }
    }

    /// Notes the session's counts in its crash file. Without a crash file, does nothing.
    pub(crate) fn note_counts(&self, now: TimeStamp) {
        if let Some(facts) = &self.crash_facts {
            facts.set_counts(self.counts.all().into_iter().map(|(_, count)| count));
            facts.set_word(OwnerWord::CountedAt, now.0);
        }
    }

    /// Notes the pauses in progress in its crash file. Without a crash file, does nothing.
    pub(crate) fn note_pauses(&self) {
        if let Some(facts) = &self.crash_facts {
            let open = self.pauses.open();
            let ns = |since: Option<TimeStamp>| since.map_or(0, |since| since.0);
            facts.set_word(OwnerWord::PausedSince, ns(open.paused_since));
            facts.set_word(
                OwnerWord::SamplingPausedSince,
                ns(open.sampling_paused_since),
            );
        }
    }

    /// Returns the counters that the sampler has found.
    pub(crate) fn found_counters(&self) -> Vec<Arc<CounterDescription>> {
        self.found_counters.lock().clone()
    }

    /// Calls `body` with the names that earlier profiles have looked up.
    pub(crate) fn with_names<T>(&self, body: impl FnOnce(&mut NameCache) -> T) -> T {
        body(&mut self.names.lock())
    }

    /// Asks the sampler to write the samples of idle threads that it holds back, up to one minute
    /// of each thread. Waits until the sampler has done so, which takes at most one tick or sleep
    /// step, or until a timeout, in case the sampler gets no processor.
    pub(crate) fn wait_for_flush(&self) {
        const MAX_WAIT: Duration = Duration::from_secs(2);
        let request = self.flushes_requested.fetch_add(1, Ordering::AcqRel) + 1;
        let end = Instant::now() + MAX_WAIT;
        let is_pending = || self.flushes_done.load(Ordering::Acquire) < request;
        let has_sampler = || self.counts.sampler_panics.load(Ordering::Relaxed) == 0;
        let may_write = || has_sampler() && !self.is_stopping();
        while is_pending() && may_write() && Instant::now() < end {
            std::thread::sleep(Duration::from_micros(100));
        }
    }

    /// Returns the number of the last requested flush, if it is pending.
    pub(crate) fn pending_flush(&self) -> Option<u64> {
        let request = self.flushes_requested.load(Ordering::Acquire);
        (request > self.flushes_done.load(Ordering::Acquire)).then_some(request)
    }

    /// Completes all flushes up to this number.
    pub(crate) fn set_written(&self, request: u64) {
        self.flushes_done.store(request, Ordering::Release);
    }

    pub(crate) fn set_perf_map(&self, map: CodeMap) {
        let before = std::mem::replace(&mut *self.perf_map.lock(), map);
        drop(before);
    }

    /// Sets the size of the perf map in memory, and how much of it was not read, in bytes.
    pub(crate) fn set_perf_map_bytes(&self, in_memory: u64, unread: u64) {
        self.perf_map_bytes.store(in_memory, Ordering::Relaxed);
        let count = &self.counts.unread_perf_map_bytes;
        count.store(unread, Ordering::Relaxed);
    }

    /// Returns the size of the perf map in memory, in bytes.
    pub(crate) fn perf_map_bytes(&self) -> u64 {
        self.perf_map_bytes.load(Ordering::Relaxed)
    }

    /// Returns the generated code in which samples of the session may lie.
    pub(crate) fn generated_code(&self) -> NamedCode {
        let perf_map = self.perf_map.lock().clone();
        NamedCode::new(registered_code(), perf_map)
    }

    /// Asks the sampler to end.
    pub(crate) fn request_stop(&self) {
        self.stop.store(true, Ordering::Release);
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }
}

/// Returns the facts about the session itself, for its crash file.
pub(crate) fn describe_session(session: &Session) -> Vec<Fact> {
    let settings = &session.settings;
    let ns = |duration: Duration| u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
    let counts = session.counts.all();
    let fact = SessionFact {
        started_ns: session.started_at.0,
        capacity_bytes: settings.capacity_bytes,
        interval_ns: ns(settings.interval),
        max_cpu_ppm: settings.max_cpu_ppm,
        features: settings.features.bits(),
        filters: settings.filters.clone(),
        signal: settings.signal,
        duration_ns: settings.duration.map(ns),
        allocation_interval_bytes: settings.allocation_interval_bytes,
        active_tab_id: settings.active_tab_id,
        records_overheads: settings.records_overheads,
        crate_version: env!("CARGO_PKG_VERSION").to_owned(),
        count_names: counts.iter().map(|(name, _)| (*name).to_owned()).collect(),
    };
    vec![fact.into()]
}

/// Returns the empty data of a session, with the name of its lock.
fn shared_data<T: Default>(name: &'static str) -> NamedMutex<T> {
    NamedMutex::new(name, LockRank::SessionData, T::default())
}
