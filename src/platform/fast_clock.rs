//! The monotonic clock by the processor's own counter: half the time of asking the C library, whose reading waits until all
//! before it is done.
//!
//! The sampler compares the two clocks now and then, and whoever asks goes on from the last comparison. The time goes on evenly
//! from each comparison to the next: what the counter was found to be ahead or behind, it makes up for until then. Where nobody has
//! compared them for a second, and where the system does not itself take the time from this counter, nobody is told any; whoever
//! then asks the system may be told up to some microseconds less than was told before.
//!
//! Runs in the signal handler: [`fast_now`].
//!
//! **Contract** (cited below):
//! - *every processor has it*: an x86_64 processor counts, and a program may read the count.

use std::arch::x86_64::{_mm_lfence, _rdtsc};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};

use crate::base::TimeStamp;

/// Between two comparisons.
const INTERVAL_NS: u64 = 100_000_000;
/// The first two are this far apart.
const FIRST_INTERVAL_NS: u64 = 20_000_000;
/// A comparison is good for so long.
const LONGEST_NS: u64 = 1_000_000_000;
/// What it is behind by more than this it makes up for at once.
const MOST_BEHIND_NS: i64 = 100_000;
/// Further ahead, the counter was set: the machine was moved, or slept.
const MOST_AHEAD_NS: i64 = 10_000_000;

/// What is known of the counter, written by one thread at a time, read by any: the line that holds, and room for the next, so
/// that nobody is without one while it is made.
struct Anchor {
    /// Odd where the second line holds.
    version: AtomicU64,
    lines: [Line; 2],
}

/// The time as the counter tells it.
struct Line {
    count: AtomicU64,
    ns: AtomicU64,
    /// Nanoseconds for a count, in parts of 2^32; 0 when they are not known.
    rate: AtomicU64,
    /// Counts after which it is not believed any more.
    most_counts: AtomicU64,
}

static ANCHOR: Anchor = Anchor::unknown();

impl Line {
    const fn unknown() -> Self {
        Self {
            count: AtomicU64::new(0),
            ns: AtomicU64::new(0),
            rate: AtomicU64::new(0),
            most_counts: AtomicU64::new(0),
        }
    }

    /// What it tells of a count, without asking whether that is to be believed.
    fn told(&self, count: u64) -> u64 {
        let counts = count.wrapping_sub(self.count.load(Ordering::Relaxed));
        self.ns
            .load(Ordering::Relaxed)
            .wrapping_add(scaled(counts, self.rate.load(Ordering::Relaxed)))
    }
}

impl Anchor {
    const fn unknown() -> Self {
        Self {
            version: AtomicU64::new(0),
            lines: [const { Line::unknown() }; 2],
        }
    }

    #[inline(always)]
    fn read(&self, count: impl Fn() -> u64) -> Option<u64> {
        for _ in 0..MOST_TRIES {
            if let Some(answer) = self.try_read(&count) {
                return answer;
            }
        }
        None
    }

    /// `None` when another line was made meanwhile.
    #[inline(always)]
    fn try_read(&self, count: impl Fn() -> u64) -> Option<Option<u64>> {
        let version = self.version.load(Ordering::Acquire);
        let line = &self.lines[version as usize & 1];
        let (from, ns) = (
            line.count.load(Ordering::Relaxed),
            line.ns.load(Ordering::Relaxed),
        );
        let (rate, most) = (
            line.rate.load(Ordering::Relaxed),
            line.most_counts.load(Ordering::Relaxed),
        );
        let counts = count().wrapping_sub(from);
        fence(Ordering::Acquire);
        if self.version.load(Ordering::Relaxed) != version {
            return None;
        }
        // A processor may be some counts behind the one that compared.
        Some((counts.wrapping_add(BEHIND) <= most).then(|| ns.wrapping_add(scaled(counts, rate))))
    }

    /// The one that holds. By who makes the next.
    fn line(&self) -> &Line {
        &self.lines[self.version.load(Ordering::Relaxed) as usize & 1]
    }

    fn write(&self, count: u64, ns: u64, rate: u64) {
        let version = self.version.load(Ordering::Relaxed).wrapping_add(1);
        // Whoever sees the new line's fields sees that the one before holds.
        fence(Ordering::Release);
        let line = &self.lines[version as usize & 1];
        line.count.store(count, Ordering::Relaxed);
        line.ns.store(ns, Ordering::Relaxed);
        line.rate.store(rate, Ordering::Relaxed);
        let most = ((LONGEST_NS as u128) << 32)
            .checked_div(rate.into())
            .unwrap_or(0);
        line.most_counts.store(most as u64, Ordering::Relaxed);
        self.version.store(version, Ordering::Release);
    }
}

const BEHIND: u64 = 10_000;
/// Lines are made some times a second; who meets one being made reads the next.
const MOST_TRIES: u32 = 3;

/// Counts as nanoseconds; those below 0 are negative.
#[inline(always)]
fn scaled(counts: u64, rate: u64) -> u64 {
    ((i128::from(counts as i64) * i128::from(rate as i64)) >> 32) as u64
}

/// Now, if the counter tells it.
#[inline(always)]
pub(super) fn fast_now() -> Option<TimeStamp> {
    // SAFETY: *every processor has it*.
    ANCHOR.read(|| unsafe { _rdtsc() }).map(TimeStamp)
}

/// A look at both clocks, one after the other.
#[derive(Clone, Copy, Debug)]
struct Comparison {
    count: u64,
    ns: u64,
}

impl Comparison {
    /// The tightest of a few.
    fn now(clock_ns: impl Fn() -> u64) -> Self {
        let looks = (0..5).map(|_| {
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
        looks
            .min_by_key(|(span, _)| *span)
            .map_or(Self { count: 0, ns: 0 }, |(_, look)| look)
    }
}

/// Follows the counter.
struct Follower {
    last: Option<Comparison>,
}

impl Follower {
    /// Compares the clocks, if it is time to.
    fn follow(&mut self, anchor: &Anchor, now: Comparison) {
        let Some(last) = self.last else {
            self.last = Some(now);
            return;
        };
        let (counts, ns) = (
            now.count.wrapping_sub(last.count),
            now.ns.saturating_sub(last.ns),
        );
        let rate_before = anchor.line().rate.load(Ordering::Relaxed);
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
            return anchor.write(0, 0, 0);
        };
        if !is_known {
            // Not before what anybody was told until now.
            return anchor.write(now.count, now.ns + MOST_SPAN_NS, rate);
        }
        let told = anchor.line().told(now.count);
        let off = now.ns as i64 - told as i64;
        if off < -MOST_AHEAD_NS {
            return anchor.write(0, 0, 0);
        }
        if off > MOST_BEHIND_NS {
            return anchor.write(now.count, now.ns, rate);
        }
        // Made up for by the next time, or later: it goes on at half the pace at least.
        let interval_counts = (u128::from(INTERVAL_NS) << 32) / u128::from(rate);
        let correction = (i128::from(off) << 32) / interval_counts as i128;
        let corrected = (i128::from(rate) + correction).max(i128::from(rate / 2));
        anchor.write(now.count, told, corrected as u64);
    }
}

/// Longer than the tightest of a few looks takes.
const MOST_SPAN_NS: u64 = 200;

/// Whether the system takes its own time from the counter, and so has found that all processors agree.
fn is_trusted() -> bool {
    let source = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    std::fs::read_to_string(source).is_ok_and(|source| source.trim() == "tsc")
}

/// After so many comparisons the system is asked again what it takes its time from.
const COMPARISONS_BETWEEN: u64 = 64;

static IS_FOLLOWING: AtomicBool = AtomicBool::new(false);

/// In the child of a fork, which may have come while another thread compared the clocks.
pub(super) fn forget_follower_in_child() {
    IS_FOLLOWING.store(false, Ordering::Relaxed);
}

/// Compares the clocks, if it is time to. By one thread at a time; another one does nothing.
pub(super) fn follow(clock_ns: impl Fn() -> u64) {
    static LAST: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];
    static COMPARISONS: AtomicU64 = AtomicU64::new(0);
    static IS_TRUSTED: AtomicBool = AtomicBool::new(false);
    if IS_FOLLOWING.swap(true, Ordering::Acquire) {
        return;
    }
    let [count, ns] = &LAST;
    let last = Comparison {
        count: count.load(Ordering::Relaxed),
        ns: ns.load(Ordering::Relaxed),
    };
    let now_ns = clock_ns();
    if now_ns.saturating_sub(last.ns) >= FIRST_INTERVAL_NS {
        // What is long ago says nothing of the rate now.
        let is_fresh = last.ns != 0 && now_ns.saturating_sub(last.ns) < LONGEST_NS;
        if !is_fresh
            || COMPARISONS
                .fetch_add(1, Ordering::Relaxed)
                .is_multiple_of(COMPARISONS_BETWEEN)
        {
            IS_TRUSTED.store(is_trusted(), Ordering::Relaxed);
        }
        let is_trusted = IS_TRUSTED.load(Ordering::Relaxed);
        if !is_fresh || !is_trusted {
            ANCHOR.write(0, 0, 0);
        }
        let mut follower = Follower {
            last: (is_fresh && is_trusted).then_some(last),
        };
        if is_trusted {
            follower.follow(&ANCHOR, Comparison::now(&clock_ns));
        }
        let last = follower.last.unwrap_or(Comparison {
            count: 0,
            ns: now_ns,
        });
        count.store(last.count, Ordering::Relaxed);
        ns.store(last.ns, Ordering::Relaxed);
    }
    IS_FOLLOWING.store(false, Ordering::Release);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two clocks that run as they are told.
    fn at(ns: u64, counts_per_us: u64, offset: u64) -> Comparison {
        Comparison {
            count: offset.wrapping_add(ns * counts_per_us / 1000),
            ns,
        }
    }

    #[test]
    fn the_time_goes_on_evenly_and_comes_back_to_the_clock() {
        let anchor = Anchor::unknown();
        let mut follower = Follower { last: None };
        let offset = u64::MAX - 5_000_000;
        let told = |comparison: Comparison| anchor.read(|| comparison.count);
        assert_eq!(told(at(5, 2400, offset)), None);
        follower.follow(&anchor, at(1_000_000_000, 2400, offset));
        assert_eq!(
            told(at(1_000_000_001, 2400, offset)),
            None,
            "one look tells no rate"
        );
        follower.follow(&anchor, at(1_020_000_000, 2400, offset));
        let mut last = 0;
        for step in 0..4_000 {
            let ns = 1_020_000_000 + step * 1_000_000;
            // The clock is slewed meanwhile, by 200 in a million.
            let comparison = Comparison {
                ns: ns + step * 200,
                ..at(ns, 2400, offset)
            };
            if step % 20 == 0 {
                follower.follow(&anchor, comparison);
            }
            let now = told(comparison).expect("it is followed");
            assert!(now > last, "{now} after {last}");
            let off = now.abs_diff(comparison.ns);
            assert!(
                off < if step < 400 { 45_000 } else { 25_000 },
                "off by {off} at {step}"
            );
            last = now;
        }
    }

    #[test]
    fn who_is_not_followed_or_jumps_is_not_believed() {
        let anchor = Anchor::unknown();
        let mut follower = Follower { last: None };
        let told = |comparison: Comparison| anchor.read(|| comparison.count);
        follower.follow(&anchor, at(1_000_000_000, 3000, 0));
        follower.follow(&anchor, at(1_100_000_000, 3000, 0));
        let soon = at(1_100_500_000, 3000, 0);
        assert!(told(soon).is_some_and(|now| now.abs_diff(soon.ns) < 1000));
        // A processor that is a little behind the one that compared.
        assert!(
            told(at(1_099_999_000, 3000, 0)).is_some_and(|now| now.abs_diff(1_099_999_000) < 1000)
        );
        assert_eq!(
            told(at(2_200_000_000, 3000, 0)),
            None,
            "nobody has compared them for so long"
        );
        follower.follow(&anchor, at(1_300_000_000, 3000, 900_000_000));
        assert_eq!(
            told(at(1_300_000_001, 3000, 900_000_000)),
            None,
            "it was set"
        );
    }

    #[test]
    fn it_agrees_with_the_systems_clock_while_it_is_followed() {
        let start = std::time::Instant::now();
        let clock = || start.elapsed().as_nanos() as u64 + 1;
        let anchor = Anchor::unknown();
        let mut follower = Follower { last: None };
        let (mut agreed, mut last) = (0, 0);
        while start.elapsed().as_millis() < 400 {
            follower.follow(&anchor, Comparison::now(clock));
            let before = clock();
            // SAFETY: *every processor has it*.
            let now = anchor.read(|| unsafe { _rdtsc() });
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
