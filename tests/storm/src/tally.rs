//! Counts of events on all threads.

use std::sync::atomic::{AtomicU64, Ordering};

/// A count, a maximum or a minimum.
pub struct Tally {
    name: &'static str,
    value: AtomicU64,
}

impl Tally {
    pub fn name(&self) -> &'static str {
        self.name
    }

    const fn new(name: &'static str) -> Self {
        Self {
            name,
            value: AtomicU64::new(0),
        }
    }

    pub fn add(&self, number: u64) {
        self.value.fetch_add(number, Ordering::Relaxed);
    }

    pub fn one(&self) {
        self.add(1);
    }

    pub fn greatest(&self, number: u64) {
        self.value.fetch_max(number, Ordering::Relaxed);
    }

    /// Updates a minimum of numbers other than 0.
    pub fn least(&self, number: u64) {
        let least = |value| {
            Some(if value == 0 {
                number
            } else {
                number.min(value)
            })
        };
        let _ = self
            .value
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, least);
    }

    pub fn value(&self) -> u64 {
        self.value.load(Ordering::Relaxed)
    }
}

macro_rules! tallies {
    ($($constant:ident $name:literal;)+) => {
        $(pub static $constant: Tally = Tally::new($name);)+
        static ALL: &[&Tally] = &[$(&$constant,)+];
    };
}

tallies! {
    ROUNDS "rounds";
    FEWEST_WORKERS "workers at once";
    SESSIONS "sessions";
    RESTARTS "sessions started over a running one";
    SNAPSHOTS "snapshots written";
    SNAPSHOT_BYTES "bytes of snapshots";
    PROFILES_PARSED "profiles parsed";
    PROFILES_NAMED "of these with function names";
    SAMPLES_CAPTURED "samples captured";
    SAMPLES_SAME "samples of threads that had not run";
    SAMPLES_TRUNCATED "samples truncated";
    UNANSWERED "ticks unanswered";
    MISSED_TICKS "ticks missed";
    TICKS "ticks";
    REFUSED_SIGNALS "signals refused";
    FOUND_DEAD "threads found dead";
    DROPPED_SAMPLES "samples dropped for lack of space";
    PEER_RUNS "runs of pprof";
    PEER_SAMPLES "samples of pprof";
    ALLOCATIONS "allocations";
    LOADS "libraries loaded";
    UNLOADS "of these unmapped";
    PLUGINS "plugins loaded, called and unloaded";
    COPY_SESSIONS "sessions of the other copy";
    COPY_SAMPLES "samples of the other copy";
    COPIES_PROGRAMS "programs with several copies";
    CLOSINGS "programs with close_range";
    EXECUTIONS "programs that exec while profiled";
    SANDBOXES "programs that enter a sandbox";
    SANDBOX_KILLS "of these killed by it";
    SHORTAGES "moments without descriptors";
    SAVES "profiles saved";
    SAVES_REFUSED "saves refused without descriptors";
    FILES_READ "saved files read whole";
    PANICS "panics caught";
    BACKTRACES "backtraces taken";
    BACKTRACES_NAMED "of these with names";
    THREADS_SHORT "short threads with a marker";
    THREADS_BORN "other threads started and ended";
    THREADS_KILLED "of these without destructors";
    FORKS_WILD "forks at any moment";
    FORKS_PROFILING "forks whose child took a profile";
    FORKS_EXECUTING "forks with exec";
    SPAWNS "commands spawned";
    DIVES "deep recursions";
    DEEPEST_KIB "deepest stack in KiB";
    WAITS "waits with a timeout";
    EINTR_EPOLL "EINTR of epoll_wait";
    EINTR_POLL "EINTR of poll";
    EINTR_NANOSLEEP "EINTR of nanosleep";
    EINTR_READ "EINTR of read";
    LATEST_MS "latest return from a wait in ms";
    PIPE_BYTES "bytes through pipes";
    ALTSTACK_SIGNALS "application signals on a signal stack";
    COROUTINE_SWITCHES "switches of coroutines";
    BLOCKED_SPANS "seconds with the signals blocked";
    LABELS "labels pushed";
    MARKERS "markers added";
    EVENTS "events run";
    PROBES "probes received";
    REGISTER_CHECKS "checks of all registers";
    ANSWERS "answers of the profiler's server";
    ANSWERS_CHECKED "complete profiles among these answers";
    ANSWERS_REFUSED "clients refused";
    UNANSWERED_CLIENTS "clients without an answer";
    DUMPS_BEGUN "dumps begun by a worker";
    DUMPS_READ "dumps read whole";
    PUSHED "profiles pushed";
    PUSHERS_AGAIN "starts of a pusher before the last one had ended";
    LATE_WORKERS "workers that the last session of a round did not wait for";
    PUSHES_RETRIED "pushes that failed";
    STORED "profiles in the store";
    REQUESTS "requests with a context";
}

/// Returns the problem with the programs that their sandbox has killed.
pub fn problem_of_sandboxes() -> Option<String> {
    let (killed, all) = (SANDBOX_KILLS.value(), SANDBOXES.value());
    (killed > 0).then(|| {
        format!(
            "{killed} of {all} programs were killed by their sandbox; \
             `dmesg | grep type=1326` shows for which system calls"
        )
    })
}

/// Prints all counts, one per line.
pub fn print() {
    for tally in ALL {
        println!("  {:38} {:>14}", tally.name, tally.value());
    }
}
