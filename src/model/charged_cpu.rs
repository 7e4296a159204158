//! Charges the CPU time of a thread to the stacks that ran.
//!
//! A sample's CPU time is that since the thread's previous sample. In a thread that works in bursts,
//! most of it belongs to the work before a sleep, and the clock is read in the sleep. So samples say
//! which stacks ran and how often, and the clock says how much time they share.

use std::ops::Range;

use crate::model::profile::{ProfileModel, Thread};
#[cfg(any(feature = "formats", feature = "protobuf"))]
use crate::model::samples::RowTicks;
use crate::model::samples::{Sample, Samples};

/// Minimum CPU time that is shared out at once, in intervals of the sampler: so many samples that ran
/// are expected in it, and a few do not say in which proportion the stacks ran.
const INTERVALS_IN_WINDOW: u64 = 8;

/// A sample, and the CPU time that is charged to its stack.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct ChargedSample {
    pub(crate) sample: Sample,
    pub(crate) cpu_ns: u64,
    /// Index in the thread's samples. `None` for a row of CPU time that belongs to no sample.
    pub(crate) index: Option<usize>,
}

#[cfg(any(feature = "formats", feature = "protobuf"))]
impl ChargedSample {
    /// Returns the ticks of the row. `samples` are those of its thread.
    pub(crate) fn ticks(&self, samples: &Samples) -> RowTicks {
        let between = RowTicks::single(self.sample.time_ns);
        self.index.map_or(between, |index| samples.row_ticks(index))
    }
}

/// Returns what some of `count` equal parts of a sum have: all parts together have the sum exactly.
pub(crate) fn even_share(sum: u64, parts: Range<u64>, count: u64) -> u64 {
    let up_to = |part: u64| u128::from(sum) * u128::from(part) / u128::from(count.max(1));
    (up_to(parts.end) - up_to(parts.start)) as u64
}

impl ProfileModel {
    /// Returns the samples of a thread by time, with the CPU time charged to each, and a row of weight
    /// 0 wherever CPU time belongs to no sample.
    ///
    /// The CPU time of a window is spread evenly over its samples that ran. A window ends at a sample,
    /// and has the CPU time of eight intervals or more; a thread with less has one window. Without a
    /// sample that ran, a window has a further row, with the stack [`Self::RAN_BETWEEN_SAMPLES`],
    /// before the sample that found the most CPU time. The sum is that of the thread's clock.
    pub(crate) fn charged_samples<'a>(&'a self, thread: &'a Thread) -> ChargedSamples<'a> {
        let samples = &thread.samples;
        let deltas = samples.iter().filter_map(|sample| sample.cpu_delta_ns);
        let has_cpu = self.meta.has_cpu_deltas && samples.has_cpu_deltas();
        ChargedSamples {
            later_ns: match has_cpu {
                true => deltas.fold(0, u64::saturating_add),
                false => 0,
            },
            ..self.uncharged_samples(thread)
        }
    }

    /// Returns the samples of a thread by time, for a reader that counts no CPU time: none is charged.
    pub(crate) fn uncharged_samples<'a>(&'a self, thread: &'a Thread) -> ChargedSamples<'a> {
        ChargedSamples {
            profile: self,
            samples: &thread.samples,
            next: 0,
            later_ns: 0,
            window: Window::default(),
        }
    }

    /// Returns whether a sample shows a thread that ran. Without a stack, only its CPU time can.
    fn ran(&self, sample: &Sample) -> bool {
        match sample.stack {
            Some(Self::RAN_BETWEEN_SAMPLES) => false,
            Some(stack) => sample.cpu_delta_ns != Some(0) && !self.is_idle_stack(stack),
            None => sample.cpu_delta_ns.is_some_and(|ns| ns > 0),
        }
    }
}

/// Iterates over the samples of a thread, with the CPU time charged to each.
#[derive(Debug)]
pub(crate) struct ChargedSamples<'a> {
    profile: &'a ProfileModel,
    samples: &'a Samples,
    /// Index of the next sample.
    next: usize,
    /// CPU time after the window.
    later_ns: u64,
    window: Window,
}

/// Samples that share their CPU time.
#[derive(Default, Debug)]
struct Window {
    /// Index after the last sample.
    end: usize,
    cpu_ns: u64,
    /// How many samples ran, and how many of them have got their CPU time.
    ran: u64,
    charged: u64,
    /// The sample before which the CPU time has a row, if none ran.
    between: Option<usize>,
}

impl ChargedSamples<'_> {
    /// Returns the window that begins with the next sample.
    fn next_window(&mut self) -> Window {
        let mut window = Window {
            end: self.samples.len(),
            ..Window::default()
        };
        if self.later_ns == 0 {
            return window;
        }
        let interval_ns = self.profile.meta.interval_ns;
        let least_ns = match interval_ns.saturating_mul(INTERVALS_IN_WINDOW) {
            0 => u64::MAX,
            ns => ns,
        };
        let mut most_ns = 0;
        for index in self.next..self.samples.len() {
            let sample = self.samples.get(index);
            let cpu_ns = sample.cpu_delta_ns.unwrap_or(0).min(self.later_ns);
            self.later_ns -= cpu_ns;
            window.cpu_ns += cpu_ns;
            if self.profile.ran(&sample) {
                window.ran = window.ran.saturating_add(self.samples.count(&sample));
            }
            if cpu_ns > most_ns {
                most_ns = cpu_ns;
                window.between = Some(index);
            }
            if window.cpu_ns >= least_ns && self.later_ns >= least_ns {
                window.end = index + 1;
                break;
            }
        }
        window.between = window.between.filter(|_| window.ran == 0);
        window
    }

    /// Returns a row of CPU time that belongs to no sample: between the next sample and the last tick
    /// before it.
    fn row_between(&self, cpu_ns: u64) -> ChargedSample {
        let time_ns = self.samples.get(self.next).time_ns;
        let before = self.next.checked_sub(1);
        let before = before.map(|before| self.samples.row_ticks(before).last_ns());
        ChargedSample {
            sample: Sample {
                stack: Some(ProfileModel::RAN_BETWEEN_SAMPLES),
                time_ns: before.map_or(time_ns, |before| before.midpoint(time_ns)),
                cpu_delta_ns: None,
                event_delay_ns: None,
                weight: 0,
            },
            cpu_ns,
            index: None,
        }
    }
}

impl Iterator for ChargedSamples<'_> {
    type Item = ChargedSample;

    fn next(&mut self) -> Option<ChargedSample> {
        if self.next == self.samples.len() {
            return None;
        }
        if self.next == self.window.end {
            self.window = self.next_window();
        }
        if self.window.between == Some(self.next) {
            self.window.between = None;
            return Some(self.row_between(self.window.cpu_ns));
        }
        let sample = self.samples.get(self.next);
        let index = Some(self.next);
        self.next += 1;
        let window = &mut self.window;
        let mut cpu_ns = 0;
        if window.ran > 0 && self.profile.ran(&sample) {
            let begin = window.charged;
            window.charged = begin.saturating_add(self.samples.count(&sample));
            cpu_ns = even_share(window.cpu_ns, begin..window.charged, window.ran);
        }
        Some(ChargedSample {
            sample,
            cpu_ns,
            index,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::profile::Category;
    use crate::model::stacks::{CategoryPair, Frame, Function, FunctionKind, ROOT, StackId};
    use crate::types::RAN_BETWEEN_SAMPLES;

    const MS: u64 = 1_000_000;

    struct Charging {
        profile: ProfileModel,
        work: StackId,
        sleep: StackId,
        thread: Thread,
    }

    impl Charging {
        /// Returns an empty thread, and the stacks of its work and of its sleep. The interval is 1 ms.
        fn new() -> Self {
            let mut profile = ProfileModel::default();
            profile.meta.interval_ns = MS;
            profile.meta.has_cpu_deltas = true;
            profile.categories = ["Other", "Idle"].map(category).into();
            let mut stack = |name, category| {
                let name = profile.intern(name);
                let function = Function::new(name, FunctionKind::Native);
                let function = profile.intern_function(function);
                let category = CategoryPair {
                    category,
                    subcategory: 0,
                };
                let frame = profile.intern_frame(&Frame {
                    category: Some(category),
                    ..Frame::new(function)
                });
                profile.append_frame(None, frame)
            };
            let (work, sleep) = (stack("work", 0), stack("sleep", 1));
            let thread = Thread {
                is_main: true,
                ..Thread::default()
            };
            Self {
                profile,
                work,
                sleep,
                thread,
            }
        }

        fn push(&mut self, stack: StackId, cpu_delta_ns: Option<u64>, weight: i64) {
            let time_ns = (self.thread.samples.len() as u64 * MS) as i64;
            self.thread.samples.push(Sample {
                stack: Some(stack),
                time_ns,
                cpu_delta_ns,
                event_delay_ns: None,
                weight,
            });
        }

        /// Returns the charges, after a check that the samples are whole and the sum is the clock's.
        fn charges(&self) -> Vec<(StackId, u64)> {
            let all = || self.profile.charged_samples(&self.thread);
            let own = all().filter(|charged| charged.index.is_some());
            assert!(own.map(|one| one.sample).eq(self.thread.samples.iter()));
            let deltas = self.thread.samples.iter();
            let deltas = deltas.filter_map(|sample| sample.cpu_delta_ns);
            let sum: u64 = all().map(|charged| charged.cpu_ns).sum();
            assert_eq!(sum, deltas.sum::<u64>());
            let charge = |one: ChargedSample| (one.sample.stack.expect("a stack"), one.cpu_ns);
            all().map(charge).collect()
        }
    }

    fn category(name: &str) -> Category {
        Category {
            name: name.to_owned(),
            color: "grey".to_owned(),
            subcategories: vec!["Other".to_owned()],
        }
    }

    #[test]
    fn cpu_time_of_sleeping_samples_goes_to_those_that_ran() {
        let mut test = Charging::new();
        let (work, sleep) = (test.work, test.sleep);
        test.push(work, Some(100), 1);
        test.push(sleep, Some(1_900), 1);
        test.push(sleep, Some(0), 40);
        test.push(work, Some(0), 7);
        test.push(work, Some(301), 2);
        test.push(sleep, None, 1);
        let expected = [767, 0, 0, 0, 1_534, 0];
        let stacks = [work, sleep, sleep, work, work, sleep];
        assert!(
            test.charges()
                .into_iter()
                .eq(stacks.into_iter().zip(expected))
        );
    }

    #[test]
    fn windows_have_eight_intervals_and_share_nothing() {
        let mut test = Charging::new();
        let (work, sleep) = (test.work, test.sleep);
        // Two windows of 8 ms, and 7 ms that are too short for a window.
        for _ in 0..2 {
            test.push(work, Some(MS), 1);
            test.push(sleep, Some(7 * MS), 1);
        }
        test.push(work, Some(7 * MS), 1);
        let charges: Vec<u64> = test.charges().into_iter().map(|(_, cpu)| cpu).collect();
        assert_eq!(charges, [8 * MS, 0, 15 * MS / 2, 0, 15 * MS / 2]);
        // Without an interval, the whole thread is one window.
        test.profile.meta.interval_ns = 0;
        let charges: Vec<u64> = test.charges().into_iter().map(|(_, cpu)| cpu).collect();
        assert_eq!(charges.iter().max(), Some(&(23 * MS / 3 + 1)));
    }

    #[test]
    fn window_without_a_running_sample_has_a_row_between_samples() {
        let mut test = Charging::new();
        let (work, sleep) = (test.work, test.sleep);
        test.push(sleep, Some(MS), 2);
        test.push(sleep, Some(7 * MS), 1);
        test.push(work, Some(9 * MS), 1);
        let between = ProfileModel::RAN_BETWEEN_SAMPLES;
        let expected = [(sleep, 0), (between, 8 * MS), (sleep, 0), (work, 9 * MS)];
        assert_eq!(test.charges(), expected);
        let row = test.profile.charged_samples(&test.thread).nth(1);
        let sample = row.expect("a row").sample;
        // The first row has a tick at half of a ms, too.
        assert_eq!((sample.time_ns, sample.weight), (750_000, 0));
        let frames = test.profile.stack_frames(sample.stack);
        let name = |frame| {
            let function = test.profile.frame(frame).function;
            test.profile.function_name(function)
        };
        assert!(frames.map(name).eq([RAN_BETWEEN_SAMPLES, ROOT]));
    }

    #[test]
    fn profile_without_cpu_times_charges_nothing() {
        let mut test = Charging::new();
        test.push(test.work, None, 1);
        assert_eq!(test.charges(), [(test.work, 0)]);
        test.push(test.work, Some(5), 1);
        test.profile.meta.has_cpu_deltas = false;
        let charged = test.profile.charged_samples(&test.thread);
        assert!(charged.map(|one| one.cpu_ns).eq([0, 0]));
    }

    #[test]
    fn sum_of_huge_times_stays_at_its_limit() {
        let mut test = Charging::new();
        test.push(test.work, Some(u64::MAX - 1), i64::MAX);
        test.push(test.work, Some(MS), i64::MAX);
        let charged = test.profile.charged_samples(&test.thread);
        let sum: u128 = charged.map(|one| u128::from(one.cpu_ns)).sum();
        assert_eq!(sum, u128::from(u64::MAX));
    }
}
