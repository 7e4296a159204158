//! The thread that checks whether the process exceeds a limit of CPU time or memory, or an event
//! loop exceeds the limit of a jank. The thread then dumps.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::platform::{
    ResidentMemory, monotonic_now, process_cpu_ns, sleep_until, usable_processors,
};
use crate::session::dump_causes::dump_on_main_track;
use crate::session::dump_janks::{dump_for_janks, forget_janks};
use crate::session::dumps::keep_settings;
use crate::session::running::LIFE_CYCLE;
use crate::session::signals::{Untaken, prepare_dump_signal, set_dump_signal};
use crate::session::task::spawn_task;
use crate::types::{DumpError, DumpSettings, StartError, TimeStamp};
use crate::util::is_any_lock_held_on_current_thread;

/// Time between two checks of CPU time and memory, in ns.
const INTERVAL_NS: u64 = 1_000_000_000;
/// Minimum time between two checks of event loops, in ns.
const MIN_JANK_INTERVAL_NS: u64 = 5_000_000;

/// The number of the newest thread. Older threads end.
static NEWEST: AtomicU64 = AtomicU64::new(0);

/// Whether the application has set dumps.
static IS_SET_BY_APPLICATION: AtomicBool = AtomicBool::new(false);

/// Sets where dumps go and what causes them; `None` for no more causes.
///
/// # Errors
/// - [`DumpError::BadValue`]: nothing has changed.
/// - [`DumpError::System`]: the system refuses a thread, a pipe or a handler. Then nothing has
///   changed, but limits of the settings before are no longer checked.
/// - [`DumpError::Reentrant`]
pub(crate) fn set_dumps(settings: Option<DumpSettings>) -> Result<(), DumpError> {
    set_dumps_by(settings, true)
}

fn set_dumps_by(settings: Option<DumpSettings>, is_application: bool) -> Result<(), DumpError> {
    if is_any_lock_held_on_current_thread() {
        return Err(DumpError::Reentrant);
    }
    let signal = settings.as_ref().and_then(|settings| settings.signal);
    if signal.is_some() {
        prepare_dump_signal();
    }
    // Of two calls at a time, all settings of the second one hold.
    let guard = LIFE_CYCLE.lock();
    let taken = set_dump_signal(signal);
    if let Err(untaken) = taken {
        drop(guard);
        return Err(to_dump_error(untaken));
    }
    let watched = settings.as_ref().filter(|settings| has_limits(settings));
    let number = NEWEST.fetch_add(1, Ordering::AcqRel) + 1;
    if let Some(watched) = watched {
        let watcher = LimitWatcher::new(watched.clone());
        let watch = move || watcher.run(number);
        spawn_task(watch).map_err(|error| DumpError::System {
            action: "create a thread that checks the limits",
            answer: error.to_string(),
        })?;
    }
    keep_settings(settings);
    if is_application {
        IS_SET_BY_APPLICATION.store(true, Ordering::Release);
    }
    Ok(())
}

/// Sets dumps that a signal causes, unless the application has set dumps.
///
/// # Errors
/// See [`set_dumps`].
pub(super) fn set_dumps_by_default(settings: DumpSettings) -> Result<(), DumpError> {
    match IS_SET_BY_APPLICATION.load(Ordering::Acquire) {
        false => set_dumps_by(Some(settings), false),
        true => Ok(()),
    }
}

fn has_limits(settings: &DumpSettings) -> bool {
    settings.cpu_share.is_some() || settings.memory_bytes.is_some() || settings.long_jank.is_some()
}

fn to_dump_error(untaken: Untaken) -> DumpError {
    match untaken.clean_up() {
        StartError::BadValue {
            field,
            value,
            accepted,
        } => DumpError::BadValue {
            setting: field,
            value,
            accepted,
        },
        StartError::System { action, answer } => DumpError::System { action, answer },
        other => DumpError::System {
            action: "take the signal that causes dumps",
            answer: other.to_string(),
        },
    }
}

/// The settings that the thread checks, and its earlier findings.
struct LimitWatcher {
    settings: DumpSettings,
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
    match dump_on_main_track(reason, before == Done::Nothing) {
        Ok(_) => Done::Dumped,
        Err(_) => Done::Refused,
    }
}

/// Returns the time between two checks of event loops, in ns.
fn jank_interval_ns(limit: Duration) -> u64 {
    let limit_ns = u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX);
    (limit_ns / 4).clamp(MIN_JANK_INTERVAL_NS, INTERVAL_NS)
}

impl LimitWatcher {
    fn new(settings: DumpSettings) -> Self {
        Self {
            settings,
            memory: ResidentMemory::default(),
            last: None,
            done: [Done::default(); 2],
        }
    }

    /// Checks until a newer thread takes over.
    fn run(mut self, number: u64) {
        let interval_ns = self
            .settings
            .long_jank
            .map_or(INTERVAL_NS, jank_interval_ns);
        let mut due = monotonic_now().plus_ns(INTERVAL_NS);
        // Under these settings, janks that have already ended cause no dump.
        forget_janks();
        loop {
            sleep_until(monotonic_now().plus_ns(interval_ns));
            if NEWEST.load(Ordering::Acquire) != number {
                return;
            }
            if self.settings.long_jank.is_some() {
                dump_for_janks();
            }
            let now = monotonic_now();
            if now >= due {
                due = now.plus_ns(INTERVAL_NS);
                self.check_limits();
            }
        }
    }

    fn check_limits(&mut self) {
        let reasons = [self.cpu_reason(), self.memory_reason()];
        for (reason, done) in reasons.into_iter().zip(&mut self.done) {
            *done = match (reason, *done) {
                (None, _) => Done::Nothing,
                (Some(_), Done::Dumped) => Done::Dumped,
                // A refused dump is tried again, as long as the limit is exceeded.
                (Some(reason), before) => dump(&reason, before),
            };
        }
    }

    /// Returns the reason if the CPU time is above its limit.
    fn cpu_reason(&mut self) -> Option<String> {
        let now = (monotonic_now(), process_cpu_ns());
        let (time, cpu_ns) = self.last.replace(now)?;
        let passed_ns = now.0.since_ns(time).max(1);
        let used_ns = now.1.saturating_sub(cpu_ns) as f64;
        let share = used_ns / (passed_ns as f64 * usable_processors() as f64);
        let is_above = share > self.settings.cpu_share?;
        is_above.then(|| format!("the process used {:.0} % of the processors", share * 100.0))
    }

    /// Returns the reason if the memory is above its limit.
    fn memory_reason(&mut self) -> Option<String> {
        let limit = self.settings.memory_bytes?;
        let bytes = self.memory.bytes().filter(|bytes| *bytes > limit)?;
        Some(format!("the process has {} MiB in memory", bytes >> 20))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn janks_are_checked_four_times_within_their_limit() {
        assert_eq!(jank_interval_ns(Duration::from_millis(100)), 25_000_000);
        assert_eq!(jank_interval_ns(Duration::ZERO), MIN_JANK_INTERVAL_NS);
        assert_eq!(jank_interval_ns(Duration::MAX), INTERVAL_NS);
    }
}
