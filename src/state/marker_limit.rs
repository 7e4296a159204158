//! Limits how many markers of a name are recorded in a second. The others are left out at random, and
//! the recorded markers represent them.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::types::TimeStamp;
use crate::util::next_random;

/// Markers of a name that are recorded in a second; 0 for no limit.
static LIMIT: AtomicU32 = AtomicU32::new(0);

/// The state of each name, as [`Recent`]. Two names may share one: they share the limit then.
static NAMES: [AtomicU64; 1024] = [const { AtomicU64::new(0) }; 1024];

/// Longest part of a name that tells it from others, in bytes.
const MAX_NAME_BYTES: usize = 64;
/// From each of these lengths on, in ns, intervals have a limit of their own, so that slow ones are
/// not lost among quick ones.
const LONG_NS: [u64; 3] = [1_000_000, 16_000_000, 256_000_000];
/// How often the share of markers that are recorded is halved at most.
const MAX_RARITY: u8 = 40;
/// How often it is halved at once at most.
const MAX_HALVINGS: u32 = 4;
/// How often the speed is measured in a second, about.
const STEPS: u32 = 8;
/// Least number of recorded markers after which it is measured.
const MIN_STEP: u32 = 4;

/// Sets the limit of the session that begins; 0 for none.
pub(crate) fn begin_marker_limit(limit: u32) {
    LIMIT.store(0, Ordering::Relaxed);
    NAMES
        .iter()
        .for_each(|name| name.store(0, Ordering::Relaxed));
    LIMIT.store(limit, Ordering::Relaxed);
}

/// Decides whether a marker is recorded. Returns `None` if the marker is left out, or else its
/// rarity: it represents 2 to the power of `rarity` markers. `length_ns` is 0 unless the marker is
/// an interval.
#[inline(always)]
pub(crate) fn choose_marker(name: &str, thread: u64, now: TimeStamp, length_ns: u64) -> Option<u8> {
    match LIMIT.load(Ordering::Relaxed) {
        0 => Some(0),
        limit => choose(limit, name, thread, now, length_ns),
    }
}

#[inline(never)]
fn choose(limit: u32, name: &str, thread: u64, now: TimeStamp, length_ns: u64) -> Option<u8> {
    let class = LONG_NS.iter().filter(|long| length_ns >= **long).count();
    let key = hash(name, class as u64);
    let state = &NAMES[key as usize % NAMES.len()];
    let mut seed = key ^ now.0 ^ thread << 48;
    let chance = next_random(&mut seed);
    let now_ms = (now.0 / 1_000_000) as u32;
    let (mut word, mut rarity) = (state.load(Ordering::Relaxed), 0);
    loop {
        let mut recent = Recent::from_word(word);
        if word == 0 {
            recent.begin(now_ms);
        }
        recent.advance_to(now_ms, limit);
        // Another thread may have changed it since the marker was chosen.
        rarity = recent.rarity.max(rarity);
        if chance & ((1 << rarity) - 1) != 0 {
            return None;
        }
        recent.count(now_ms, limit);
        match state.compare_exchange_weak(
            word,
            recent.to_word(),
            Ordering::Relaxed,
            Ordering::Relaxed,
        ) {
            Ok(_) => return Some(rarity),
            Err(newer) => word = newer,
        }
    }
}

/// How many markers of a name were recorded lately.
#[derive(Clone, Copy, Debug)]
struct Recent {
    /// When the count began, in ms, by the last 32 bits.
    since_ms: u32,
    rarity: u8,
    /// Number of markers that were recorded since then, up to 2^24.
    count: u32,
}

impl Recent {
    fn from_word(word: u64) -> Self {
        Self {
            since_ms: (word >> 32) as u32,
            rarity: (word >> 24) as u8,
            count: word as u32 & 0xFF_FFFF,
        }
    }

    fn to_word(self) -> u64 {
        u64::from(self.since_ms) << 32 | u64::from(self.rarity) << 24 | u64::from(self.count)
    }

    fn begin(&mut self, now_ms: u32) {
        (self.since_ms, self.count) = (now_ms, 0);
    }

    /// Leaves out fewer markers if there were less than half of those that the limit allows: half as
    /// many, and again each time that the time doubles.
    fn advance_to(&mut self, now_ms: u32, limit: u32) {
        let late = self.passed_ms(now_ms) / self.step_ms(limit).saturating_mul(2);
        if late > 0 {
            let less = u8::try_from(late.ilog2() + 1).unwrap_or(u8::MAX);
            self.rarity = self.rarity.saturating_sub(less);
            self.begin(now_ms);
        }
    }

    /// Counts a marker that is recorded. If they come too fast, half of those that follow are left
    /// out, or more.
    fn count(&mut self, now_ms: u32, limit: u32) {
        self.count += 1;
        if self.count <= self.step(limit) {
            return;
        }
        let step_ms = self.step_ms(limit);
        // A rate a little above the limit does not halve the share of recorded markers.
        let too_fast = (step_ms - step_ms / 8).div_ceil(self.passed_ms(now_ms).max(1));
        let more = too_fast.next_power_of_two().ilog2().min(MAX_HALVINGS) as u8;
        self.rarity = (self.rarity + more).min(MAX_RARITY);
        self.begin(now_ms);
    }

    /// Returns the time since the count began. That of another thread may be just after `now_ms`.
    fn passed_ms(&self, now_ms: u32) -> u32 {
        const AFTER_MS: u32 = 60_000;
        let passed_ms = now_ms.wrapping_sub(self.since_ms);
        match passed_ms > u32::MAX - AFTER_MS {
            true => 0,
            false => passed_ms,
        }
    }

    /// Returns after how many recorded markers their speed is measured: as many as the limit while all
    /// are recorded, so that a burst is whole, and then some times a second.
    fn step(&self, limit: u32) -> u32 {
        match self.rarity {
            0 => limit.clamp(MIN_STEP, 1 << 20),
            _ => (limit / STEPS).clamp(MIN_STEP, 1 << 20),
        }
    }

    /// Returns how long the limit allows for so many, in ms.
    fn step_ms(&self, limit: u32) -> u32 {
        let ms = u64::from(self.step(limit)) * 1000 / u64::from(limit);
        ms.clamp(1, u32::MAX.into()) as u32
    }
}

fn hash(name: &str, class: u64) -> u64 {
    let bytes = &name.as_bytes()[..name.len().min(MAX_NAME_BYTES)];
    let words = bytes.chunks(8).map(|part| {
        let mut word = [0; 8];
        word[..part.len()].copy_from_slice(part);
        u64::from_le_bytes(word)
    });
    words.fold(name.len() as u64 ^ class << 32, |hash, word| {
        next_random(&mut (hash ^ word))
    })
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const SECOND_NS: u64 = 1_000_000_000;

    /// Passes `rate` markers a second for some seconds. Returns how many were recorded in each second,
    /// and the number of markers that they represent.
    fn record(name: &str, from_s: u64, seconds: u64, rate: u64, length_ns: u64) -> (Vec<u64>, u64) {
        let mut stand_for = 0;
        let of_second = |second| {
            let times = (0..rate).map(|index| second * SECOND_NS + index * SECOND_NS / rate);
            let rarities = times.filter_map(|ns| choose(100, name, 3, TimeStamp(ns), length_ns));
            let counted = rarities.inspect(|rarity| stand_for += 1 << rarity);
            counted.count() as u64
        };
        (
            (from_s..from_s + seconds).map(of_second).collect(),
            stand_for,
        )
    }

    #[test]
    fn recorded_markers_keep_to_the_limit_and_stand_for_the_others() {
        for (name, rate) in [("some", 250), ("many", 40_000), ("most", 2_000_000)] {
            let (counts, stand_for) = record(name, 1000, 10, rate, 0);
            println!("{name}: {counts:?}");
            assert!(counts[0] <= 250, "{counts:?}");
            let is_near = |count: &u64| (30..=150).contains(count);
            assert!(counts[1..].iter().all(is_near), "{counts:?}");
            let share = stand_for as f64 / (10 * rate) as f64;
            assert!((0.85..1.15).contains(&share), "{share}");
        }
    }

    #[test]
    fn all_of_a_few_are_recorded_also_after_many() {
        assert_eq!(record("few", 1000, 10, 100, 0), (vec![100; 10], 1000));
        // A burst once a second.
        let burst = |second| (0..100).map(move |ns| TimeStamp(second * SECOND_NS + ns));
        let recorded = (1000..1010).flat_map(burst);
        let recorded = recorded.filter_map(|now| choose(100, "burst", 3, now, 0));
        assert_eq!(recorded.sum::<u8>(), 0);
        record("fewer", 1000, 10, 40_000, 0);
        record("fewer", 1010, 11, 10, 0);
        assert_eq!(record("fewer", 1021, 5, 10, 0), (vec![10; 5], 50));
    }

    #[test]
    fn slow_intervals_are_not_lost_among_quick_ones() {
        let (quick, slow) = (10_000, 300_000_000);
        for second in 1000..1010 {
            record("request", second, 1, 40_000, quick);
            assert_eq!(record("request", second, 1, 5, slow), (vec![5], 5));
        }
    }

    #[test]
    fn names_are_told_apart_by_their_first_64_bytes() {
        let long = |end| format!("{}{end}", "n".repeat(MAX_NAME_BYTES));
        assert_eq!(hash(&long("a"), 0), hash(&long("b"), 0));
        let names = ["", "a", "b", "ab", "12345678", "123456789"];
        let all: std::collections::HashSet<u64> = names.iter().map(|name| hash(name, 0)).collect();
        assert_eq!(all.len(), names.len());
        assert_ne!(hash("a", 0), hash("a", 1));
    }
}
