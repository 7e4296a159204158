//! Lines that map counts of the processor's counter to time, and how one follows from another.

/// Minimum interval between two comparisons, in ns.
const INTERVAL_NS: u64 = 100_000_000;
/// Minimum interval between the first two comparisons, in ns. It is shorter, so that the counter is
/// used soon.
pub(crate) const FIRST_INTERVAL_NS: u64 = 20_000_000;
/// Maximum age of a comparison, in ns. Beyond it the counter is not used.
pub(crate) const MAX_AGE_NS: u64 = 1_000_000_000;
/// Maximum lag of the counter, in ns, that is corrected gradually. A larger one is corrected at
/// once.
const MAX_GRADUAL_LAG_NS: i64 = 100_000;
/// Maximum lead of the counter, in ns. Beyond it the counter was changed: the machine was migrated
/// or suspended.
const MAX_LEAD_NS: u64 = 10_000_000;
/// Maximum number of counts by which a processor may be behind the one that compared.
const MAX_SKEW_COUNTS: u64 = 10_000;

/// A linear mapping from counts to time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Line {
    pub(crate) count: u64,
    pub(crate) ns: u64,
    /// Nanoseconds per count, in units of 2^-32; 0 if unknown.
    pub(crate) rate: u64,
    /// Number of counts after which the line is too old.
    pub(crate) max_counts: u64,
}

impl Line {
    /// No mapping: the time is that of the system clock.
    pub(crate) const UNKNOWN: Self = Self {
        count: 0,
        ns: 0,
        rate: 0,
        max_counts: 0,
    };

    pub(crate) fn new(count: u64, ns: u64, rate: u64) -> Self {
        let max_counts = (u128::from(MAX_AGE_NS) << 32)
            .checked_div(rate.into())
            .unwrap_or(0) as u64;
        Self {
            count,
            ns,
            rate,
            max_counts,
        }
    }

    pub(crate) const fn is_known(self) -> bool {
        self.rate != 0
    }

    /// Returns the time that is `counts` after the line's start, without checking the line's age.
    /// `counts` is read as an `i64`, and may be negative.
    #[inline(always)]
    pub(crate) fn ns_after(self, counts: u64) -> u64 {
        let ns = (i128::from(counts as i64) * i128::from(self.rate as i64)) >> 32;
        self.ns.wrapping_add(ns as u64)
    }

    /// Returns the time at `count`, or `None` if the line is too old.
    #[inline(always)]
    pub(crate) fn time_at(self, count: u64) -> Option<u64> {
        let counts = count.wrapping_sub(self.count);
        // This processor's counter may be slightly behind that of the processor that compared.
        (counts.wrapping_add(MAX_SKEW_COUNTS) <= self.max_counts).then(|| self.ns_after(counts))
    }

    /// Returns the time at `count`, or that of the system clock if the line is too old.
    pub(crate) fn time_or(self, count: u64, system_ns: impl Fn() -> u64) -> u64 {
        self.time_at(count)
            .unwrap_or_else(|| self.system_time(system_ns()))
    }

    /// Returns the time of the system clock, but not less than the end of the line: the line may
    /// have been ahead when it became too old. If the end is [`MAX_LEAD_NS`] or more ahead, the
    /// line did not reach it: the counter was changed.
    fn system_time(self, system_ns: u64) -> u64 {
        let end_ns = self.ns_after(self.max_counts);
        if end_ns.saturating_sub(system_ns) < MAX_LEAD_NS {
            end_ns.max(system_ns)
        } else {
            system_ns
        }
    }

    /// Returns the line that follows from two comparisons, or `None` if they are too close.
    pub(crate) fn next(self, last: Comparison, now: Comparison) -> Option<Self> {
        let ns = now.ns.saturating_sub(last.ns);
        let min_ns = if self.is_known() {
            INTERVAL_NS
        } else {
            FIRST_INTERVAL_NS
        };
        if ns < min_ns {
            return None;
        }
        let measured = (u128::from(ns) << 32)
            .checked_div(now.count.wrapping_sub(last.count).into())
            .unwrap_or(0);
        let plausible = (1 << 20)..(1 << 40);
        let Some(rate) = u64::try_from(measured)
            .ok()
            .filter(|rate| plausible.contains(rate))
        else {
            return Some(Self::UNKNOWN);
        };
        let measured = Self::new(now.count, now.ns, rate);
        if !self.is_known() {
            return Some(measured);
        }
        let predicted = self.ns_after(now.count.wrapping_sub(self.count));
        let error_ns = now.ns.wrapping_sub(predicted) as i64;
        if error_ns < -(MAX_LEAD_NS as i64) {
            return Some(Self::UNKNOWN);
        }
        if error_ns > MAX_GRADUAL_LAG_NS {
            return Some(measured);
        }
        // The error is corrected until the next comparison, or later if that would slow the time to
        // less than half its rate.
        let interval_counts = (u128::from(INTERVAL_NS) << 32) / u128::from(rate);
        let correction = (i128::from(error_ns) << 32) / interval_counts as i128;
        let corrected = (i128::from(rate) + correction).max(i128::from(rate / 2));
        Some(Self::new(now.count, predicted, corrected as u64))
    }
}

/// The counter and the system clock, read at nearly the same time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Comparison {
    pub(crate) count: u64,
    pub(crate) ns: u64,
    /// Time between the two reads of the system clock around that of the counter, in ns.
    pub(crate) span_ns: u64,
}
