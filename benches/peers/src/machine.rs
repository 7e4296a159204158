//! Reports how quiet the machine was: a figure measured while a compiler runs says little.

use std::fs::read_to_string;

use crate::raw::{children_cpu_ns, process_cpu_ns};

/// Unit of times in `/proc`: `USER_HZ`, 100 on all architectures that are still in use.
const TICKS_PER_SECOND: f64 = 100.0;

/// Runs `work`, and reports how many processors other processes and the hypervisor used at the same
/// time, as two numbers.
pub(crate) fn watch<T>(work: impl FnOnce() -> T) -> (T, String) {
    let before = Usage::now();
    let result = work();
    let taken = before
        .zip(Usage::now())
        .map(|(before, after)| after.taken_since(&before));
    (result, taken.unwrap_or_else(|| "unknown".to_owned()))
}

/// Processor time in seconds, of the machine since boot and of this process since its start.
struct Usage {
    all: f64,
    stolen: f64,
    /// Includes the time of children that have ended.
    own: f64,
    uptime: f64,
}

impl Usage {
    /// Reads the current usage; `None` if `/proc` lacks it.
    fn now() -> Option<Self> {
        let stat = read_to_string("/proc/stat").ok()?;
        let columns = stat.lines().next()?.split_whitespace().skip(1);
        let ticks: Vec<f64> = columns.map_while(|column| column.parse().ok()).collect();
        // The columns after these are guest time, which the first two already include.
        let [
            user,
            nice,
            system,
            _idle,
            _waiting,
            interrupts,
            soft_interrupts,
            stolen,
        ] = *ticks.first_chunk()?;
        let uptime = read_to_string("/proc/uptime").ok()?;
        let own_ns = process_cpu_ns() + children_cpu_ns().ok()?;
        Some(Self {
            all: (user + nice + system + interrupts + soft_interrupts) / TICKS_PER_SECOND,
            stolen: stolen / TICKS_PER_SECOND,
            own: own_ns as f64 / 1e9,
            uptime: uptime.split_whitespace().next()?.parse().ok()?,
        })
    }

    fn taken_since(&self, before: &Self) -> String {
        let span = self.uptime - before.uptime;
        let others = (self.all - before.all) - (self.own - before.own);
        let stolen = self.stolen - before.stolen;
        format!("{:.2} + {:.2}", (others / span).max(0.0), stolen / span)
    }
}

/// Describes the machine's load before a measurement.
pub(crate) fn load_note() -> String {
    let load = read_to_string("/proc/loadavg").unwrap_or_default();
    let minute = load.split_whitespace().next().unwrap_or("unknown");
    let processors = std::thread::available_parallelism().map_or(0, usize::from);
    format!("load before: {minute} on {processors} processors")
}
