//! How quiet the machine was: a figure that was measured beside a compiler says little.

use std::fs::read_to_string;

/// The kernel's unit in `/proc`, on all of its architectures but those that are long gone.
const TICKS_PER_SECOND: f64 = 100.0;

/// Does something, and tells how many processors other processes + the hypervisor had meanwhile.
pub(crate) fn watch<T>(work: impl FnOnce() -> T) -> (T, String) {
    let before = Usage::now();
    let result = work();
    let taken = before
        .zip(Usage::now())
        .map(|(before, after)| after.taken_since(&before));
    (result, taken.unwrap_or_else(|| "unknown".to_owned()))
}

/// Seconds of processor time since the machine and this process began.
struct Usage {
    all: f64,
    stolen: f64,
    /// With that of its children that have ended.
    own: f64,
    uptime: f64,
}

impl Usage {
    /// `None` where `/proc` does not tell.
    fn now() -> Option<Self> {
        let stat = read_to_string("/proc/stat").ok()?;
        let columns = seconds(stat.lines().next()?.split_whitespace().skip(1));
        // Time of guests, the columns after these, is in the first two already.
        let &[
            user,
            nice,
            system,
            _idle,
            _waiting,
            interrupts,
            soft_interrupts,
            stolen,
            ..,
        ] = &columns[..]
        else {
            return None;
        };
        let all = user + nice + system + interrupts + soft_interrupts;
        let own = read_to_string("/proc/self/stat").ok()?;
        // The name of the program, in parentheses, may hold anything.
        let own = seconds(own.rsplit_once(')')?.1.split_whitespace().skip(11).take(4))
            .iter()
            .sum();
        let uptime = read_to_string("/proc/uptime")
            .ok()?
            .split_whitespace()
            .next()?
            .parse()
            .ok()?;
        Some(Self {
            all,
            stolen,
            own,
            uptime,
        })
    }

    fn taken_since(&self, before: &Self) -> String {
        let span = self.uptime - before.uptime;
        let others = (self.all - before.all) - (self.own - before.own);
        let stolen = self.stolen - before.stolen;
        format!("{:.2} + {:.2}", (others / span).max(0.0), stolen / span)
    }
}

fn seconds<'a>(columns: impl Iterator<Item = &'a str>) -> Vec<f64> {
    columns
        .map_while(|column| column.parse::<f64>().ok())
        .map(|ticks| ticks / TICKS_PER_SECOND)
        .collect()
}

/// The load before a measurement, in a sentence.
pub(crate) fn load_note() -> String {
    let load = read_to_string("/proc/loadavg").unwrap_or_default();
    let minute = load.split_whitespace().next().unwrap_or("unknown");
    let processors = std::thread::available_parallelism().map_or(0, usize::from);
    format!("load before: {minute} on {processors} processors")
}
