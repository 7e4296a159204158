//! The monotonic clock, computed from the processor's time-stamp counter (TSC). It takes half the
//! time of the C library's clock, which waits until all earlier instructions have completed.
//!
//! The sampler compares the counter with the system clock every 100 ms, and readers extrapolate
//! from the last comparison. Time advances evenly between comparisons: an error found by one is
//! corrected gradually until the next. The counter is not used if the last comparison is older than
//! a second, or if the system does not take its own time from the TSC. A reader that then falls
//! back to the system clock may see a time some microseconds earlier than the one before.
//!
//! Runs in the signal handler: [`fast_now`].
//!
//! **Contract** (cited below):
//! - *every processor has it*: every x86_64 processor has a time-stamp counter that programs may
//!   read.

use std::arch::x86_64::{_mm_lfence, _rdtsc};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};

use crate::types::TimeStamp;

/// Minimum interval between two comparisons, in ns.
const INTERVAL_NS: u64 = 100_000_000;
/// Minimum interval between the first two comparisons, in ns. It is shorter, so that the counter is
/// used soon.
const FIRST_INTERVAL_NS: u64 = 20_000_000;
/// Maximum age of a comparison, in ns. Beyond it the counter is not used.
const MAX_AGE_NS: u64 = 1_000_000_000;
/// Maximum lag of the counter, in ns, that is corrected gradually. A larger one is corrected at
/// once.
const MAX_GRADUAL_LAG_NS: i64 = 100_000;
/// Maximum lead of the counter, in ns. Beyond it the counter was changed: the machine was migrated
/// or suspended.
const MAX_LEAD_NS: i64 = 10_000_000;

/// Two calibrations: the current one, and space to prepare the next, so that readers always have a
/// valid one. One thread at a time writes; any thread reads.
struct CalibrationPair {
    /// The low bit is the index of the current calibration.
    version: AtomicU64,
    pair: [Calibration; 2],
}

/// A linear mapping from counts to time.
struct Calibration {
    count: AtomicU64,
    ns: AtomicU64,
    /// Nanoseconds per count, in units of 2^-32; 0 if unknown.
    rate: AtomicU64,
    /// Number of counts after which the calibration is too old.
    max_counts: AtomicU64,
}

static CALIBRATIONS: CalibrationPair = CalibrationPair::new();

impl Calibration {
    const fn new() -> Self {
        Self {
            count: AtomicU64::new(0),
            ns: AtomicU64::new(0),
            rate: AtomicU64::new(0),
            max_counts: AtomicU64::new(0),
        }
    }

    /// Returns the time at `count`, without a check of the age.
    fn time_at(&self, count: u64) -> u64 {
        let counts = count.wrapping_sub(self.count.load(Ordering::Relaxed));
        self.ns
            .load(Ordering::Relaxed)
            .wrapping_add(scaled(counts, self.rate.load(Ordering::Relaxed)))
    }
}

impl CalibrationPair {
    const fn new() -> Self {
        Self {
            version: AtomicU64::new(0),
            pair: [const { Calibration::new() }; 2],
        }
    }

    #[inline(always)]
    fn read(&self, count: impl Fn() -> u64) -> Option<u64> {
        for _ in 0..MAX_ATTEMPTS {
            if let Some(answer) = self.try_read(&count) {
                return answer;
            }
        }
        None
    }

    /// Returns `None` if another calibration was published during the read, and `Some(None)` if the
    /// current one is too old.
    #[inline(always)]
    fn try_read(&self, count: impl Fn() -> u64) -> Option<Option<u64>> {
        let version = self.version.load(Ordering::Acquire);
        let current = &self.pair[version as usize & 1];
        let (from, ns) = (
            current.count.load(Ordering::Relaxed),
            current.ns.load(Ordering::Relaxed),
        );
        let (rate, max) = (
            current.rate.load(Ordering::Relaxed),
            current.max_counts.load(Ordering::Relaxed),
        );
        let counts = count().wrapping_sub(from);
        fence(Ordering::Acquire);
        if self.version.load(Ordering::Relaxed) != version {
            return None;
        }
        // This processor's counter may be slightly behind that of the processor that compared.
        Some(
            (counts.wrapping_add(MAX_SKEW_COUNTS) <= max)
                .then(|| ns.wrapping_add(scaled(counts, rate))),
        )
    }

    /// Returns the current calibration. Called only by the thread that writes.
    fn current(&self) -> &Calibration {
        &self.pair[self.version.load(Ordering::Relaxed) as usize & 1]
    }

    /// Publishes a calibration. A `rate` of 0 publishes that the time is unknown.
    fn write(&self, count: u64, ns: u64, rate: u64) {
        let version = self.version.load(Ordering::Relaxed).wrapping_add(1);
        // A reader that sees a field of the new calibration also sees the version of the one
        // before.
        fence(Ordering::Release);
        let next = &self.pair[version as usize & 1];
        next.count.store(count, Ordering::Relaxed);
        next.ns.store(ns, Ordering::Relaxed);
        next.rate.store(rate, Ordering::Relaxed);
        let max = ((MAX_AGE_NS as u128) << 32)
            .checked_div(rate.into())
            .unwrap_or(0);
        next.max_counts.store(max as u64, Ordering::Relaxed);
        self.version.store(version, Ordering::Release);
    }
}

/// Maximum number of counts by which a processor may be behind the one that compared.
const MAX_SKEW_COUNTS: u64 = 10_000;
/// Maximum number of read attempts. Calibrations are published a few times a second, so a second
/// collision is unlikely.
const MAX_ATTEMPTS: u32 = 3;

/// Converts counts to ns. Both are signed.
#[inline(always)]
fn scaled(counts: u64, rate: u64) -> u64 {
    ((i128::from(counts as i64) * i128::from(rate as i64)) >> 32) as u64
}

/// Returns the current time if the counter is calibrated.
#[inline(always)]
pub(crate) fn fast_now() -> Option<TimeStamp> {
    // SAFETY: *every processor has it*.
    CALIBRATIONS.read(|| unsafe { _rdtsc() }).map(TimeStamp)
}

/// The counter and the system clock, read at nearly the same time.
#[derive(Clone, Copy, Debug)]
struct Comparison {
    count: u64,
    ns: u64,
}

impl Comparison {
    /// Reads both clocks five times, and returns the pair with the least time in between.
    fn now(clock_ns: impl Fn() -> u64) -> Self {
        let attempts = (0..5).map(|_| {
            let before = clock_ns();
            // SAFETY: *every processor has it*.
            let count = unsafe {
                _mm_lfence();
                _rdtsc()
            };
            let after = clock_ns();
            (
                after.saturating_sub(before),
                Self {
                    count,
                    ns: before + after.saturating_sub(before) / 2,
                },
            )
        });
        attempts
            .min_by_key(|(span, _)| *span)
            .map_or(Self { count: 0, ns: 0 }, |(_, comparison)| comparison)
    }
}

/// Derives calibrations from successive comparisons.
struct Calibrator {
    last: Option<Comparison>,
}

impl Calibrator {
    /// Publishes a calibration derived from the last comparison and `now`, if they are far enough
    /// apart.
    fn update(&mut self, calibrations: &CalibrationPair, now: Comparison) {
        let Some(last) = self.last else {
            self.last = Some(now);
            return;
        };
        let (counts, ns) = (
            now.count.wrapping_sub(last.count),
            now.ns.saturating_sub(last.ns),
        );
        let rate_before = calibrations.current().rate.load(Ordering::Relaxed);
        let is_known = rate_before != 0;
        if ns
            < if is_known {
                INTERVAL_NS
            } else {
                FIRST_INTERVAL_NS
            }
        {
            return;
        }
        self.last = Some(now);
        let measured = ((u128::from(ns)) << 32)
            .checked_div(counts.into())
            .unwrap_or(0);
        let Some(rate) = u64::try_from(measured)
            .ok()
            .filter(|rate| (1 << 20..1 << 40).contains(rate))
        else {
            return calibrations.write(0, 0, 0);
        };
        if !is_known {
            // The new time must not be earlier than a time read before from the system clock.
            return calibrations.write(now.count, now.ns + MAX_SPAN_NS, rate);
        }
        let predicted = calibrations.current().time_at(now.count);
        let error_ns = now.ns as i64 - predicted as i64;
        if error_ns < -MAX_LEAD_NS {
            return calibrations.write(0, 0, 0);
        }
        if error_ns > MAX_GRADUAL_LAG_NS {
            return calibrations.write(now.count, now.ns, rate);
        }
        // The error is corrected by the next comparison or later: time advances at least at half
        // its rate.
        let interval_counts = (u128::from(INTERVAL_NS) << 32) / u128::from(rate);
        let correction = (i128::from(error_ns) << 32) / interval_counts as i128;
        let corrected = (i128::from(rate) + correction).max(i128::from(rate / 2));
        calibrations.write(now.count, predicted, corrected as u64);
    }
}

/// Upper bound of the time between the clock reads of a comparison, in ns.
const MAX_SPAN_NS: u64 = 200;

/// Returns whether the system takes its own time from the TSC, and so has verified that all
/// processors agree.
fn is_trusted() -> bool {
    let source = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    std::fs::read_to_string(source).is_ok_and(|source| source.trim() == "tsc")
}

/// Number of comparisons after which the time source of the system is checked again.
const SOURCE_CHECK_INTERVAL: u64 = 64;

static IS_CALIBRATING: AtomicBool = AtomicBool::new(false);

/// Clears the busy flag in the child of a fork: a thread of the parent may have been comparing the
/// clocks.
pub(crate) fn reset_calibration_in_child() {
    IS_CALIBRATING.store(false, Ordering::Relaxed);
}

/// Compares the clocks and publishes a calibration, if the last comparison is old enough. Only one
/// thread does so at a time; a concurrent call returns at once.
pub(crate) fn calibrate(clock_ns: impl Fn() -> u64) {
    static LAST: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];
    static COMPARISONS: AtomicU64 = AtomicU64::new(0);
    static IS_TRUSTED: AtomicBool = AtomicBool::new(false);
    if IS_CALIBRATING.swap(true, Ordering::Acquire) {
        return;
    }
    let [count, ns] = &LAST;
    let last = Comparison {
        count: count.load(Ordering::Relaxed),
        ns: ns.load(Ordering::Relaxed),
    };
    let now_ns = clock_ns();
    if now_ns.saturating_sub(last.ns) >= FIRST_INTERVAL_NS {
        // An old comparison says nothing about the current rate.
        let is_fresh = last.ns != 0 && now_ns.saturating_sub(last.ns) < MAX_AGE_NS;
        if !is_fresh
            || COMPARISONS
                .fetch_add(1, Ordering::Relaxed)
                .is_multiple_of(SOURCE_CHECK_INTERVAL)
        {
            IS_TRUSTED.store(is_trusted(), Ordering::Relaxed);
        }
        let is_trusted = IS_TRUSTED.load(Ordering::Relaxed);
        if !is_fresh || !is_trusted {
            CALIBRATIONS.write(0, 0, 0);
        }
        let mut calibrator = Calibrator {
            last: (is_fresh && is_trusted).then_some(last),
        };
        if is_trusted {
            calibrator.update(&CALIBRATIONS, Comparison::now(&clock_ns));
        }
        let last = calibrator.last.unwrap_or(Comparison {
            count: 0,
            ns: now_ns,
        });
        count.store(last.count, Ordering::Relaxed);
        ns.store(last.ns, Ordering::Relaxed);
    }
    IS_CALIBRATING.store(false, Ordering::Release);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a comparison at `ns` of two simulated clocks.
    fn at(ns: u64, counts_per_us: u64, offset: u64) -> Comparison {
        Comparison {
            count: offset.wrapping_add(ns * counts_per_us / 1000),
            ns,
        }
    }

    #[test]
    fn calibrated_time_advances_evenly_and_converges() {
        let calibrations = CalibrationPair::new();
        let mut calibrator = Calibrator { last: None };
        let offset = u64::MAX - 5_000_000;
        let predicted = |comparison: Comparison| calibrations.read(|| comparison.count);
        assert_eq!(predicted(at(5, 2400, offset)), None);
        calibrator.update(&calibrations, at(1_000_000_000, 2400, offset));
        assert_eq!(
            predicted(at(1_000_000_001, 2400, offset)),
            None,
            "one comparison gives no rate"
        );
        calibrator.update(&calibrations, at(1_020_000_000, 2400, offset));
        let mut last = 0;
        for step in 0..4_000 {
            let ns = 1_020_000_000 + step * 1_000_000;
            // The system clock is slewed by 200 ppm in the meantime.
            let comparison = Comparison {
                ns: ns + step * 200,
                ..at(ns, 2400, offset)
            };
            if step % 20 == 0 {
                calibrator.update(&calibrations, comparison);
            }
            let now = predicted(comparison).expect("the counter is calibrated");
            assert!(now > last, "{now} after {last}");
            let error_ns = now.abs_diff(comparison.ns);
            assert!(
                error_ns < if step < 400 { 45_000 } else { 25_000 },
                "off by {error_ns} at {step}"
            );
            last = now;
        }
    }

    #[test]
    fn stale_or_changed_counter_is_not_used() {
        let calibrations = CalibrationPair::new();
        let mut calibrator = Calibrator { last: None };
        let predicted = |comparison: Comparison| calibrations.read(|| comparison.count);
        calibrator.update(&calibrations, at(1_000_000_000, 3000, 0));
        calibrator.update(&calibrations, at(1_100_000_000, 3000, 0));
        let soon = at(1_100_500_000, 3000, 0);
        assert!(predicted(soon).is_some_and(|now| now.abs_diff(soon.ns) < 1000));
        // A processor slightly behind the one that compared.
        assert!(
            predicted(at(1_099_999_000, 3000, 0))
                .is_some_and(|now| now.abs_diff(1_099_999_000) < 1000)
        );
        assert_eq!(
            predicted(at(2_200_000_000, 3000, 0)),
            None,
            "the last comparison is too old"
        );
        calibrator.update(&calibrations, at(1_300_000_000, 3000, 900_000_000));
        assert_eq!(
            predicted(at(1_300_000_001, 3000, 900_000_000)),
            None,
            "the counter was changed"
        );
    }

    #[test]
    fn calibrated_time_agrees_with_the_system_clock() {
        let start = std::time::Instant::now();
        let clock = || start.elapsed().as_nanos() as u64 + 1;
        let calibrations = CalibrationPair::new();
        let mut calibrator = Calibrator { last: None };
        let (mut agreed, mut last) = (0, 0);
        while start.elapsed().as_millis() < 400 {
            calibrator.update(&calibrations, Comparison::now(clock));
            let before = clock();
            // SAFETY: *every processor has it*.
            let now = calibrations.read(|| unsafe { _rdtsc() });
            let after = clock();
            if let Some(now) = now.filter(|_| is_trusted()) {
                assert!(now >= last, "{now} after {last}");
                last = now;
                let (early, late) = (before.saturating_sub(now), now.saturating_sub(after));
                assert!(early < 30_000 && late < 30_000, "{before} {now} {after}");
                agreed += u64::from(early < 1000 && late < 1000);
            }
        }
        assert!(agreed > 100 || !is_trusted(), "{agreed}");
    }
}
