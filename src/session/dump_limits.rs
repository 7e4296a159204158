//! The thread that looks, once a second, whether the process exceeds a limit of CPU time or memory, and
//! then dumps.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::platform::{
    ResidentMemory, current_process_id, monotonic_now, process_cpu_ns, sleep_until,
    usable_processors,
};
use crate::session::dumps::{dump_settings, keep_settings, permit_dump};
use crate::session::task::spawn_task;
use crate::types::{DumpError, DumpSettings, TimeStamp};

/// Time between two looks, in ns.
const INTERVAL_NS: u64 = 1_000_000_000;

/// The number of the newest thread, with the process in the upper half. Older threads end.
static NEWEST: AtomicU64 = AtomicU64::new(0);

/// Sets where dumps go and what causes them; `None` for no more causes.
///
/// # Errors
/// Those of [`watch_limits`]. Nothing has changed then.
pub(crate) fn set_dumps(settings: Option<DumpSettings>) -> Result<(), DumpError> {
    watch_limits(settings.as_ref())?;
    keep_settings(settings);
    Ok(())
}

/// Starts a thread for these settings, in place of the one before.
///
/// # Errors
/// [`DumpError::System`]: the system refuses the thread. The one before goes on.
fn watch_limits(settings: Option<&DumpSettings>) -> Result<(), DumpError> {
    let has_limits = settings
        .is_some_and(|settings| settings.cpu_share.is_some() || settings.memory_bytes.is_some());
    let before = NEWEST.load(Ordering::Relaxed);
    let process = u64::from(current_process_id().to_number().cast_unsigned()) << 32;
    let number = process | u64::from((before as u32).wrapping_add(1));
    if has_limits {
        spawn_task(move || Looks::default().run(number)).map_err(|error| DumpError::System {
            action: "create a thread that looks at the limits",
            answer: error.to_string(),
        })?;
    }
    NEWEST.store(number, Ordering::Release);
    Ok(())
}

/// What the thread has seen.
#[derive(Default)]
struct Looks {
    memory: ResidentMemory,
    /// When the thread last looked, and the CPU time of the process then.
    last: Option<(TimeStamp, u64)>,
    /// Whether the memory was above its limit.
    was_above: bool,
}

impl Looks {
    /// Looks until a newer thread takes over. The caller stores `number` right after the start.
    fn run(&mut self, number: u64) {
        loop {
            sleep_until(monotonic_now().plus_ns(INTERVAL_NS));
            if NEWEST.load(Ordering::Acquire) != number {
                return;
            }
            let settings = dump_settings();
            let reason = [self.cpu_reason(&settings), self.memory_reason(&settings)];
            for reason in reason.into_iter().flatten() {
                // If it is too soon, the next dump has the number of such causes.
                if let Ok(permit) = permit_dump() {
                    let _ = permit.write(None, &reason);
                }
            }
        }
    }

    fn cpu_reason(&mut self, settings: &DumpSettings) -> Option<String> {
        let now = (monotonic_now(), process_cpu_ns());
        let (time, cpu_ns) = self.last.replace(now)?;
        let passed_ns = now.0.since_ns(time).max(1);
        let used = now.1.saturating_sub(cpu_ns) as f64;
        let share = used / (passed_ns as f64 * usable_processors() as f64);
        let is_above = share > settings.cpu_share?;
        is_above.then(|| format!("the process used {:.0} % of the processors", share * 100.0))
    }

    fn memory_reason(&mut self, settings: &DumpSettings) -> Option<String> {
        let limit = settings.memory_bytes?;
        let bytes = self.memory.bytes()?;
        let was_above = std::mem::replace(&mut self.was_above, bytes > limit);
        let is_due = bytes > limit && !was_above;
        is_due.then(|| format!("the process has {} MiB in memory", bytes >> 20))
    }
}
