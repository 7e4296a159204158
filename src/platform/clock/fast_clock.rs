//! The monotonic clock, computed from the processor's time-stamp counter (TSC). It takes half the
//! time of the C library's clock, which waits until all earlier instructions have completed.
//!
//! The sampler compares the counter with the system clock every 100 ms, and publishes a line that
//! maps counts to time. Readers extrapolate on the current line. Time advances evenly: an error
//! found by a comparison is corrected gradually until the next one. If the last comparison is older
//! than a second, or if the system does not take its own time from the TSC, the time is that of the
//! system clock.
//!
//! **The time never steps back**, neither on a thread nor along a happens-before relation:
//! - A new line is published in two steps. While the line is *changing*, each reader adds its time
//!   to a shared maximum before it returns. The writer adds the latest time that a reader may have
//!   computed before the change, and then publishes the new line.
//! - Each reader returns at least the shared maximum. It is written only during a change, so that
//!   reading it is cheap.
//!
//! One limit remains: a processor may read the counter before an earlier load has completed, so
//! times of two threads are ordered only to within some tens of ns. A fence before each read would
//! cost 20 ns.
//!
//! Runs in the signal handler: [`fast_now`].
//!
//! **Contract** (cited below):
//! - *every processor has it*: every x86_64 processor has a time-stamp counter that programs may
//!   read.

use std::arch::x86_64::{_mm_lfence, _rdtsc};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};

use crate::platform::clock::line::{Comparison, FIRST_INTERVAL_NS, Line, MAX_AGE_NS};

/// Maximum time, in ns, by which a processor may execute a reader's second load of the version
/// before the read of the counter, which precedes that load in program order.
const MAX_REORDERING_NS: u64 = 200;
/// Number of comparisons after which the time source of the system is checked again.
const SOURCE_CHECK_INTERVAL: u64 = 64;

/// A [`Line`] that readers may load while it is written. They then find that the version has
/// changed, and try again.
struct SharedLine([AtomicU64; 4]);

impl SharedLine {
    #[inline(always)]
    fn load(&self) -> Line {
        let [count, ns, rate, max_counts] =
            [0, 1, 2, 3].map(|field: usize| self.0[field].load(Ordering::Relaxed));
        Line {
            count,
            ns,
            rate,
            max_counts,
        }
    }

    fn store(&self, line: Line) {
        let fields = [line.count, line.ns, line.rate, line.max_counts];
        for (field, value) in self.0.iter().zip(fields) {
            field.store(value, Ordering::Relaxed);
        }
    }
}

/// The current line, and space to prepare the next, so that readers always have a valid one. One
/// thread at a time writes; any thread reads.
struct FastClock {
    /// The low bit is set during a change. The bit above is the index of the current line.
    version: AtomicU64,
    /// The shared maximum: no later reader returns less. Written only during a change.
    min_ns: AtomicU64,
    lines: [SharedLine; 2],
}

static CLOCK: FastClock = FastClock::new();

/// Bit of the version that is set during a change.
const CHANGING: u64 = 1;

impl FastClock {
    const fn new() -> Self {
        Self {
            version: AtomicU64::new(0),
            min_ns: AtomicU64::new(0),
            lines: [const { SharedLine([const { AtomicU64::new(0) }; 4]) }; 2],
        }
    }

    const fn line(&self, version: u64) -> &SharedLine {
        &self.lines[(version >> 1) as usize & 1]
    }

    /// Returns the current line. Called only by the thread that writes.
    fn current(&self) -> Line {
        self.line(self.version.load(Ordering::Relaxed)).load()
    }

    /// Returns the current time.
    #[inline(always)]
    fn now(&self, count: impl Fn() -> u64, system_ns: impl Fn() -> u64) -> u64 {
        let version = self.version.load(Ordering::Acquire);
        if version & CHANGING == 0
            && let Some(now) = self.line(version).load().time_at(count())
            && self.is_still(version)
        {
            return now.max(self.min_ns.load(Ordering::Relaxed));
        }
        self.now_in_any_state(count, system_ns)
    }

    /// Returns the current time, even during a change or without a valid line. Tries again only if
    /// the version has changed in the meantime, which happens several times a second.
    #[inline(never)]
    fn now_in_any_state(&self, count: impl Fn() -> u64, system_ns: impl Fn() -> u64) -> u64 {
        loop {
            let version = self.version.load(Ordering::Acquire);
            let now = self.line(version).load().time_or(count(), &system_ns);
            if !self.is_still(version) {
                continue;
            }
            let min_ns = if version & CHANGING == 0 {
                self.min_ns.load(Ordering::Relaxed)
            } else {
                self.min_ns.fetch_max(now, Ordering::Relaxed)
            };
            return now.max(min_ns);
        }
    }

    /// Returns whether the line that was loaded after this version is complete.
    #[inline(always)]
    fn is_still(&self, version: u64) -> bool {
        fence(Ordering::Acquire);
        self.version.load(Ordering::Relaxed) == version
    }

    /// Replaces the current line. `count` must read the counter only after earlier stores are
    /// visible.
    fn publish(&self, line: Line, count: impl Fn() -> u64, system_ns: impl Fn() -> u64) {
        // The bit may be set already in the child of a fork.
        let version = self.version.load(Ordering::Relaxed) | CHANGING;
        self.version.store(version, Ordering::Relaxed);
        // From here on, readers find the change. A reader that sees a field of the new line sees
        // this version, too.
        fence(Ordering::SeqCst);
        let reached_ns = self.current().time_or(count(), system_ns) + MAX_REORDERING_NS;
        self.min_ns.fetch_max(reached_ns, Ordering::Relaxed);
        let next = version.wrapping_add(1);
        self.line(next).store(line);
        self.version.store(next, Ordering::Release);
    }
}

/// Returns the current time, in ns of the monotonic clock.
#[inline(always)]
pub(crate) fn fast_now(system_ns: impl Fn() -> u64) -> u64 {
    // SAFETY: *every processor has it*.
    CLOCK.now(|| unsafe { _rdtsc() }, system_ns)
}

/// Reads the counter after all earlier instructions have completed.
fn count_in_order() -> u64 {
    // SAFETY: *every processor has it*.
    unsafe {
        _mm_lfence();
        _rdtsc()
    }
}

/// Reads the counter and the system clock five times, and returns the pair with the least time in
/// between.
fn compare(system_ns: impl Fn() -> u64) -> Comparison {
    let attempt = || {
        let before = system_ns();
        let count = count_in_order();
        let span_ns = system_ns().saturating_sub(before);
        Comparison {
            count,
            ns: before + span_ns / 2,
            span_ns,
        }
    };
    (0..4).fold(attempt(), |best, _| {
        let other = attempt();
        if other.span_ns < best.span_ns {
            other
        } else {
            best
        }
    })
}

/// Returns whether the system takes its own time from the TSC, and so has verified that all
/// processors agree.
fn is_trusted() -> bool {
    let source = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    crate::platform::shared_file::read_text(source).trim() == "tsc"
}

static IS_CALIBRATING: AtomicBool = AtomicBool::new(false);

/// Clears the busy flag in the child of a fork: a thread of the parent may have been comparing the
/// clocks.
pub(crate) fn reset_calibration_in_child() {
    IS_CALIBRATING.store(false, Ordering::Relaxed);
}

/// Compares the clocks and publishes a line, if the last comparison is old enough. Only one thread
/// does so at a time; a concurrent call returns at once.
pub(crate) fn calibrate(system_ns: impl Fn() -> u64) {
    static LAST: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];
    static COMPARISONS: AtomicU64 = AtomicU64::new(0);
    static IS_TRUSTED: AtomicBool = AtomicBool::new(false);
    if IS_CALIBRATING.swap(true, Ordering::Acquire) {
        return;
    }
    let [last_count, last_ns] = LAST.each_ref().map(|part| part.load(Ordering::Relaxed));
    let now_ns = system_ns();
    let age_ns = now_ns.saturating_sub(last_ns);
    if age_ns >= FIRST_INTERVAL_NS {
        // An old comparison says nothing about the current rate.
        let is_fresh = last_ns != 0 && age_ns < MAX_AGE_NS;
        let comparisons = COMPARISONS.fetch_add(1, Ordering::Relaxed);
        if !is_fresh || comparisons.is_multiple_of(SOURCE_CHECK_INTERVAL) {
            IS_TRUSTED.store(is_trusted(), Ordering::Relaxed);
        }
        let is_trusted = IS_TRUSTED.load(Ordering::Relaxed);
        let last = Comparison {
            count: last_count,
            ns: last_ns,
            span_ns: 0,
        };
        let now = if is_trusted {
            compare(&system_ns)
        } else {
            Comparison {
                count: 0,
                ns: now_ns,
                span_ns: 0,
            }
        };
        let current = CLOCK.current();
        let (line, kept) = if is_fresh && is_trusted {
            let line = current.next(last, now);
            (line, if line.is_some() { now } else { last })
        } else {
            (current.is_known().then_some(Line::UNKNOWN), now)
        };
        if let Some(line) = line {
            CLOCK.publish(line, count_in_order, &system_ns);
        }
        for (part, value) in LAST.iter().zip([kept.count, kept.ns]) {
            part.store(value, Ordering::Relaxed);
        }
    }
    IS_CALIBRATING.store(false, Ordering::Release);
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};

    use super::*;

    /// Rate of the scripted counter.
    const COUNTS_PER_US: u64 = 2400;

    /// A clock with a scripted counter and system clock, which checks that no reading is less than
    /// the one before.
    struct Script {
        clock: FastClock,
        count: Cell<u64>,
        system_ns: Cell<u64>,
        last: Cell<Option<Comparison>>,
        latest: Cell<u64>,
    }

    impl Script {
        fn new() -> Self {
            Self {
                clock: FastClock::new(),
                count: Cell::new(0),
                system_ns: Cell::new(0),
                last: Cell::new(None),
                latest: Cell::new(0),
            }
        }

        /// Returns a clock that was calibrated at 1.0 s and 1.1 s.
        fn calibrated() -> Self {
            let script = Self::new();
            for ns in [1_000_000_000, 1_100_000_000] {
                script.set(ns, ns);
                script.compare();
            }
            assert!(script.clock.current().is_known());
            script
        }

        /// Sets the counter to `counter_ns` after its start, and the system clock to `system_ns`.
        fn set(&self, counter_ns: u64, system_ns: u64) {
            self.count.set(
                (u64::MAX - 5_000_000)
                    .wrapping_add((counter_ns as u128 * u128::from(COUNTS_PER_US) / 1000) as u64),
            );
            self.system_ns.set(system_ns);
        }

        fn comparison(&self) -> Comparison {
            Comparison {
                count: self.count.get(),
                ns: self.system_ns.get(),
                span_ns: 0,
            }
        }

        /// Compares the clocks at the current point of the script.
        fn compare(&self) {
            self.compare_and_publish(|| {});
        }

        /// Compares the clocks at the current point of the script. Calls `meanwhile` when the
        /// change of the line has begun.
        fn compare_and_publish(&self, meanwhile: impl Fn()) {
            let now = self.comparison();
            if let Some(last) = self.last.get() {
                let Some(line) = self.clock.current().next(last, now) else {
                    return;
                };
                self.publish(line, meanwhile);
            }
            self.last.set(Some(now));
        }

        fn publish(&self, line: Line, meanwhile: impl Fn()) {
            let count = || {
                meanwhile();
                self.count.get()
            };
            self.clock.publish(line, count, || self.system_ns.get());
        }

        /// Reads the clock, and checks that the time has not stepped back.
        fn read(&self) -> u64 {
            let now = self.clock.now(|| self.count.get(), || self.system_ns.get());
            let before = self.latest.replace(now);
            assert!(now >= before, "{now} after {before}");
            now
        }
    }

    #[test]
    fn calibrated_time_advances_evenly_and_converges() {
        let script = Script::calibrated();
        let mut last = 0;
        for step in 0..4_000 {
            // The system clock is slewed by 200 ppm in the meantime.
            let ns = 1_100_000_000 + step * 1_000_000;
            script.set(ns, ns + step * 200);
            if step % 20 == 0 {
                script.compare();
            }
            let now = script.read();
            assert!(now > last, "{now} after {last}");
            let error_ns = now.abs_diff(script.system_ns.get());
            let max_error_ns = if step < 400 { 45_000 } else { 25_000 };
            assert!(error_ns < max_error_ns, "off by {error_ns} at {step}");
            last = now;
        }
    }

    #[test]
    fn stale_or_changed_counter_is_not_used() {
        let script = Script::calibrated();
        // A processor slightly behind the one that compared.
        script.set(1_099_999_000, 7);
        assert!(script.read().abs_diff(1_100_000_000) < 1000);
        script.set(1_100_500_000, 7);
        assert!(script.read().abs_diff(1_100_500_000) < 1000);
        // The last comparison is too old.
        script.set(2_200_000_000, 2_500_000_000);
        assert_eq!(script.read(), 2_500_000_000);
        // The counter was changed.
        let script = Script::calibrated();
        script.set(1_600_000_000, 1_300_000_000);
        script.compare();
        assert!(!script.clock.current().is_known());
        script.set(1_600_000_001, 3_000_000_000);
        assert_eq!(script.read(), 3_000_000_000);
    }

    /// The writer may be preempted between its comparison and the publication of a slower line.
    #[test]
    fn late_publication_of_a_slower_line_does_not_step_back() {
        let script = Script::calibrated();
        script.set(1_250_000_000, 1_249_960_000);
        let line = script
            .clock
            .current()
            .next(script.last.get().expect("calibrated"), script.comparison());
        script.set(1_255_000_000, 1_254_960_000);
        let before = script.read();
        script.publish(line.expect("a new line"), || {});
        script.set(1_255_000_001, 1_254_960_001);
        assert!(script.read() - before <= MAX_REORDERING_NS);
        script.set(1_256_000_000, 1_255_960_000);
        assert!(script.read() > before + 900_000, "the time advances again");
    }

    #[test]
    fn readings_during_a_change_do_not_step_back() {
        let script = Script::calibrated();
        script.set(1_250_000_000, 1_249_960_000);
        let read_later = |ns| {
            script.set(ns, ns - 40_000);
            script.read();
        };
        read_later(1_250_000_001);
        script.set(1_250_000_000, 1_249_960_000);
        script.compare_and_publish(|| {
            read_later(1_254_000_000);
            read_later(1_255_000_000);
            // The writer reads the counter before these readers do.
            script.set(1_253_000_000, 1_252_960_000);
        });
        read_later(1_255_000_001);
    }

    /// A reader that is interrupted between its loads tries again with the new line.
    #[test]
    fn reading_across_a_publication_uses_the_new_line() {
        let script = Script::calibrated();
        let attempts = RefCell::new(0);
        script.set(1_200_000_000, 1_200_000_000);
        let count = || {
            *attempts.borrow_mut() += 1;
            if *attempts.borrow() == 1 {
                script.publish(Line::UNKNOWN, || {});
            }
            script.count.get()
        };
        let now = script.clock.now(count, || 1_300_000_000);
        assert_eq!((now, attempts.take()), (1_300_000_000, 2));
    }

    #[test]
    fn fallback_to_a_slower_system_clock_does_not_step_back() {
        // The writer withdraws the line.
        let script = Script::calibrated();
        script.set(1_200_000_000, 1_199_960_000);
        let before = script.read();
        script.publish(Line::UNKNOWN, || {});
        assert!(script.read() - before <= MAX_REORDERING_NS);
        // The line becomes too old.
        let script = Script::calibrated();
        script.set(2_099_990_000, 2_099_950_000);
        let before = script.read();
        assert!(before.abs_diff(2_099_990_000) < 1000, "{before}");
        script.set(2_100_010_000, 2_099_970_000);
        assert!(script.read() - before < 20_000);
    }

    #[test]
    fn first_line_behind_the_system_clock_does_not_step_back() {
        let script = Script::new();
        script.set(1_000_000_000, 1_000_000_000);
        script.compare();
        script.set(1_020_000_000, 1_020_000_000);
        let line = Line::UNKNOWN.next(
            script.last.get().expect("a comparison"),
            script.comparison(),
        );
        // The counter lags until the writer publishes.
        script.set(1_025_000_000, 1_025_003_000);
        assert_eq!(script.read(), 1_025_003_000);
        script.publish(line.expect("a first line"), || {});
        script.read();
    }

    /// The child of a fork inherits a change that no thread completes.
    #[test]
    fn change_that_was_left_incomplete_can_be_repeated() {
        let script = Script::calibrated();
        script.clock.version.fetch_or(CHANGING, Ordering::Relaxed);
        script.set(1_200_000_000, 1_200_000_000);
        assert!(script.read().abs_diff(1_200_000_000) < 1000);
        script.compare();
        assert_eq!(script.clock.version.load(Ordering::Relaxed) & CHANGING, 0);
        assert!(script.clock.current().is_known());
        script.read();
    }

    /// Uses the real clocks. The error is bounded by the spans of the comparisons, which are longer
    /// on a busy machine.
    #[test]
    fn calibrated_time_agrees_with_the_system_clock() {
        let start = std::time::Instant::now();
        let system_ns = || start.elapsed().as_nanos() as u64 + 1;
        let clock = FastClock::new();
        let mut last = compare(system_ns);
        let (mut max_span_ns, mut latest) = (last.span_ns, 0);
        while is_trusted() && start.elapsed().as_millis() < 400 {
            let now = compare(system_ns);
            if let Some(line) = clock.current().next(last, now) {
                max_span_ns = max_span_ns.max(now.span_ns);
                clock.publish(line, count_in_order, system_ns);
                last = now;
            }
            let before = system_ns();
            // SAFETY: *every processor has it*.
            let now = clock.now(|| unsafe { _rdtsc() }, system_ns);
            let after = system_ns();
            assert!(now >= latest, "{now} after {latest}");
            latest = now;
            let max_error_ns = 1000 * max_span_ns + 30_000;
            assert!(
                before <= now + max_error_ns && now <= after + max_error_ns,
                "{before} {now} {after}, spans up to {max_span_ns}"
            );
        }
    }
}
