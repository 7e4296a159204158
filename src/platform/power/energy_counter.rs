//! One energy counter, wherever the kernel offers it.

use std::os::fd::OwnedFd;

use nix::unistd::read;

use crate::platform::sysfs::NumberAttribute;

/// Picowatt-hours of a joule.
pub(super) const PWH_PER_JOULE: f64 = 1e12 / 3600.0;

/// What a counter measures.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum EnergyDomain {
    /// A processor with all that is in its package.
    Package,
    /// The cores of a processor.
    Cores,
    /// The graphics unit of a processor.
    Gpu,
    /// The memory.
    Dram,
    /// The whole platform.
    System,
}

/// Where the number comes from.
#[derive(Debug)]
pub(super) enum EnergySource {
    /// A file. Its number begins anew after `range`.
    Zone {
        energy: NumberAttribute,
        range: Option<u64>,
    },
    /// An event, which is read as 8 bytes.
    Event(OwnedFd),
}

impl EnergySource {
    fn read(&mut self) -> Option<u64> {
        match self {
            Self::Zone { energy, .. } => energy.read().ok(),
            Self::Event(event) => {
                let mut bytes = [0; 8];
                let length = read(&*event, &mut bytes).ok()?;
                (length == bytes.len()).then(|| u64::from_ne_bytes(bytes))
            }
        }
    }

    /// Returns how much was used between two readings.
    fn growth(&self, before: u64, now: u64) -> u64 {
        match (now.checked_sub(before), self) {
            (Some(growth), _) => growth,
            (None, Self::Zone { range, .. }) => growth_around(before, now, *range).unwrap_or(0),
            (None, Self::Event(_)) => 0,
        }
    }
}

/// Returns the growth of a number that has become smaller, if it has begun anew after `range`.
///
/// A file's number also begins anew if a user resets it, or when the machine wakes. That looks like
/// a large growth. The time between two readings is too short for half of the range.
fn growth_around(before: u64, now: u64, range: Option<u64>) -> Option<u64> {
    let range = range?;
    let growth = range.checked_sub(before)?.checked_add(now)?;
    (growth < range / 2).then_some(growth)
}

/// An energy counter of the machine. Only the thread that has found it may read it.
#[derive(Debug)]
pub(crate) struct EnergyCounter {
    pub(crate) domain: EnergyDomain,
    /// The number of the processor's package, with that of its die if there are several. Empty if
    /// the counter is that of the whole machine.
    pub(crate) package: String,
    source: EnergySource,
    pwh_per_unit: f64,
    last: Option<u64>,
    /// The sum of the growth since the first reading, in the source's unit.
    used: u64,
}

impl EnergyCounter {
    pub(super) fn new(
        domain: EnergyDomain,
        package: String,
        source: EnergySource,
        joules_per_unit: f64,
    ) -> Self {
        Self {
            domain,
            package,
            source,
            pwh_per_unit: joules_per_unit * PWH_PER_JOULE,
            last: None,
            used: 0,
        }
    }

    /// Returns the energy that was used since the first reading, in pWh; `None` if the kernel does
    /// not tell it now. Cost: some µs, because the kernel may ask another processor.
    pub(crate) fn read(&mut self) -> Option<i64> {
        let now = self.source.read()?;
        let before = self.last.replace(now).unwrap_or(now);
        self.used = self.used.saturating_add(self.source.growth(before, now));
        Some((self.used as f64 * self.pwh_per_unit) as i64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn smaller_number_counts_only_if_it_went_around() {
        assert_eq!(growth_around(990, 5, Some(1000)), Some(15));
        assert_eq!(growth_around(1000, 0, Some(1000)), Some(0));
        // A reset.
        assert_eq!(growth_around(400, 5, Some(1000)), None);
        assert_eq!(growth_around(990, 5, None), None);
        assert_eq!(growth_around(2000, 5, Some(1000)), None);
        assert_eq!(growth_around(1, 0, Some(u64::MAX)), None);
        assert_eq!(growth_around(0, u64::MAX, Some(u64::MAX)), None);
    }
}
