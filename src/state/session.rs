//! What a session's sampler and its snapshots share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::base::{Features, LockRank, NamedMutex, TimeStamp};
use crate::counters::CounterDescription;
use crate::unwind::{CodeMap, LoadedModule, ModuleTable, registered_code};

/// A session's settings, after adjustment.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SessionSettings {
    pub(crate) capacity_bytes: u64,
    pub(crate) interval: Duration,
    pub(crate) features: Features,
    pub(crate) filters: Vec<String>,
    pub(crate) signal: i32,
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
    /// Ticks of the schedule that passed while the sampler could not run.
    missed_ticks,
    /// Samples taken by a signal.
    captured_samples,
    /// Samples of threads that had not run since the one before.
    same_samples,
    /// Samples whose stack could not be followed to its root.
    truncated_samples,
    /// Ticks on which a thread that was running had not answered.
    unanswered_ticks,
    /// Requests that the system did not pass on.
    refused_signals,
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
    /// Native frames that unwinding found, and the time that it took.
    unwound_frames,
    unwind_ns,
}

impl SessionCounts {
    pub(crate) fn add(count: &AtomicU64, number: u64) {
        count.fetch_add(number, Ordering::Relaxed);
    }
}

/// A running session, shared by reference.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) settings: SessionSettings,
    pub(crate) process_start: TimeStamp,
    pub(crate) started_at: TimeStamp,
    pub(crate) counters: Vec<&'static CounterDescription>,
    pub(crate) counts: SessionCounts,
    /// Written by the sampler when something was loaded or unloaded, read by snapshots.
    modules: NamedMutex<Vec<LoadedModule>>,
    /// What `/tmp/perf-PID.map` says, as far as the sampler has read it.
    perf_map: NamedMutex<Arc<CodeMap>>,
    stop: AtomicBool,
}

impl Session {
    pub(crate) fn new(
        settings: SessionSettings,
        process_start: TimeStamp,
        started_at: TimeStamp,
        counters: Vec<&'static CounterDescription>,
    ) -> Self {
        Self {
            settings,
            process_start,
            started_at,
            counters,
            counts: SessionCounts::default(),
            modules: NamedMutex::new("session modules", LockRank::ThreadData, Vec::new()),
            perf_map: NamedMutex::new("session perf map", LockRank::ThreadData, Arc::default()),
            stop: AtomicBool::new(false),
        }
    }

    pub(crate) fn set_modules(&self, table: &ModuleTable) {
        let all = table.all();
        *self.modules.lock() = all;
    }

    pub(crate) fn modules(&self) -> Vec<LoadedModule> {
        self.modules.lock().clone()
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
