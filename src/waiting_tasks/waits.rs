//! The waits of a session: the stacks of names, the futures that wait, and the rows to be written.

use std::mem::replace;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use crate::labels::ContextWords;
use crate::types::TimeStamp;
use crate::util::{
    LockRank, NamedMutex, SMALL_TASK_BYTES, Search, UniqueIndex, allocator_has, cut_at_character,
    is_any_lock_held_on_current_thread, vec_growth_bytes,
};

/// Maximum number of different stacks. Further ones become [`OTHER`].
const MAX_STACKS: usize = 1 << 16;
/// Maximum depth of a stack. A future that is deeper counts as the one around it.
const MAX_DEPTH: u16 = 128;
/// Maximum length of a name, in bytes: the text that is made at run time, and the label.
const MAX_TEXT_BYTES: usize = 128;
/// Maximum number of futures that wait at the same time. Further waits are lost, and counted.
const MAX_WAITING: usize = 1 << 18;
/// Maximum number of rows that wait for the sampler. Without space for one, its time stays with its
/// stack, and a later row has it.
const MAX_ROWS: usize = 1 << 14;
/// Waiting time of a stack for which it gets a row at first, in ns.
const FIRST_PERIOD_NS: u64 = 1_000_000;
/// Number of rows within [`WINDOW_NS`] beyond which the period doubles.
const MAX_ROWS_IN_WINDOW: u32 = 2_000;
const WINDOW_NS: u64 = 1_000_000_000;
/// Duration from which a wait is an interval of its own, too, in ns.
const MIN_INTERVAL_NS: u64 = 10_000_000;
/// Number of such intervals within [`WINDOW_NS`]. Further waits have none, so that they are not more
/// than a viewer's table can show.
const MAX_INTERVALS_IN_WINDOW: u32 = 200;
/// The name in place of those beyond [`MAX_STACKS`].
const OTHER: &str = "(other)";
/// Number of the stack with the name [`OTHER`] alone. 0 is the empty stack.
const OTHER_STACK: u32 = 1;

/// The name of a wrapped future: a label, and a text that was made at run time.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct TaskName<T> {
    pub(crate) label: T,
    pub(crate) dynamic: T,
}

impl<'a> TaskName<&'a str> {
    fn cut(self) -> Self {
        Self {
            label: cut_at_character(self.label, MAX_TEXT_BYTES),
            dynamic: cut_at_character(self.dynamic, MAX_TEXT_BYTES),
        }
    }
}

/// A stack: a name on top of another stack.
#[derive(Debug)]
struct Stack {
    below: u32,
    depth: u16,
    name: TaskName<Arc<str>>,
    /// What futures with this stack have waited, in ns, and how much of it rows have.
    waited_ns: u64,
    written_ns: u64,
}

/// A future that waits.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    /// 0 if the place is free.
    stack: u32,
    /// The next free place plus one, if this one is free.
    next_free: u32,
    /// Up to when the stack has the wait's time.
    counted: TimeStamp,
    /// Up to when intervals have the wait.
    shown: TimeStamp,
    context: ContextWords,
}

/// A row for the sampler.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct WaitRow {
    pub(crate) stack: u32,
    pub(crate) time: TimeStamp,
    /// Waiting time that the row stands for, in ns. It may be that of several waits with this stack
    /// that ended since its last row.
    pub(crate) weight_ns: u64,
    /// Duration of the interval that ends with the row, in ns; 0 for none.
    pub(crate) interval_ns: u64,
    /// The context of the interval.
    pub(crate) context: ContextWords,
}

/// Counts within the current second.
#[derive(Debug, Default)]
struct Window {
    begin: TimeStamp,
    rows: u32,
    intervals: u32,
}

impl Window {
    fn follow(&mut self, now: TimeStamp) {
        if now.since_ns(self.begin) >= WINDOW_NS {
            *self = Self {
                begin: now,
                ..Self::default()
            };
        }
    }
}

/// The waits of a session.
#[derive(Debug)]
pub(super) struct Waits {
    stacks: Vec<Stack>,
    by_name: UniqueIndex,
    waiting: Vec<Waiting>,
    /// The first free place plus one.
    first_free: u32,
    rows: Vec<WaitRow>,
    /// Since when recording is paused.
    paused_at: Option<TimeStamp>,
    period_ns: u64,
    window: Window,
    lost: u64,
    max_stacks: usize,
}

impl Waits {
    pub(super) fn new() -> Self {
        let mut waits = Self {
            stacks: Vec::new(),
            by_name: UniqueIndex::default(),
            waiting: Vec::new(),
            first_free: 0,
            rows: Vec::new(),
            paused_at: None,
            period_ns: FIRST_PERIOD_NS,
            window: Window::default(),
            lost: 0,
            max_stacks: MAX_STACKS,
        };
        for text in ["", OTHER] {
            waits.stacks.push(Stack {
                below: 0,
                depth: u16::from(!text.is_empty()),
                name: TaskName {
                    label: text.into(),
                    dynamic: "".into(),
                },
                waited_ns: 0,
                written_ns: 0,
            });
        }
        waits
    }

    /// Returns the number of the stack with this name on top of `below`.
    pub(super) fn stack(&mut self, below: u32, name: TaskName<&str>) -> u32 {
        let name = name.cut();
        let Some(Stack { depth, .. }) = self.stacks.get(below as usize) else {
            return OTHER_STACK;
        };
        let depth = depth + 1;
        if below == OTHER_STACK || depth > MAX_DEPTH {
            return below;
        }
        let Self {
            stacks, by_name, ..
        } = self;
        let growth_bytes = by_name.growth_bytes(1) + vec_growth_bytes(stacks, 1);
        let is_at = |at: u32| {
            let known = &stacks[at as usize];
            known.below == below
                && *known.name.label == *name.label
                && *known.name.dynamic == *name.dynamic
        };
        match by_name.search(&(below, name), is_at) {
            Search::Found(known) => known,
            Search::Missing(_)
                if stacks.len() >= self.max_stacks
                    || !allocator_has(SMALL_TASK_BYTES + growth_bytes) =>
            {
                OTHER_STACK
            }
            Search::Missing(slot) => {
                let stack = stacks.len() as u32;
                slot.fill(stack);
                stacks.push(Stack {
                    below,
                    depth,
                    name: TaskName {
                        label: name.label.into(),
                        dynamic: name.dynamic.into(),
                    },
                    waited_ns: 0,
                    written_ns: 0,
                });
                stack
            }
        }
    }

    /// Begins a wait, and returns its place plus one; 0 if there is no space for it.
    pub(super) fn begin(&mut self, stack: u32, now: TimeStamp, context: ContextWords) -> u32 {
        let waiting = Waiting {
            stack,
            next_free: 0,
            counted: now,
            shown: now,
            context,
        };
        if let Some(place) = self
            .waiting
            .get_mut(self.first_free.wrapping_sub(1) as usize)
        {
            let next_free = replace(place, waiting).next_free;
            return replace(&mut self.first_free, next_free);
        }
        let has_space = self.waiting.len() < MAX_WAITING
            && (self.waiting.len() < self.waiting.capacity()
                || allocator_has(SMALL_TASK_BYTES + vec_growth_bytes(&self.waiting, 1)));
        if !has_space {
            self.lost += 1;
            return 0;
        }
        self.waiting.push(waiting);
        self.waiting.len() as u32
    }

    /// Ends the wait at this place plus one.
    pub(super) fn end(&mut self, place: u32, now: TimeStamp) {
        let Some(index) = place.checked_sub(1).map(|index| index as usize) else {
            return;
        };
        let Some(waiting) = self.waiting.get(index).filter(|at| at.stack != 0).copied() else {
            return;
        };
        let now = self.recorded_until(now);
        self.waiting[index].stack = 0;
        self.waiting[index].next_free = replace(&mut self.first_free, place);
        let context = waiting.context;
        let interval_ns = self.interval_until(&waiting, now);
        let stack = waiting.stack;
        self.count(stack, now.since_ns(waiting.counted));
        self.write(stack, now, self.period_ns, interval_ns, context);
    }

    /// Returns the duration of the interval that shows a wait up to `now`; 0 if it gets none.
    fn interval_until(&mut self, waiting: &Waiting, now: TimeStamp) -> u64 {
        let shown_ns = now.since_ns(waiting.shown);
        if shown_ns < MIN_INTERVAL_NS {
            return 0;
        }
        self.window.follow(now);
        if self.window.intervals >= MAX_INTERVALS_IN_WINDOW {
            return 0;
        }
        self.window.intervals += 1;
        shown_ns
    }

    fn count(&mut self, stack: u32, waited_ns: u64) {
        if let Some(stack) = self.stacks.get_mut(stack as usize) {
            stack.waited_ns = stack.waited_ns.saturating_add(waited_ns);
        }
    }

    /// Adds a row for whole multiples of `unit_ns` of the stack's time that no row has, or for an
    /// interval.
    fn write(
        &mut self,
        number: u32,
        time: TimeStamp,
        unit_ns: u64,
        interval_ns: u64,
        context: ContextWords,
    ) {
        let Some(stack) = self.stacks.get_mut(number as usize) else {
            return;
        };
        let missing_ns = stack.waited_ns - stack.written_ns;
        let weight_ns = missing_ns - missing_ns % unit_ns.max(1);
        if weight_ns == 0 && interval_ns == 0 {
            return;
        }
        if self.rows.len() >= MAX_ROWS || self.rows.try_reserve(1).is_err() {
            return;
        }
        stack.written_ns += weight_ns;
        let context = match interval_ns {
            0 => ContextWords::NONE,
            _ => context,
        };
        self.rows.push(WaitRow {
            stack: number,
            time,
            weight_ns,
            interval_ns,
            context,
        });
        self.window.follow(time);
        self.window.rows += 1;
        if self.window.rows > MAX_ROWS_IN_WINDOW {
            self.window.rows = 0;
            self.period_ns = self.period_ns.saturating_mul(2);
        }
    }

    /// Counts the waits that last up to `now`. With `shows_all`, adds rows for everything that no row
    /// has, and an interval for each wait that is long enough.
    pub(super) fn account(&mut self, now: TimeStamp, shows_all: bool) {
        let now = self.recorded_until(now);
        for index in 0..self.waiting.len() {
            let waiting = self.waiting[index];
            if waiting.stack == 0 {
                continue;
            }
            self.waiting[index].counted = waiting.counted.max(now);
            self.count(waiting.stack, now.since_ns(waiting.counted));
            if !shows_all {
                let none = ContextWords::NONE;
                self.write(waiting.stack, now, self.period_ns, 0, none);
                continue;
            }
            let interval_ns = self.interval_until(&waiting, now);
            if interval_ns > 0 {
                self.waiting[index].shown = now;
                let stack = waiting.stack;
                self.write(stack, now, self.period_ns, interval_ns, waiting.context);
            }
        }
        if shows_all {
            for stack in 0..self.stacks.len() as u32 {
                self.write(stack, now, 1, 0, ContextWords::NONE);
            }
        }
    }

    /// Returns the time up to which waits are recorded: `now`, or the begin of the pause.
    fn recorded_until(&self, now: TimeStamp) -> TimeStamp {
        self.paused_at.map_or(now, |paused_at| now.min(paused_at))
    }

    /// Leaves out the time from here on, or up to here.
    pub(super) fn set_paused(&mut self, now: TimeStamp, is_paused: bool) {
        if is_paused {
            self.paused_at.get_or_insert(now);
            return;
        }
        if self.paused_at.is_none() {
            return;
        }
        self.account(now, true);
        self.paused_at = None;
        for waiting in &mut self.waiting {
            waiting.counted = waiting.counted.max(now);
            waiting.shown = waiting.shown.max(now);
        }
    }

    /// Returns the names of a stack, outermost first.
    pub(super) fn names(&self, mut stack: u32, names: &mut Vec<TaskName<Arc<str>>>) {
        names.clear();
        while let Some(found) = self.stacks.get(stack as usize).filter(|_| stack != 0) {
            names.push(found.name.clone());
            stack = found.below;
        }
        names.reverse();
    }

    #[cfg(test)]
    pub(super) fn waiting_stacks(&self) -> Vec<String> {
        let waiting = self.waiting.iter().filter(|waiting| waiting.stack != 0);
        let mut stacks: Vec<_> = waiting.map(|waiting| self.text(waiting.stack)).collect();
        stacks.sort();
        stacks
    }

    #[cfg(test)]
    pub(super) fn text(&self, stack: u32) -> String {
        let mut names = Vec::new();
        self.names(stack, &mut names);
        let texts: Vec<_> = names.iter().map(|name| &*name.label).collect();
        texts.join(" → ")
    }
}

/// The waits of the running session; `None` if it records none.
static WAITS: NamedMutex<Option<Waits>> =
    NamedMutex::new("waiting tasks", LockRank::WaitingTasks, None);
/// The number of the running session, if it records waits; 0 otherwise.
static SESSION: AtomicU32 = AtomicU32::new(0);
static LAST_SESSION: AtomicU32 = AtomicU32::new(0);
static HAS_ROWS: AtomicBool = AtomicBool::new(false);

/// Returns the number of the session that records waits; 0 if there is none.
#[inline(always)]
pub(super) fn session() -> u32 {
    SESSION.load(Ordering::Relaxed)
}

/// Runs `body` on the waits of the session with this number. Returns `None` if the session has ended,
/// or inside the profiler's own work, where the caller may hold the lock.
pub(super) fn with_waits<T>(of_session: u32, body: impl FnOnce(&mut Waits) -> T) -> Option<T> {
    if is_any_lock_held_on_current_thread() {
        return None;
    }
    let mut waits = WAITS.lock();
    // Under the lock, so that a wait of an ended session is not added to the next one's.
    if session() != of_session {
        return None;
    }
    let waits = waits.as_mut()?;
    let answer = body(waits);
    if !waits.rows.is_empty() {
        HAS_ROWS.store(true, Ordering::Relaxed);
    }
    Some(answer)
}

/// Begins to record waits.
pub(crate) fn begin_waits() {
    let mut waits = WAITS.lock();
    *waits = Some(Waits::new());
    let mut number = LAST_SESSION.fetch_add(1, Ordering::Relaxed) + 1;
    if number == 0 {
        number = LAST_SESSION.fetch_add(1, Ordering::Relaxed) + 1;
    }
    HAS_ROWS.store(false, Ordering::Relaxed);
    SESSION.store(number, Ordering::Relaxed);
}

/// Ends recording, and forgets all waits.
pub(crate) fn end_waits() {
    if session() == 0 {
        return;
    }
    let mut waits = WAITS.lock();
    SESSION.store(0, Ordering::Relaxed);
    let forgotten = waits.take();
    drop(waits);
    drop(forgotten);
}

/// Ends recording in the child of a fork. Takes no lock.
pub(crate) fn end_waits_in_child() {
    SESSION.store(0, Ordering::Relaxed);
}

/// Forgets the parent's waits in the child of a fork.
pub(crate) fn forget_waits_in_child() {
    WAITS.renew_in_child(None);
}

/// Returns whether there are rows for the sampler.
pub(crate) fn has_wait_rows() -> bool {
    HAS_ROWS.load(Ordering::Relaxed)
}

/// Swaps the rows that have been added since the last call with `rows`, which is empty.
pub(crate) fn swap_wait_rows(rows: &mut Vec<WaitRow>) {
    if let Some(waits) = WAITS.lock().as_mut() {
        std::mem::swap(&mut waits.rows, rows);
        HAS_ROWS.store(false, Ordering::Relaxed);
    }
}

/// Follows a pause of recording, or its end.
pub(crate) fn follow_pause(now: TimeStamp, is_paused: bool) {
    if let Some(waits) = WAITS.lock().as_mut() {
        waits.set_paused(now, is_paused);
        HAS_ROWS.store(true, Ordering::Relaxed);
    }
}

/// Returns the names of a stack of the running session, outermost first.
pub(crate) fn stack_names(stack: u32, names: &mut Vec<TaskName<Arc<str>>>) {
    match WAITS.lock().as_ref() {
        Some(waits) => waits.names(stack, names),
        None => names.clear(),
    }
}

/// Counts the waits that last, so that a long one has a row now and then.
pub(crate) fn account_waiting(now: TimeStamp) {
    with_waits(session(), |waits| waits.account(now, false));
}

/// Adds rows for everything that no row has, and intervals for the waits that last.
pub(crate) fn account_all(now: TimeStamp) {
    with_waits(session(), |waits| waits.account(now, true));
}

/// Returns how many waits of the session were lost, because there was no space for them.
pub(crate) fn lost_waits() -> u64 {
    WAITS.lock().as_ref().map_or(0, |waits| waits.lost)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: ContextWords = ContextWords::NONE;

    fn name(label: &str) -> TaskName<&str> {
        TaskName { label, dynamic: "" }
    }

    fn at(us: u64) -> TimeStamp {
        TimeStamp(us * 1_000)
    }

    impl Waits {
        fn wait(&mut self, stack: u32, from: TimeStamp, to: TimeStamp) {
            let place = self.begin(stack, from, NONE);
            self.end(place, to);
        }

        fn weight_ns(&self, stack: u32) -> u64 {
            let rows = self.rows.iter().filter(|row| row.stack == stack);
            rows.map(|row| row.weight_ns).sum()
        }
    }

    #[test]
    fn equal_stacks_share_a_number_and_too_many_become_other() {
        let mut waits = Waits::new();
        let outer = waits.stack(0, name("outer"));
        let inner = waits.stack(outer, name("inner"));
        assert_eq!(waits.stack(0, name("outer")), outer);
        assert_eq!(waits.stack(outer, name("inner")), inner);
        assert_ne!(waits.stack(0, name("inner")), inner);
        assert_eq!(waits.text(inner), "outer → inner");
        waits.max_stacks = waits.stacks.len();
        let other = waits.stack(outer, name("new"));
        assert_eq!(waits.text(other), OTHER);
        assert_eq!(waits.stack(other, name("inner")), other);
        assert_eq!(waits.stack(outer, name("inner")), inner);
    }

    #[test]
    fn future_beyond_the_maximum_depth_counts_as_the_one_around_it() {
        let mut waits = Waits::new();
        let mut stack = 0;
        for _ in 0..2 * MAX_DEPTH {
            stack = waits.stack(stack, name("deeper"));
        }
        let mut names = Vec::new();
        waits.names(stack, &mut names);
        assert_eq!(names.len(), usize::from(MAX_DEPTH));
    }

    #[test]
    fn rows_of_a_stack_add_up_to_its_waits_less_a_period() {
        let mut waits = Waits::new();
        let [short, long] = ["short", "long"].map(|label| waits.stack(0, name(label)));
        // 300 µs each: every fourth or third has a row.
        for number in 0..1_000 {
            waits.wait(short, at(number * 2_000), at(number * 2_000 + 300));
            waits.wait(long, at(number * 2_000), at(number * 2_000 + 1_700));
            let truth = (number + 1) * 300_000;
            let missing = truth - waits.weight_ns(short);
            assert!(missing < waits.period_ns, "{missing}");
        }
        waits.account(at(3_000_000), true);
        assert_eq!(waits.weight_ns(short), 300_000_000);
        assert_eq!(waits.weight_ns(long), 1_700_000_000);
    }

    #[test]
    fn period_doubles_beyond_the_rows_of_a_second_and_no_time_is_lost() {
        let mut waits = Waits::new();
        let stacks: Vec<_> = (0..10)
            .map(|number| waits.stack(0, name(&number.to_string())))
            .collect();
        let mut places = Vec::new();
        for stack in &stacks {
            for _ in 0..1_000 {
                places.push(waits.begin(*stack, at(0), NONE));
            }
        }
        for place in places {
            waits.end(place, at(5_000));
        }
        assert_eq!(waits.period_ns, 16 * FIRST_PERIOD_NS);
        assert!(waits.rows.len() < MAX_ROWS);
        for stack in &stacks {
            assert!(waits.weight_ns(*stack).abs_diff(5_000_000_000) < waits.period_ns);
        }
        waits.account(at(5_000), true);
        for stack in stacks {
            assert_eq!(waits.weight_ns(stack), 5_000_000_000);
        }
    }

    #[test]
    fn full_list_of_rows_delays_time() {
        let mut waits = Waits::new();
        let stack = waits.stack(0, name("one"));
        waits.rows.resize(
            MAX_ROWS,
            WaitRow {
                stack: 0,
                time: at(0),
                weight_ns: 0,
                interval_ns: 0,
                context: NONE,
            },
        );
        waits.wait(stack, at(0), at(7_000));
        assert_eq!(waits.weight_ns(stack), 0);
        waits.rows.clear();
        waits.wait(stack, at(7_000), at(8_000));
        assert_eq!(waits.weight_ns(stack), 8_000_000);
    }

    #[test]
    fn waits_that_last_are_counted_once() {
        let mut waits = Waits::new();
        let stack = waits.stack(0, name("one"));
        let place = waits.begin(stack, at(0), NONE);
        waits.account(at(400), false);
        assert_eq!(waits.weight_ns(stack), 0);
        waits.account(at(2_500), false);
        assert_eq!(waits.weight_ns(stack), 2_000_000);
        waits.account(at(2_600), true);
        assert_eq!(waits.weight_ns(stack), 2_600_000);
        waits.end(place, at(3_000));
        waits.end(place, at(9_000));
        waits.account(at(9_000), true);
        assert_eq!(waits.weight_ns(stack), 3_000_000);
        assert_eq!(waits.waiting_stacks(), Vec::<String>::new());
    }

    #[test]
    fn pause_is_left_out() {
        let mut waits = Waits::new();
        let stack = waits.stack(0, name("one"));
        let places = [0, 0].map(|_| waits.begin(stack, at(0), NONE));
        waits.set_paused(at(2_000), true);
        waits.set_paused(at(2_500), true);
        waits.wait(stack, at(3_000), at(50_000));
        waits.end(places[0], at(60_000));
        waits.set_paused(at(100_000), false);
        waits.end(places[1], at(101_000));
        assert_eq!(waits.weight_ns(stack), 5_000_000);
    }

    #[test]
    fn places_are_used_again() {
        let mut waits = Waits::new();
        let stack = waits.stack(0, name("one"));
        let places: Vec<_> = (0..3).map(|_| waits.begin(stack, at(0), NONE)).collect();
        assert_eq!(places, [1, 2, 3]);
        waits.end(2, at(1));
        waits.end(1, at(1));
        let again: Vec<_> = (0..3).map(|_| waits.begin(stack, at(0), NONE)).collect();
        assert_eq!(again, [1, 2, 4]);
    }

    #[test]
    fn long_wait_is_an_interval_and_a_lasting_one_continues() {
        let mut waits = Waits::new();
        let stack = waits.stack(0, name("one"));
        let intervals = |waits: &Waits| -> Vec<u64> {
            let rows = waits.rows.iter().filter(|row| row.interval_ns > 0);
            rows.map(|row| row.interval_ns / 1_000).collect()
        };
        waits.wait(stack, at(0), at(9_999));
        assert!(intervals(&waits).is_empty());
        let place = waits.begin(stack, at(0), NONE);
        waits.account(at(5_000), true);
        assert!(intervals(&waits).is_empty());
        waits.account(at(30_000), true);
        waits.end(place, at(80_000));
        assert_eq!(intervals(&waits), [30_000, 50_000]);
        for _ in 0..2 * MAX_INTERVALS_IN_WINDOW {
            waits.wait(stack, at(80_000), at(100_000));
        }
        assert_eq!(intervals(&waits).len(), MAX_INTERVALS_IN_WINDOW as usize);
        waits.wait(stack, at(2_000_000), at(2_010_000));
        assert_eq!(intervals(&waits).last(), Some(&10_000));
    }
}
