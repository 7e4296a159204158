//! The samples of a thread as ticks, for formats in which each sample counts for one interval.

use std::collections::HashMap;

use crate::export::options::ExportOptions;
use crate::model::{
    ChargedSamples, FunctionId, ProfileModel, RowTicks, Sample, Samples, StackId, Thread,
};

/// What a thread did at a tick.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Activity {
    /// It waited.
    Idle,
    /// The sample has no stack.
    Unknown,
    Ran(StackId),
}

/// A moment of a thread. It counts as one interval.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Tick {
    pub(crate) time_ns: i64,
    pub(crate) activity: Activity,
}

/// The ticks of a thread, by time.
///
/// A sample is one tick. If its weight is a number of samples, it is as many ticks, evenly spread
/// over the time until the next sample, but not more than fit there.
///
/// A sample is idle if its stack is idle, or if the thread used no CPU time since the previous
/// sample. [`SampleWeight::Cpu`](crate::export::options::SampleWeight::Cpu) makes more ticks idle: the
/// others then count as much time as the CPU time of their innermost function. CPU time that belongs
/// to no sample is one tick.
pub(crate) struct Ticks<'a> {
    profile: &'a ProfileModel,
    samples: &'a Samples,
    counts_cpu: bool,
    rows: ChargedSamples<'a>,
    /// The last row's ticks, and how many of them were given.
    ticks: RowTicks,
    given: u64,
    activity: Activity,
    /// The part of an interval for which the thread ran in each of these ticks; `None` if they
    /// count in full.
    ran: Option<f64>,
    /// Whether a stack is idle, as far as that was asked.
    idle_stacks: Vec<Option<bool>>,
    /// CPU time that no tick has counted yet, in ticks, by the innermost function.
    cpu_ticks: HashMap<Option<FunctionId>, f64>,
}

impl<'a> Ticks<'a> {
    pub(crate) fn new(
        profile: &'a ProfileModel,
        thread: &'a Thread,
        options: &ExportOptions,
    ) -> Self {
        let none = RowTicks::single(0);
        Self {
            profile,
            samples: &thread.samples,
            counts_cpu: options.counts_cpu(profile),
            rows: options.rows(profile, thread),
            given: none.count,
            ticks: none,
            activity: Activity::Unknown,
            ran: None,
            idle_stacks: vec![None; profile.stack_count()],
            cpu_ticks: HashMap::new(),
        }
    }

    fn activity_of(&mut self, sample: &Sample) -> Activity {
        if sample.cpu_delta_ns == Some(0) {
            return Activity::Idle;
        }
        let Some(stack) = sample.stack else {
            return Activity::Unknown;
        };
        let is_idle = &mut self.idle_stacks[stack.0 as usize];
        match *is_idle.get_or_insert_with(|| self.profile.is_idle_stack(stack)) {
            true => Activity::Idle,
            false => Activity::Ran(stack),
        }
    }

    /// Begins the next row.
    fn begin_row(&mut self) -> Option<()> {
        let row = self.rows.next()?;
        let mut ticks = row.ticks(self.samples);
        let length_ns = ticks.time_ns(ticks.count) - ticks.time_ns(0);
        let interval_ns = self.profile.meta.interval_ns.max(1);
        let fitting = length_ns.unsigned_abs().div_ceil(interval_ns).max(1);
        ticks.count = ticks.count.min(fitting);
        let is_sample = row.index.is_some();
        let ran = row.cpu_ns as f64 / (interval_ns as f64 * ticks.count as f64);
        self.ran = (self.counts_cpu && is_sample).then_some(ran);
        self.activity = self.activity_of(&row.sample);
        (self.ticks, self.given) = (ticks, 0);
        Some(())
    }

    /// Adds the CPU time of a tick to its function's. Returns whether the tick is due for it.
    fn is_due(&mut self, ran: f64) -> bool {
        let leaf = match self.activity {
            Activity::Ran(stack) => {
                let (_, frame) = self.profile.stack(stack);
                Some(self.profile.frame(frame).function)
            }
            Activity::Idle | Activity::Unknown => None,
        };
        let due = self.cpu_ticks.entry(leaf).or_default();
        *due += ran;
        let is_due = *due >= 0.5;
        if is_due {
            *due -= 1.0;
        }
        is_due
    }
}

impl Iterator for Ticks<'_> {
    type Item = Tick;

    fn next(&mut self) -> Option<Tick> {
        if self.given == self.ticks.count {
            self.begin_row()?;
        }
        let time_ns = self.ticks.time_ns(self.given);
        self.given += 1;
        let activity = match (self.activity, self.ran) {
            (Activity::Ran(_) | Activity::Unknown, Some(ran)) if !self.is_due(ran) => {
                Activity::Idle
            }
            (activity, _) => activity,
        };
        Some(Tick { time_ns, activity })
    }
}

/// The number of a thread's ticks, and their first and last time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct TickRange {
    pub(crate) count: u64,
    pub(crate) first_ns: i64,
    pub(crate) last_ns: i64,
}

impl TickRange {
    pub(crate) fn add(&mut self, tick: &Tick) {
        if self.count == 0 {
            self.first_ns = tick.time_ns;
        }
        self.count += 1;
        self.last_ns = tick.time_ns;
    }

    /// Returns the end of the last tick: it is as long as the others are on average.
    pub(crate) fn end_ns(&self, profile: &ProfileModel) -> i64 {
        let mean_ns = match self.count {
            0 => 0,
            1 => profile.meta.interval_ns.min(i64::MAX as u64) as i64,
            count => (self.last_ns - self.first_ns) / (count - 1) as i64,
        };
        self.last_ns.saturating_add(mean_ns)
    }
}

/// Converts times to whole µs from an origin.
///
/// The origin is the profile's start, or the first time if that is earlier: DevTools leaves out
/// what has a negative time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MicroClock {
    origin_ns: i64,
}

impl MicroClock {
    pub(crate) fn new(first_ns: i64) -> Self {
        Self {
            origin_ns: first_ns.min(0),
        }
    }

    /// Rounds down, so that times keep their order.
    pub(crate) fn us(&self, ns: i64) -> i64 {
        ns.saturating_sub(self.origin_ns).div_euclid(1000)
    }
}

#[cfg(test)]
#[path = "ticks_tests.rs"]
mod tests;
