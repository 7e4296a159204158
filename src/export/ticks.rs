//! The samples of a thread as ticks, for formats in which each sample counts for one interval.

use std::collections::HashMap;

use crate::export::options::{ExportOptions, SampleWeight};
use crate::model::{FunctionId, ProfileModel, Sample, Samples, StackId, Thread, WeightUnit};

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
/// sample. [`SampleWeight::Cpu`] makes more samples idle: the others then count as much time as the
/// CPU time of their innermost function.
pub(crate) struct Ticks<'a> {
    profile: &'a ProfileModel,
    samples: &'a Samples,
    counts_cpu: bool,
    /// Index of the next sample.
    next: usize,
    previous_ns: Option<i64>,
    /// The ticks left of the last sample.
    repeated: Repeated,
    /// Whether a stack is idle, as far as that was asked.
    idle_stacks: Vec<Option<bool>>,
    /// CPU time that no tick has counted yet, in ticks, by the innermost function.
    cpu_ticks: HashMap<Option<FunctionId>, f64>,
}

struct Repeated {
    first: Tick,
    given: u64,
    count: u64,
    /// Time from the first tick to the next sample.
    length_ns: i64,
}

impl<'a> Ticks<'a> {
    pub(crate) fn new(
        profile: &'a ProfileModel,
        thread: &'a Thread,
        options: &ExportOptions,
    ) -> Self {
        Self {
            profile,
            samples: &thread.samples,
            counts_cpu: options.weight == SampleWeight::Cpu && profile.meta.has_cpu_deltas,
            next: 0,
            previous_ns: None,
            repeated: Repeated {
                first: Tick {
                    time_ns: 0,
                    activity: Activity::Unknown,
                },
                given: 0,
                count: 0,
                length_ns: 0,
            },
            idle_stacks: vec![None; profile.stack_count()],
            cpu_ticks: HashMap::new(),
        }
    }

    fn activity(&mut self, sample: &Sample) -> Activity {
        if sample.cpu_delta_ns == Some(0) || self.counts_cpu && !self.takes_cpu_tick(sample) {
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

    /// Adds the CPU time of the sample to its function's. Returns whether a tick is due for it.
    fn takes_cpu_tick(&mut self, sample: &Sample) -> bool {
        let elapsed = self.previous_ns.map_or(0, |ns| sample.time_ns - ns).max(1);
        let used = sample.cpu_delta_ns.unwrap_or(0) as f64;
        let leaf = |stack| self.profile.frame(self.profile.stack(stack).1).function;
        let due = self.cpu_ticks.entry(sample.stack.map(leaf)).or_default();
        *due += (used / elapsed as f64).min(1.0);
        let is_due = *due >= 0.5;
        if is_due {
            *due -= 1.0;
        }
        is_due
    }

    /// Returns the ticks of the next sample.
    fn next_sample(&mut self) -> Option<Repeated> {
        if self.next >= self.samples.len() {
            return None;
        }
        let sample = self.samples.get(self.next);
        let activity = self.activity(&sample);
        self.next += 1;
        let mut repeated = Repeated {
            first: Tick {
                time_ns: sample.time_ns,
                activity,
            },
            given: 0,
            count: 1,
            length_ns: 0,
        };
        if sample.weight > 1
            && self.samples.weight_unit == WeightUnit::Samples
            && self.next < self.samples.len()
        {
            let length_ns = self.samples.get(self.next).time_ns - sample.time_ns;
            let interval_ns = self.profile.meta.interval_ns.max(1);
            let fitting = length_ns.unsigned_abs().div_ceil(interval_ns).max(1);
            repeated.count = sample.weight.unsigned_abs().min(fitting);
            repeated.length_ns = length_ns;
        }
        // After a sample for ticks that were left out, the thread may have run at once. If it was idle,
        // it has run after the last of the ticks.
        self.previous_ns = Some(match sample.cpu_delta_ns {
            Some(0) => repeated.time_ns(repeated.count - 1),
            _ => sample.time_ns,
        });
        Some(repeated)
    }
}

impl Repeated {
    /// Returns the time of a tick, by its number from 0 on.
    fn time_ns(&self, number: u64) -> i64 {
        let count = i128::from(self.count.max(1));
        let passed_ns = i128::from(self.length_ns) * i128::from(number) / count;
        self.first.time_ns + passed_ns as i64
    }
}

impl Iterator for Ticks<'_> {
    type Item = Tick;

    fn next(&mut self) -> Option<Tick> {
        if self.repeated.given == self.repeated.count {
            self.repeated = self.next_sample()?;
        }
        let Repeated { first, given, .. } = self.repeated;
        let time_ns = self.repeated.time_ns(given);
        self.repeated.given += 1;
        Some(Tick { time_ns, ..first })
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
