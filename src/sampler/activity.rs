//! Detects whether any thread of the process has run, for processes with many idle threads.
//!
//! Reading one CPU clock for each of a thousand threads costs most of a millisecond. Reading the
//! CPU time of all threads together takes about 1 µs where the kernel keeps the sum for us. The
//! kernel adds a thread's time to the sum when the thread goes to sleep or is preempted, on each
//! scheduler tick, and when its clock is read. The sampler reads the clocks of the active threads
//! on each tick. So what the sum has more than all clocks, as they were last read, was used by the
//! idle threads, and by threads that are not sampled. As long as this *unexplained* time does not
//! grow, no idle thread has run, except perhaps one that still runs and has not seen a scheduler
//! tick yet.
//!
//! If it grows, the idle threads are searched, those first that became idle last, until the clocks
//! of the found threads explain the growth. So the cost follows the running threads, not the
//! existing ones. If all have been searched, another thread has used the time: one that is not
//! sampled, or one that has ended.
//!
//! Where the kernel does not keep the sum, it adds up the times of all threads on each read, at up
//! to 100 ns per thread. So the sampler skips eight or seven ticks between two reads there: while
//! threads keep running, and once no thread has run for a while. When a thread runs after such a
//! quiet period, all idle threads are checked at once. While threads keep running, the idle ones
//! are checked in turn, each at least on every tenth tick.
//!
//! So a thread that wakes after a long idle period may be noticed some milliseconds late if more
//! than 32 other threads are idle: at the next scheduler tick, and after a search, which takes up
//! to 22 ms with 10,000 threads, and begins again if already searched threads run before it ends.
//! Its CPU time is charged to the sample that notices it.

use std::ops::Range;

use crate::platform::{OtherThreadsActivity, ProcessCpuSum, other_threads_activity_by_rusage};

/// Number of long-idle threads to check on each tick while threads run. If no more than this many
/// are idle, all are checked. With a kept sum, this many are checked in turn, and as many of those
/// that became idle last.
const CHECKS_PER_TICK: u64 = 32;
/// Minimum sampling interval for the hint, in ns. The kernel updates the CPU time of a running
/// thread only on its own ticks, 1 to 10 ms apart. With shorter intervals the hint would be many
/// ticks late.
const MIN_INTERVAL_NS: u64 = 1_000_000;
/// Maximum number of ticks between two checks of a long-idle thread while other threads run,
/// without a kept sum.
const MAX_TICKS_BETWEEN_CHECKS: u64 = 10;
/// Ticks between two reads of the sum where the kernel adds it up on each read. Used while other
/// threads keep running, and (less 1) in a quiet period.
const TICKS_BETWEEN_READS: u64 = 8;
/// A search checks this part of the idle threads in each millisecond since the last tick, within
/// these limits. The upper one keeps a tick of 1 ms below half of its time.
const SEARCH_PARTS: usize = 10;
const MIN_SEARCHED: usize = 64;
const MAX_SEARCHED: usize = 512;
/// Maximum number of milliseconds that count. An endless search, for a thread that is not sampled,
/// must not take all of a session's CPU limit.
const MAX_SEARCHED_MS: usize = 4;
/// Number of threads that a search checks on its first tick if it begins after a quiet period.
const SEARCHED_AFTER_QUIET: usize = 1024;

/// Number of ticks without a running thread after which a quiet period begins.
const QUIET_TICKS: u64 = 32;

/// Long-idle threads to check on this tick, by their places in the list of idle threads, which is
/// in the order in which they became idle. No place comes twice.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct IdleChecks {
    /// All of these are checked, before the others.
    newest: Range<usize>,
    search: Option<SearchPart>,
    /// Every `step`th of these is checked, unless the search has checked it.
    turn: Range<usize>,
    step: usize,
}

/// The part of a search that fits into one tick.
#[derive(Clone, PartialEq, Eq, Debug)]
struct SearchPart {
    /// The places to check, from the end to the beginning, while time is unexplained.
    places: Range<usize>,
    unexplained_ns: u64,
    found_ns: u64,
    checked: Range<usize>,
}

impl IdleChecks {
    /// Checks one in this many idle threads, in turn from tick to tick.
    fn one_in(count: u64, round: u64, idle_threads: usize) -> Self {
        Self {
            turn: (round % count) as usize..idle_threads,
            step: count as usize,
            ..Self::default()
        }
    }

    /// Returns the next place to check.
    pub(crate) fn next_place(&mut self) -> Option<usize> {
        if let Some(place) = self.newest.next_back() {
            return Some(place);
        }
        if let Some(part) = &mut self.search
            && part.unexplained_ns > 0
            && let Some(place) = part.places.next_back()
        {
            part.checked.start = place;
            return Some(place);
        }
        let is_checked = |place: &usize| {
            let part = self.search.as_ref();
            part.is_some_and(|part| part.checked.contains(place))
        };
        let place = self
            .turn
            .clone()
            .step_by(self.step.max(1))
            .find(|place| !is_checked(place))?;
        self.turn.start = place + self.step.max(1);
        Some(place)
    }

    /// Notes that the thread at the last place has run for so long since its clock was last read.
    pub(crate) fn explain(&mut self, ran_ns: u64) {
        if let Some(part) = &mut self.search {
            part.unexplained_ns = part.unexplained_ns.saturating_sub(ran_ns);
            part.found_ns = part.found_ns.wrapping_add(ran_ns);
        }
    }
}

/// Source of the other threads' CPU time.
#[derive(Debug, Default)]
enum ActivitySource {
    /// No hint was needed so far.
    #[default]
    NotStarted,
    /// The kernel keeps the sum.
    Kept(ProcessCpuSum),
    /// The kernel adds up the times of all threads on each read.
    ThreadByThread,
}

/// A search for idle threads that have used the unexplained time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Search {
    /// Minimum of the unexplained time since the search began, less what the search has found. The
    /// clock of an active thread may have been read a little before the sum. So a reading may be
    /// too large, but never too small.
    level_ns: i64,
    /// The places from here on have been searched.
    end: usize,
}

/// Finds idle threads that run by a sum of the CPU times that the kernel keeps.
#[derive(Debug, Default)]
struct SumSearch {
    /// The sum when it was last read.
    activity: Option<OtherThreadsActivity>,
    /// The unexplained time of which no idle thread has used any; `None` until all of them have
    /// been searched.
    explained_ns: Option<i64>,
    search: Option<Search>,
    /// Number of ticks since any thread has run.
    quiet: u64,
    /// The next place to check in turn.
    turn: usize,
}

impl SumSearch {
    /// Returns which of the idle threads to check.
    fn checks(&mut self, threads: SeenThreads, activity: OtherThreadsActivity) -> IdleChecks {
        let idle_threads = threads.idle;
        let has_run = (self.activity.replace(activity))
            .is_none_or(|before| activity.has_changed_since(before));
        let was_quiet = self.quiet >= QUIET_TICKS;
        self.quiet = if has_run { 0 } else { self.quiet + 1 };
        let unexplained_ns = activity.cpu_ns().wrapping_sub(threads.known_cpu_ns) as i64;
        let newest = idle_threads.saturating_sub(CHECKS_PER_TICK as usize)..idle_threads;
        match self.explained_ns {
            Some(explained_ns) if unexplained_ns == explained_ns => self.search = None,
            // What counted as explained was too much, and may hide an idle thread.
            Some(explained_ns) if unexplained_ns < explained_ns => {
                (self.explained_ns, self.search) = (None, None);
            }
            _ => {}
        }
        if self.explained_ns == Some(unexplained_ns) {
            // No search is needed.
        } else if let Some(search) = &mut self.search {
            if unexplained_ns < search.level_ns {
                // Threads that have been searched may have run since, and only seem to be
                // explained.
                search.level_ns = unexplained_ns;
                search.end = newest.start;
            }
        } else {
            self.search = Some(Search {
                level_ns: unexplained_ns,
                end: newest.start,
            });
            // Perhaps an active thread has run between the reading of its clock and that of the
            // sum. Then the next reading shows it. After a quiet period, none has run.
            if !was_quiet && self.explained_ns.is_some() {
                return self.newest_and_turn(newest);
            }
        }
        let Some(search) = &mut self.search else {
            return match has_run {
                true => self.newest_and_turn(newest),
                false => IdleChecks::default(),
            };
        };
        search.end = search.end.min(newest.start);
        // Rare ticks search more, so that a thread is not noticed much later.
        let ms = usize::try_from(threads.since_last_ns / 1_000_000).unwrap_or(usize::MAX);
        let ms = ms.clamp(1, MAX_SEARCHED_MS);
        let per_ms = (idle_threads / SEARCH_PARTS).clamp(MIN_SEARCHED, MAX_SEARCHED);
        let least = if was_quiet { SEARCHED_AFTER_QUIET } else { 0 };
        let per_tick = (per_ms * ms).max(least);
        let part = SearchPart {
            places: search.end.saturating_sub(per_tick)..search.end,
            // Without an explained time, all are searched.
            unexplained_ns: self.explained_ns.map_or(u64::MAX, |explained_ns| {
                search.level_ns.wrapping_sub(explained_ns) as u64
            }),
            found_ns: 0,
            checked: search.end..search.end,
        };
        IdleChecks {
            search: Some(part),
            ..self.newest_and_turn(newest)
        }
    }

    fn newest_and_turn(&mut self, newest: Range<usize>) -> IdleChecks {
        let begin = match self.turn < newest.start {
            true => self.turn,
            false => 0,
        };
        self.turn = begin + CHECKS_PER_TICK as usize;
        IdleChecks {
            turn: begin..self.turn.min(newest.start),
            step: 1,
            newest,
            search: None,
        }
    }

    /// Takes note of the checks that were made.
    fn end_tick(&mut self, checks: &IdleChecks) {
        let (Some(search), Some(part)) = (&mut self.search, &checks.search) else {
            return;
        };
        search.level_ns = search.level_ns.wrapping_sub_unsigned(part.found_ns);
        search.end = part.checked.start;
        if search.end == 0 && part.unexplained_ns > 0 {
            self.explained_ns = Some(search.level_ns);
        }
        if search.end == 0 || part.unexplained_ns == 0 {
            self.search = None;
        }
    }
}

/// Decides which long-idle threads to check, by the CPU time of all other threads.
#[derive(Debug, Default)]
pub(crate) struct ActivityHint {
    source: ActivitySource,
    by_sum: SumSearch,
    /// The activity when it last changed, where the kernel keeps no sum. So are all below.
    since: OtherThreadsActivity,
    /// Ticks until every idle thread has been checked since that change.
    checks_left: u64,
    /// Ticks until the activity is read again.
    ticks_until_hint: u64,
    /// Number of consecutive reads without activity since every idle thread has been checked.
    quiet: u64,
}

/// What a tick knows of the threads when it asks for the idle ones to check.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SeenThreads {
    /// Number of long-idle threads.
    pub(crate) idle: usize,
    /// Sum of the last readings of the clocks of all sampled threads, including ended ones, in ns.
    pub(crate) known_cpu_ns: u64,
    /// Whether ticks were missed before this one, so that each thread may have run.
    pub(crate) has_gap: bool,
    /// Time since the last tick, in ns.
    pub(crate) since_last_ns: u64,
    /// The number of this tick.
    pub(crate) round: u64,
}

impl ActivityHint {
    /// Returns which long-idle threads to check on this tick. The clocks of the others have been
    /// read on this tick.
    pub(crate) fn checks(&mut self, threads: SeenThreads, interval_ns: u64) -> IdleChecks {
        let idle_threads = threads.idle as u64;
        let one_in = idle_threads
            .div_ceil(CHECKS_PER_TICK)
            .clamp(1, MAX_TICKS_BETWEEN_CHECKS);
        let in_turn = |one_in| {
            let one_in = if threads.has_gap { 1 } else { one_in };
            IdleChecks::one_in(one_in, threads.round, threads.idle)
        };
        if idle_threads <= CHECKS_PER_TICK || interval_ns < MIN_INTERVAL_NS {
            // Keep the kernel's sum for now, because the number of idle threads may go up and down
            // around the limit.
            let source = if idle_threads > CHECKS_PER_TICK / 2 {
                std::mem::take(&mut self.source)
            } else {
                ActivitySource::NotStarted
            };
            *self = Self {
                source,
                ..Self::default()
            };
            return in_turn(one_in);
        }
        if self.ticks_until_hint > 0 {
            self.ticks_until_hint -= 1;
            return if self.quiet > 0 {
                IdleChecks::default()
            } else {
                in_turn(one_in)
            };
        }
        if matches!(self.source, ActivitySource::NotStarted) {
            self.source =
                ProcessCpuSum::start().map_or(ActivitySource::ThreadByThread, ActivitySource::Kept);
        }
        match &self.source {
            ActivitySource::Kept(sum) => {
                let activity = sum.other_threads_activity();
                self.by_sum.checks(threads, activity)
            }
            ActivitySource::NotStarted | ActivitySource::ThreadByThread => {
                let activity = other_threads_activity_by_rusage();
                self.after(activity, one_in)
                    .map_or_else(IdleChecks::default, in_turn)
            }
        }
    }

    /// Takes note of the checks that were made on this tick.
    pub(crate) fn end_tick(&mut self, checks: &IdleChecks) {
        self.by_sum.end_tick(checks);
    }

    /// Returns in how many ticks to check all idle threads; `None` if no check is needed, because
    /// no thread has run.
    fn after(&mut self, activity: OtherThreadsActivity, one_in: u64) -> Option<u64> {
        if activity.has_changed_since(self.since) {
            self.since = activity;
            if std::mem::take(&mut self.quiet) >= QUIET_TICKS {
                self.checks_left = 0;
                return Some(1);
            }
            // A thread that ran twice in a row is likely to run on.
            self.ticks_until_hint = if self.checks_left > 0 {
                TICKS_BETWEEN_READS
            } else {
                0
            };
            self.checks_left = one_in;
            return Some(one_in);
        }
        if self.checks_left > 0 {
            self.checks_left -= 1;
            return Some(one_in);
        }
        self.quiet += 1;
        self.ticks_until_hint = if self.quiet >= QUIET_TICKS {
            TICKS_BETWEEN_READS - 1
        } else {
            0
        };
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_threads_are_not_checked_while_activity_is_unchanged() {
        let mut hint = ActivityHint::default();
        let activity = OtherThreadsActivity::for_test;
        assert_eq!(hint.after(activity(5, 100), 3), Some(3));
        for _ in 0..3 {
            let checks = hint.after(activity(5, 101), 3);
            assert_eq!(checks, Some(3), "all of them, in turn");
        }
        assert_eq!(hint.after(activity(5, 105), 3), None);
        let checks = hint.after(activity(6, 105), 3);
        assert_eq!(checks, Some(3), "a thread went to sleep");
        assert_eq!(hint.ticks_until_hint, 0);
        let checks = hint.after(activity(6, 300), 3);
        assert_eq!(checks, Some(3), "a thread is running");
        assert_eq!(hint.ticks_until_hint, TICKS_BETWEEN_READS);
    }

    #[test]
    fn all_idle_threads_are_checked_after_a_quiet_period() {
        let mut hint = ActivityHint::default();
        let activity = OtherThreadsActivity::for_test;
        assert_eq!(hint.after(activity(5, 100), 10), Some(10));
        while hint.quiet < QUIET_TICKS {
            assert_eq!(hint.ticks_until_hint, 0);
            hint.after(activity(5, 100), 10);
        }
        assert_eq!(hint.ticks_until_hint, TICKS_BETWEEN_READS - 1);
        let seen = SeenThreads {
            idle: 1000,
            known_cpu_ns: 0,
            has_gap: false,
            since_last_ns: 1_000_000,
            round: 0,
        };
        let checks = hint.checks(seen, 1_000_000);
        assert_eq!(checks.count(), 0, "without reading the sum");
        assert_eq!(hint.after(activity(6, 100), 10), Some(1));
        assert_eq!(hint.after(activity(6, 100), 10), None);
    }

    #[test]
    fn few_idle_threads_or_short_intervals_need_no_hint() {
        let places = |idle, has_gap, interval_ns| {
            let seen = SeenThreads {
                idle,
                known_cpu_ns: 0,
                has_gap,
                since_last_ns: interval_ns,
                round: 13,
            };
            let mut checks = ActivityHint::default().checks(seen, interval_ns);
            std::iter::from_fn(|| checks.next_place()).collect::<Vec<_>>()
        };
        assert_eq!(places(32, false, 1_000_000), (0..32).collect::<Vec<_>>());
        assert_eq!(places(0, false, 1_000_000), Vec::<usize>::new());
        let in_turn: Vec<usize> = (3..1000).step_by(10).collect();
        assert_eq!(places(1000, false, 100_000), in_turn);
        assert_eq!(places(1000, true, 100_000).len(), 1000, "after a gap");
    }

    impl IdleChecks {
        fn count(mut self) -> usize {
            std::iter::from_fn(|| self.next_place()).count()
        }
    }

    /// Threads with CPU clocks, as the kernel and the sampler see them.
    struct Machine {
        by_sum: SumSearch,
        /// The clock of each idle thread, and its value when it was last read. The list is in the
        /// order in which the threads became idle.
        idle: Vec<(u64, u64)>,
        /// CPU time of the threads that are not sampled.
        others_ns: u64,
        /// What the sum has of active threads that ran on after their clocks were read.
        late_ns: u64,
        /// CPU time of the active threads, whose clocks are read on each tick.
        active_ns: u64,
        /// Time between two ticks, in ns.
        tick_ns: u64,
        /// Number of places that were checked on the last tick.
        checked: usize,
    }

    impl Machine {
        /// A machine whose idle threads have all been searched once.
        fn new(threads: usize) -> Self {
            let mut machine = Self {
                by_sum: SumSearch::default(),
                idle: vec![(1000, 1000); threads],
                others_ns: 0,
                late_ns: 0,
                active_ns: 0,
                tick_ns: 1_000_000,
                checked: 0,
            };
            while machine.by_sum.explained_ns.is_none() {
                machine.tick();
            }
            machine
        }

        /// Runs a tick. Returns the number of threads that were noticed.
        fn tick(&mut self) -> usize {
            let sum = |of: fn(&(u64, u64)) -> u64| self.idle.iter().map(of).sum::<u64>();
            let known_ns = sum(|thread| thread.1) + self.active_ns;
            let cpu_ns = sum(|thread| thread.0) + self.active_ns + self.others_ns + self.late_ns;
            let activity = OtherThreadsActivity::of_sum(cpu_ns);
            let seen = SeenThreads {
                idle: self.idle.len(),
                known_cpu_ns: known_ns,
                has_gap: false,
                since_last_ns: self.tick_ns,
                round: 0,
            };
            let mut checks = self.by_sum.checks(seen, activity);
            let mut woken = Vec::new();
            let mut places = std::collections::HashSet::new();
            while let Some(place) = checks.next_place() {
                assert!(places.insert(place), "twice");
                let (clock_ns, known_ns) = &mut self.idle[place];
                checks.explain(*clock_ns - *known_ns);
                if clock_ns != known_ns {
                    *known_ns = *clock_ns;
                    woken.push(place);
                }
            }
            self.by_sum.end_tick(&checks);
            self.checked = places.len();
            woken.sort_unstable();
            for &place in woken.iter().rev() {
                // It sleeps again at once.
                let thread = self.idle.remove(place);
                self.idle.push(thread);
            }
            woken.len()
        }

        fn ticks(&mut self, count: usize) -> usize {
            (0..count).map(|_| self.tick()).sum()
        }
    }

    #[test]
    fn cost_does_not_follow_the_number_of_threads() {
        let mut machine = Machine::new(10_000);
        assert_eq!((machine.tick(), machine.checked), (0, 0), "no thread runs");
        for _ in 0..1000 {
            // An active thread runs on and on.
            machine.active_ns += 1_000_000;
            // Now and then, a reading of the sum is too large.
            machine.late_ns = 7_000 * u64::from(machine.active_ns.is_multiple_of(5_000_000));
            assert_eq!(machine.tick(), 0);
            assert!(machine.checked <= 2 * 32 + 64, "{}", machine.checked);
        }
        let active_ns = machine.active_ns;
        machine.late_ns = 0;
        machine.ticks(2);
        for _ in 0..100 {
            // The thread that slept last wakes.
            machine.idle.last_mut().expect("a thread").0 += 1_000_000;
            assert_eq!(machine.tick(), 1);
            assert!(machine.checked <= 2 * 32);
            machine.ticks(2);
        }
        assert_eq!(machine.active_ns, active_ns);
    }

    #[test]
    fn thread_that_slept_long_is_noticed_soon() {
        for (place, late_ns) in [(0, 0), (5_000, 0), (9_900, 0), (0, 3_000), (5_000, 3_000)] {
            let mut machine = Machine::new(10_000);
            for tick in 0..200 {
                machine.active_ns += 1_000_000;
                // Each second reading of the sum is too large.
                machine.late_ns = tick % 2 * late_ns;
                machine.tick();
            }
            machine.idle[place].0 += 500;
            let mut ticks = 1;
            while machine.tick() == 0 {
                machine.active_ns += 1_000_000;
                machine.late_ns = ticks % 2 * late_ns;
                ticks += 1;
                assert!(machine.checked <= 512 + 2 * 32);
            }
            assert!(ticks <= 24, "{place}: {ticks}");
        }
    }

    #[test]
    fn thread_is_noticed_as_soon_if_ticks_are_rare() {
        let mut machine = Machine::new(10_000);
        machine.tick_ns = 30_000_000;
        for _ in 0..50 {
            machine.active_ns += 1_000_000;
            machine.tick();
        }
        machine.idle[0].0 += 500;
        let noticed = (1..=8).find(|_| {
            machine.active_ns += 1_000_000;
            machine.tick() > 0
        });
        assert!(noticed.is_some());
    }

    #[test]
    fn any_of_a_thousand_threads_is_noticed_at_once_after_a_quiet_period() {
        let mut machine = Machine::new(1000);
        machine.ticks(50);
        assert_eq!(machine.checked, 0);
        machine.idle[0].0 += 1;
        assert_eq!((machine.tick(), machine.checked), (1, 1000));
        assert_eq!((machine.ticks(2), machine.checked), (0, 0));
    }

    #[test]
    fn threads_that_are_not_sampled_explain_the_rest() {
        let mut machine = Machine::new(10_000);
        // One runs, and ends.
        machine.others_ns += 1_000_000;
        assert_eq!(machine.ticks(30), 0);
        assert_eq!((machine.tick(), machine.checked), (0, 0));
        // One runs all the time: each idle thread is checked again and again.
        let run = |machine: &mut Machine| {
            machine.others_ns += 1_000_000;
            let noticed = machine.tick();
            assert!(machine.checked <= 512 + 2 * 32);
            noticed
        };
        (0..100).for_each(|_| {
            run(&mut machine);
        });
        for place in [0, 3_000, 9_000] {
            machine.idle[place].0 += 200;
            let late = (0..50).position(|_| run(&mut machine) > 0);
            assert!(late.is_some_and(|ticks| ticks <= 45), "{late:?}");
        }
    }

    /// Whatever runs, no idle thread stays unnoticed for long, and no check is made for nothing.
    #[test]
    fn threads_that_run_at_random_are_all_noticed() {
        let mut state = 1_u32;
        let mut random = move |below: u32| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) % below
        };
        let mut machine = Machine::new(3000);
        for _ in 0..200 {
            for _ in 0..random(40) {
                machine.active_ns += u64::from(random(2) * 900_000);
                machine.late_ns = u64::from(random(2) * random(50_000));
                machine.others_ns += u64::from(u32::from(random(20) == 0) * random(1_000_000));
                if random(5) == 0 {
                    let place = random(3000) as usize;
                    machine.idle[place].0 += u64::from(1 + random(1_000_000));
                }
                machine.tick();
            }
            machine.late_ns = 0;
            machine.ticks(60);
            assert!(machine.idle.iter().all(|(clock, known)| clock == known));
            assert_eq!(machine.checked, 0);
        }
    }
}
