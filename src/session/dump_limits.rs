//! The thread that checks once a second whether the process exceeds a limit of CPU time or memory,
//! and then dumps.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::platform::{
    ResidentMemory, monotonic_now, process_cpu_ns, sleep_until, usable_processors,
};
use crate::session::dumps::{dump_settings, keep_settings, permit_dump_for};
use crate::session::task::spawn_task;
use crate::types::{DumpError, DumpSettings, TimeStamp};

/// Time between two checks, in ns.
const INTERVAL_NS: u64 = 1_000_000_000;

/// The number of the newest thread. Older threads end.
static NEWEST: AtomicU64 = AtomicU64::new(0);

/// Sets where dumps go and what causes them; `None` for no more causes.
///
/// # Errors
/// [`DumpError::System`]: the system refuses the thread. Then nothing has changed, but limits of
/// the settings before are no longer checked.
pub(crate) fn set_dumps(settings: Option<DumpSettings>) -> Result<(), DumpError> {
    let has_limits = settings
        .as_ref()
        .is_some_and(|settings| settings.cpu_share.is_some() || settings.memory_bytes.is_some());
    let number = NEWEST.fetch_add(1, Ordering::AcqRel) + 1;
    if has_limits {
        let watcher = LimitWatcher::default();
        spawn_task(move || watcher.run(number)).map_err(|error| DumpError::System {
            action: "create a thread that checks the limits",
            answer: error.to_string(),
        })?;
    }
    keep_settings(settings);
    Ok(())
}

/// What the thread has seen.
#[derive(Default)]
struct LimitWatcher {
    memory: ResidentMemory,
    /// The time of the last check, and the CPU time of the process then.
    last: Option<(TimeStamp, u64)>,
    /// What was done since the CPU time, and the memory, exceeded their limits.
    done: [Done; 2],
}

/// What was done since a limit is exceeded.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum Done {
    #[default]
    Nothing,
    Refused,
    Dumped,
}

/// Dumps, unless that is refused. Only the first refusal counts as a cause.
fn dump(reason: &str, before: Done) -> Done {
    let permit = permit_dump_for(before == Done::Nothing);
    match permit.and_then(|permit| permit.write(None, reason)) {
        Ok(_) => Done::Dumped,
        Err(_) => Done::Refused,
    }
}

impl LimitWatcher {
    /// Checks until a newer thread takes over.
    fn run(mut self, number: u64) {
        loop {
            sleep_until(monotonic_now().plus_ns(INTERVAL_NS));
            if NEWEST.load(Ordering::Acquire) != number {
                return;
            }
            let settings = dump_settings();
            let reasons = [self.cpu_reason(&settings), self.memory_reason(&settings)];
            for (reason, done) in reasons.into_iter().zip(&mut self.done) {
                *done = match (reason, *done) {
                    (None, _) => Done::Nothing,
                    (Some(_), Done::Dumped) => Done::Dumped,
                    // A refused dump is tried again, as long as the limit is exceeded.
                    (Some(reason), before) => dump(&reason, before),
                };
            }
        }
    }

    /// Returns the reason if the CPU time is above its limit.
    fn cpu_reason(&mut self, settings: &DumpSettings) -> Option<String> {
        let now = (monotonic_now(), process_cpu_ns());
        let (time, cpu_ns) = self.last.replace(now)?;
        let passed_ns = now.0.since_ns(time).max(1);
        let used_ns = now.1.saturating_sub(cpu_ns) as f64;
        let share = used_ns / (passed_ns as f64 * usable_processors() as f64);
        let is_above = share > settings.cpu_share?;
        is_above.then(|| format!("the process used {:.0} % of the processors", share * 100.0))
    }

    /// Returns the reason if the memory is above its limit.
    fn memory_reason(&mut self, settings: &DumpSettings) -> Option<String> {
        let limit = settings.memory_bytes?;
        let bytes = self.memory.bytes().filter(|bytes| *bytes > limit)?;
        Some(format!("the process has {} MiB in memory", bytes >> 20))
    }
}
