//! The waits of a session: the futures that wait, the stacks of their names, each stored once, and the
//! rows to be written.
//!
//! All memory is allocated in advance, by [`Waits::with_space`]: the waits are used under a lock that
//! threads of the application take wherever they poll.

use std::mem::replace;

use crate::labels::ContextWords;
use crate::types::TimeStamp;
use crate::util::{Search, UniqueIndex, cut_at_character, try_vec};

/// Maximum number of rows that wait for the sampler. Without space for one, its time stays with its
/// stack, and a later row has it.
pub(super) const MAX_ROWS: usize = 1 << 14;
/// Waiting time of a stack for which it gets a row at first, in ns.
const FIRST_PERIOD_NS: u64 = 1_000_000;
/// Number of rows within [`WINDOW_NS`] beyond which the period doubles. It halves after a window
/// with less than a quarter of them.
const MAX_ROWS_IN_WINDOW: u32 = 2_000;
const WINDOW_NS: u64 = 1_000_000_000;
/// Minimum duration of a wait that is also an interval, in ns: with a context, and without one.
const MIN_IN_CONTEXT_NS: u64 = 1_000_000;
const MIN_INTERVAL_NS: u64 = 10_000_000;
/// Number of intervals within [`WINDOW_NS`] after which these durations double, so that a viewer's
/// table can show all intervals, and long waits have one however many short ones there are.
const INTERVALS_TO_DOUBLE: u32 = 25;
/// Maximum length of each part of a name, in bytes.
pub(super) const MAX_PART_BYTES: usize = 128;
/// Average space for the texts of a stack, in bytes.
const TEXT_BYTES: usize = 48;
/// Name that replaces all names that find no space.
const OTHER: &str = "(other)";
/// Number of the stack with the name [`OTHER`] alone. 0 is the empty stack.
const OTHER_STACK: u32 = 1;

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
    /// Waiting time that the row represents, in ns. It may be that of several waits with this stack
    /// that ended since its last row.
    pub(crate) weight_ns: u64,
    /// Duration of the interval that ends with the row, in ns; 0 for none.
    pub(crate) interval_ns: u64,
    /// The context of the interval.
    pub(crate) context: ContextWords,
}

/// What the profile lacks.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct WaitLosses {
    /// Waits that were dropped for lack of space, and waits whose end was noticed late.
    pub(crate) waits: u64,
    /// Waits that were long enough for an interval and have none.
    pub(crate) intervals: u64,
}

/// Counts within the current second.
#[derive(Debug, Default)]
struct Window {
    begin: TimeStamp,
    rows: u32,
    intervals: u32,
}

/// The waits of a session.
#[derive(Debug)]
pub(super) struct Waits {
    pub(super) stacks: TaskStacks,
    waiting: Vec<Waiting>,
    /// The first free place plus one.
    first_free: u32,
    pub(super) rows: Vec<WaitRow>,
    /// Since when recording is paused.
    paused_at: Option<TimeStamp>,
    period_ns: u64,
    window: Window,
    losses: WaitLosses,
    /// Waits that last, and that had no interval when everything was accounted last.
    unshown: u64,
}

impl Waits {
    /// Returns waits with space for so many at the same time, and for so many stacks; `None`
    /// without memory.
    pub(super) fn with_space(max_waiting: usize, max_stacks: usize) -> Option<Self> {
        Some(Self {
            stacks: TaskStacks::with_space(max_stacks)?,
            waiting: try_vec(max_waiting)?,
            first_free: 0,
            rows: try_vec(MAX_ROWS)?,
            paused_at: None,
            period_ns: FIRST_PERIOD_NS,
            window: Window::default(),
            losses: WaitLosses::default(),
            unshown: 0,
        })
    }

    /// Begins a wait, and returns its place plus one; 0 if all places are taken.
    pub(super) fn begin(&mut self, stack: u32, now: TimeStamp, context: ContextWords) -> u32 {
        let waiting = Waiting {
            stack,
            next_free: 0,
            counted: now,
            shown: now,
            context,
        };
        let free = self.first_free.checked_sub(1).map(|index| index as usize);
        if let Some(place) = free.and_then(|index| self.waiting.get_mut(index)) {
            let next_free = replace(place, waiting).next_free;
            return replace(&mut self.first_free, next_free);
        }
        if self.waiting.len() == self.waiting.capacity() {
            self.losses.waits += 1;
            return 0;
        }
        self.waiting.push(waiting);
        self.waiting.len() as u32
    }

    /// Ends the wait at this place plus one.
    pub(super) fn end(&mut self, place: u32, now: TimeStamp) {
        let Some(waiting) = self.free(place) else {
            return;
        };
        let now = self.recorded_until(now);
        self.follow(now);
        self.count(&waiting, now);
        let is_shown = self.show(&waiting, now);
        if is_shown == Some(false) {
            self.losses.intervals += 1;
        }
        if is_shown != Some(true) {
            self.write_periods(waiting.stack);
        }
    }

    /// Forgets the wait at this place plus one, whose end is not known. Leaves out the waiting time
    /// since the last account.
    pub(super) fn forget(&mut self, place: u32) {
        if self.free(place).is_some() {
            self.losses.waits += 1;
        }
    }

    fn free(&mut self, place: u32) -> Option<Waiting> {
        let index = place.checked_sub(1)? as usize;
        let at = self.waiting.get_mut(index).filter(|at| at.stack != 0)?;
        let waiting = *at;
        at.stack = 0;
        at.next_free = replace(&mut self.first_free, place);
        Some(waiting)
    }

    /// Adds what a wait has waited to its stack.
    fn count(&mut self, waiting: &Waiting, now: TimeStamp) {
        if let Some(stack) = self.stacks.get_mut(waiting.stack) {
            let waited_ns = now.since_ns(waiting.counted);
            stack.waited_ns = stack.waited_ns.saturating_add(waited_ns);
            stack.last = stack.last.max(now);
        }
    }

    /// Adds an interval for a wait up to `now`. Returns whether it could, and `None` if the wait is
    /// too short for one.
    fn show(&mut self, waiting: &Waiting, now: TimeStamp) -> Option<bool> {
        let interval_ns = now.since_ns(waiting.shown);
        let least_ns = match waiting.context == ContextWords::NONE {
            true => MIN_INTERVAL_NS,
            false => MIN_IN_CONTEXT_NS,
        };
        let doubled = self.window.intervals / INTERVALS_TO_DOUBLE;
        let is_shown = interval_ns >> doubled.min(63) >= least_ns;
        let interval = is_shown.then_some((now, interval_ns));
        let row = interval.and_then(|_| self.write(waiting.stack, self.period_ns, interval));
        let Some(row) = row else {
            return (interval_ns >= MIN_INTERVAL_NS).then_some(false);
        };
        row.context = waiting.context;
        self.window.intervals += 1;
        Some(true)
    }

    /// Adds a row for the whole periods of a stack's time that no row has.
    fn write_periods(&mut self, stack: u32) {
        if self.write(stack, self.period_ns, None).is_none() {
            return;
        }
        self.window.rows += 1;
        if self.window.rows > MAX_ROWS_IN_WINDOW {
            self.window.rows = 0;
            self.period_ns = self.period_ns.saturating_mul(2);
        }
    }

    /// Begins a new window if the current one is over.
    fn follow(&mut self, now: TimeStamp) {
        let windows = now.since_ns(self.window.begin) / WINDOW_NS;
        if windows == 0 {
            return;
        }
        let is_busy = self.window.rows >= MAX_ROWS_IN_WINDOW / 4;
        let idle_windows = windows - u64::from(is_busy);
        let period_ns = self.period_ns >> idle_windows.min(63);
        self.period_ns = period_ns.max(FIRST_PERIOD_NS);
        self.window = Window {
            begin: now,
            ..Window::default()
        };
    }

    /// Adds a row for whole multiples of `unit_ns` of the stack's time that no row has, or for an
    /// interval with its end and duration. Returns `None` if there is nothing to write, or no
    /// space.
    fn write(
        &mut self,
        number: u32,
        unit_ns: u64,
        interval: Option<(TimeStamp, u64)>,
    ) -> Option<&mut WaitRow> {
        let stack = self.stacks.get_mut(number)?;
        let missing_ns = stack.waited_ns - stack.written_ns;
        let weight_ns = missing_ns - missing_ns % unit_ns.max(1);
        let is_needed = weight_ns > 0 || interval.is_some();
        if !is_needed || self.rows.len() == self.rows.capacity() {
            return None;
        }
        stack.written_ns += weight_ns;
        let (time, interval_ns) = interval.unwrap_or((stack.last, 0));
        self.rows.push(WaitRow {
            stack: number,
            time,
            weight_ns,
            interval_ns,
            context: ContextWords::NONE,
        });
        self.rows.last_mut()
    }

    /// Adds rows for the waits that last, up to `now`, and for what stacks have waited long ago.
    pub(super) fn account(&mut self, now: TimeStamp) {
        let now = self.recorded_until(now);
        self.follow(now);
        self.count_waiting(now);
        for number in 1..self.stacks.len() {
            let last = self.stacks.get_mut(number).map(|stack| stack.last);
            // The rest of a stack that waits no more would be in no row until a profile is taken.
            if last.is_some_and(|last| now.since_ns(last) >= WINDOW_NS) {
                self.write(number, 1, None);
            } else {
                self.write_periods(number);
            }
        }
    }

    /// Adds rows for everything that no row has, and intervals for the waits that last, up to
    /// `now`. Returns false if there was not enough space: the caller takes the rows, and calls
    /// this again.
    pub(super) fn account_all(&mut self, now: TimeStamp) -> bool {
        let now = self.recorded_until(now);
        self.follow(now);
        self.count_waiting(now);
        self.unshown = 0;
        for index in 0..self.waiting.len() {
            let waiting = self.waiting[index];
            if waiting.stack == 0 {
                continue;
            }
            match self.show(&waiting, now) {
                Some(true) => self.waiting[index].shown = now,
                Some(false) => self.unshown += 1,
                None => {}
            }
        }
        for number in 1..self.stacks.len() {
            self.write(number, 1, None);
        }
        self.rows.len() < self.rows.capacity()
    }

    fn count_waiting(&mut self, now: TimeStamp) {
        for index in 0..self.waiting.len() {
            let waiting = self.waiting[index];
            if waiting.stack != 0 {
                self.count(&waiting, now);
                self.waiting[index].counted = waiting.counted.max(now);
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
        self.account_all(now);
        self.paused_at = None;
        for waiting in &mut self.waiting {
            waiting.counted = waiting.counted.max(now);
            waiting.shown = waiting.shown.max(now);
        }
    }

    pub(super) fn losses(&self) -> WaitLosses {
        WaitLosses {
            intervals: self.losses.intervals + self.unshown,
            ..self.losses
        }
    }

    #[cfg(test)]
    pub(super) fn waiting_stacks(&self) -> Vec<String> {
        let waiting = self.waiting.iter().filter(|waiting| waiting.stack != 0);
        let mut stacks: Vec<_> = waiting
            .map(|waiting| self.stacks.text(waiting.stack))
            .collect();
        stacks.sort();
        stacks
    }
}

/// The name of a wrapped future: a label, and a text that was made at run time.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct TaskName<'a> {
    pub(crate) label: &'a str,
    pub(crate) dynamic: &'a str,
}

/// A stack: a name on top of another stack.
#[derive(Clone, Copy, Debug)]
struct Stack {
    below: u32,
    /// Where the name's label and its other text begin and end in the texts.
    texts: [u32; 3],
    /// What futures with this stack have waited, in ns, and how much of it rows have.
    waited_ns: u64,
    written_ns: u64,
    /// Up to when they have waited.
    last: TimeStamp,
}

/// The stacks of a session.
#[derive(Debug)]
pub(super) struct TaskStacks {
    stacks: Vec<Stack>,
    by_name: UniqueIndex,
    texts: String,
}

impl TaskStacks {
    /// Returns a table with space for so many stacks; `None` without memory.
    fn with_space(max_stacks: usize) -> Option<Self> {
        let mut texts = String::new();
        texts.try_reserve_exact(max_stacks * TEXT_BYTES).ok()?;
        let mut stacks = Self {
            stacks: try_vec(max_stacks)?,
            by_name: UniqueIndex::with_space(max_stacks)?,
            texts,
        };
        for label in ["", OTHER] {
            stacks.add(0, TaskName { label, dynamic: "" });
        }
        Some(stacks)
    }

    fn len(&self) -> u32 {
        self.stacks.len() as u32
    }

    fn get_mut(&mut self, number: u32) -> Option<&mut Stack> {
        self.stacks.get_mut(number as usize)
    }

    /// Returns the number of the stack with this name on top of `below`.
    ///
    /// Beyond half of the space, a new name lacks its text that was made at run time: that may be a
    /// different one for each request. Without space, the stack is [`OTHER_STACK`].
    pub(super) fn number(&mut self, below: u32, name: TaskName<'_>) -> u32 {
        let name = TaskName {
            label: cut_at_character(name.label, MAX_PART_BYTES),
            dynamic: cut_at_character(name.dynamic, MAX_PART_BYTES),
        };
        if below == OTHER_STACK || below >= self.len() {
            return OTHER_STACK;
        }
        let is_half_full = self.stacks.len() >= self.stacks.capacity() / 2
            || self.texts.len() >= self.texts.capacity() / 2;
        if let Some(known) = self.add_if(below, name, !is_half_full || name.dynamic.is_empty()) {
            return known;
        }
        let name = TaskName {
            dynamic: "",
            ..name
        };
        self.add_if(below, name, true).unwrap_or(OTHER_STACK)
    }

    /// Returns the number of a stack. Adds it if it is new, `adds` is true and there is space.
    fn add_if(&mut self, below: u32, name: TaskName<'_>, adds: bool) -> Option<u32> {
        let Self {
            stacks,
            by_name,
            texts,
        } = self;
        let has_space = stacks.len() < stacks.capacity()
            && texts.capacity() - texts.len() >= name.label.len() + name.dynamic.len();
        let is_at = |at: u32| {
            let known = &stacks[at as usize];
            known.below == below && name_in(texts, known) == name
        };
        match by_name.search(&(below, name), is_at) {
            Search::Found(known) => Some(known),
            Search::Missing(slot) if adds && has_space => {
                slot.fill(stacks.len() as u32);
                Some(self.add(below, name))
            }
            Search::Missing(_) => None,
        }
    }

    fn add(&mut self, below: u32, name: TaskName<'_>) -> u32 {
        let begin = self.texts.len();
        self.texts.push_str(name.label);
        let middle = self.texts.len();
        self.texts.push_str(name.dynamic);
        self.stacks.push(Stack {
            below,
            texts: [begin, middle, self.texts.len()].map(|at| at as u32),
            waited_ns: 0,
            written_ns: 0,
            last: TimeStamp(0),
        });
        self.len() - 1
    }

    /// Calls `visit` with each name of a stack, innermost first.
    pub(super) fn visit_names(&self, mut number: u32, mut visit: impl FnMut(TaskName<'_>)) {
        while let Some(stack) = self.stacks.get(number as usize).filter(|_| number != 0) {
            visit(name_in(&self.texts, stack));
            number = stack.below;
        }
    }

    #[cfg(test)]
    pub(super) fn text(&self, number: u32) -> String {
        let mut names = Vec::new();
        self.visit_names(number, |name| {
            names.push(format!("{} {}", name.label, name.dynamic).trim().to_owned());
        });
        names.reverse();
        names.join(" → ")
    }
}

fn name_in<'a>(texts: &'a str, stack: &Stack) -> TaskName<'a> {
    let [begin, middle, end] = stack.texts.map(|at| at as usize);
    TaskName {
        label: texts.get(begin..middle).unwrap_or_default(),
        dynamic: texts.get(middle..end).unwrap_or_default(),
    }
}

#[cfg(test)]
#[path = "waits_tests.rs"]
mod tests;
