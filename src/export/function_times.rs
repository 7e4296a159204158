//! Counts the time that threads spent in each group of functions.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::time::Duration;

use crate::export::function_groups::{FunctionGroups, GroupNumbers, Grouping};
use crate::export::markers::SwitchTotals;
use crate::export::options::{ExportOptions, SampleWeight};
use crate::export::run_loops::folded_runtime;
use crate::model::{
    FunctionKind, LABELS_LEFT_OUT, ProfileModel, StackId, TRUNCATED, Thread, is_whole_stack,
};
use crate::types::{HotFunction, ThreadSummary};
use crate::util::SharedSort;

/// Which function gets the self time of a sample in an inlined function.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SelfTime {
    /// The function that it was inlined into.
    OfCalledFunction,
    /// The inlined function. Then it does not matter whether the compiler inlined it.
    OfInlinedFunction,
}

/// A number of samples and the time that they count for.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct Time {
    pub(crate) samples: u64,
    pub(crate) ns: u64,
}

impl Time {
    pub(crate) fn add(&mut self, other: Self) {
        self.samples = self.samples.saturating_add(other.samples);
        self.ns = self.ns.saturating_add(other.ns);
    }
}

/// The time in a function, and in it and what it called.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct FunctionTime {
    pub(crate) own: Time,
    pub(crate) total: Time,
}

/// The times of one thread, or the sum of several.
#[derive(Clone, Default, Debug)]
pub(crate) struct ThreadTimes {
    /// All samples, with or without a stack.
    pub(crate) all: Time,
    /// CPU time of all samples.
    pub(crate) cpu_ns: u64,
    /// Number of samples of a thread that waited.
    pub(crate) idle_samples: u64,
    /// Number of samples whose stack could not be unwound to its root.
    pub(crate) truncated_samples: u64,
    /// By the number of the group. Each kind of function has a self time of its own: that of a
    /// script function includes the work of the interpreter, that of a label the work of the code.
    pub(crate) functions: HashMap<u32, FunctionTime>,
    /// Self time of a native function while a label was innermost, by the numbers of both groups.
    pub(crate) labeled: HashMap<(u32, u32), Time>,
}

impl ThreadTimes {
    pub(crate) fn add(&mut self, other: &Self) {
        self.all.add(other.all);
        self.cpu_ns = self.cpu_ns.saturating_add(other.cpu_ns);
        self.idle_samples = self.idle_samples.saturating_add(other.idle_samples);
        let truncated = &mut self.truncated_samples;
        *truncated = truncated.saturating_add(other.truncated_samples);
        for (&group, time) in &other.functions {
            let sum = self.functions.entry(group).or_default();
            sum.own.add(time.own);
            sum.total.add(time.total);
        }
        for (&pair, &time) in &other.labeled {
            self.labeled.entry(pair).or_default().add(time);
        }
    }

    /// Returns, for each native function, the group of the label under which the function spent
    /// more than half of its self time. A function without such a label is left out.
    pub(crate) fn main_labels(&self) -> HashMap<u32, u32> {
        let mut main: HashMap<u32, (u32, Time)> = HashMap::new();
        for (&(function, label), &time) in &self.labeled {
            let key = |label: u32, time: Time| (time.ns, time.samples, Reverse(label));
            let known = main.entry(function).or_insert((label, time));
            if key(label, time) > key(known.0, known.1) {
                *known = (label, time);
            }
        }
        let is_most = |function: u32, time: Time| {
            let own = self
                .functions
                .get(&function)
                .map_or(Time::default(), |time| time.own);
            match own.ns {
                0 => time.samples > own.samples / 2,
                ns => time.ns > ns / 2,
            }
        };
        main.retain(|&function, (_, time)| is_most(function, *time));
        let label = |(function, (label, _)): (u32, (u32, Time))| (function, label);
        main.into_iter().map(label).collect()
    }
}

/// Counts the times of one thread after another.
#[derive(Debug)]
pub(crate) struct TimeCounter<'a> {
    profile: &'a ProfileModel,
    numbers: &'a GroupNumbers,
    options: &'a ExportOptions,
    self_time: SelfTime,
    /// For each group, the number of the last stack in which it was seen.
    last_seen: Vec<u64>,
    stack_number: u64,
}

impl<'a> TimeCounter<'a> {
    /// `group_count` is the number of groups that `numbers` refers to.
    pub(crate) fn new(
        profile: &'a ProfileModel,
        (numbers, group_count): (&'a GroupNumbers, usize),
        options: &'a ExportOptions,
        self_time: SelfTime,
    ) -> Self {
        Self {
            profile,
            numbers,
            options,
            self_time,
            last_seen: vec![0; group_count],
            stack_number: 0,
        }
    }

    pub(crate) fn count(&mut self, thread: &Thread) -> ThreadTimes {
        let mut times = ThreadTimes::default();
        let mut by_stack: HashMap<StackId, Time> = HashMap::new();
        for row in self.options.rows(self.profile, thread) {
            let sample = row.sample;
            let time = Time {
                samples: thread.samples.count(&sample),
                ns: self.options.weight_ns(self.profile, &thread.samples, &row),
            };
            times.all.add(time);
            let cpu_ns = sample.cpu_delta_ns.unwrap_or(0);
            times.cpu_ns = times.cpu_ns.saturating_add(cpu_ns);
            if let Some(stack) = sample.stack {
                by_stack.entry(stack).or_default().add(time);
            }
        }
        for (stack, time) in by_stack {
            if self.profile.is_idle_stack(stack) {
                times.idle_samples = times.idle_samples.saturating_add(time.samples);
            }
            self.count_stack(stack, time, &mut times);
        }
        times
    }

    fn count_stack(&mut self, stack: StackId, time: Time, times: &mut ThreadTimes) {
        self.stack_number += 1;
        // Whether the self time has its function, or belongs to none.
        let (mut native_done, mut script_done, mut label_done) = (false, false, false);
        let (mut innermost_function, mut innermost_label) = (None, None);
        let mut is_truncated = None;
        let runtime = folded_runtime(self.profile, self.options.folds_runtime, Some(stack));
        let mut is_in_runtime = false;
        let mut next = Some(stack);
        while let Some(current) = next {
            let (prefix, frame) = self.profile.stack(current);
            next = prefix;
            is_in_runtime |= runtime == Some(current);
            let frame = self.profile.frame(frame);
            let kind = self.profile.function(frame.function).kind;
            // As in `frames_inside`, the innermost frame stays in any case. A label of the thread's
            // outermost function may lie among the runtime's frames.
            let is_left_out = is_in_runtime && current != stack && kind != FunctionKind::Label;
            let counts_inlined = self.self_time == SelfTime::OfInlinedFunction;
            let (is_done, may_be_innermost) = match kind {
                FunctionKind::Native => {
                    let is_called = frame.inline_depth == 0;
                    (&mut native_done, counts_inlined || is_called)
                }
                FunctionKind::Script => (&mut script_done, true),
                FunctionKind::Label => (&mut label_done, true),
                FunctionKind::Structure => match self.profile.function_name(frame.function) {
                    name if is_whole_stack(name) => (&mut native_done, true),
                    LABELS_LEFT_OUT => {
                        (script_done, label_done) = (true, true);
                        continue;
                    }
                    name => {
                        is_truncated.get_or_insert(name == TRUNCATED);
                        continue;
                    }
                },
            };
            if is_left_out {
                continue;
            }
            let group = self.numbers.of(frame.function);
            let function = times.functions.entry(group).or_default();
            if may_be_innermost && !*is_done {
                function.own.add(time);
                *is_done = true;
                match kind {
                    FunctionKind::Native => innermost_function = Some(group),
                    FunctionKind::Label => innermost_label = Some(group),
                    FunctionKind::Script | FunctionKind::Structure => {}
                }
            }
            let last_seen = &mut self.last_seen[group as usize];
            if *last_seen != self.stack_number {
                function.total.add(time);
                *last_seen = self.stack_number;
            }
        }
        if let Some(pair) = innermost_function.zip(innermost_label) {
            times.labeled.entry(pair).or_default().add(time);
        }
        if is_truncated == Some(true) {
            let truncated = &mut times.truncated_samples;
            *truncated = truncated.saturating_add(time.samples);
        }
    }
}

/// Summarizes each thread, in the order of the profile.
pub(crate) fn summarize(profile: &ProfileModel) -> Vec<ThreadSummary> {
    let options = ExportOptions {
        weight: SampleWeight::Cpu,
        ..ExportOptions::default()
    };
    let mut groups = FunctionGroups::default();
    let numbers = groups.add(profile, Grouping::ByName);
    let group_count = groups.len();
    let self_time = SelfTime::OfCalledFunction;
    let mut counter = TimeCounter::new(profile, (&numbers, group_count), &options, self_time);
    let summary = |thread: &Thread| {
        let times = counter.count(thread);
        let sampled_ns = profile.meta.interval_ns.saturating_mul(times.all.samples);
        let switches = SwitchTotals::of(profile, thread);
        ThreadSummary {
            name: thread.name.clone(),
            samples: times.all.samples as usize,
            sampled: Duration::from_nanos(sampled_ns),
            cpu: Duration::from_nanos(times.cpu_ns),
            waited_for_processor: switches
                .and_then(|switches| switches.waited_ns)
                .map(Duration::from_nanos),
            voluntary_switches: switches.map(|switches| switches.voluntary),
            involuntary_switches: switches.map(|switches| switches.involuntary),
            truncated_samples: times.truncated_samples as usize,
            functions: hot_functions(&groups, &times, FunctionKind::Native),
            script_functions: hot_functions(&groups, &times, FunctionKind::Script),
        }
    };
    let threads = profile.threads.iter();
    let threads = threads.filter(|thread| !thread.is_waiting_tasks());
    threads.map(summary).collect()
}

fn hot_functions(
    groups: &FunctionGroups<'_>,
    times: &ThreadTimes,
    kind: FunctionKind,
) -> Vec<HotFunction> {
    let of_kind = times
        .functions
        .iter()
        .map(|(&group, time)| (groups.get(group), time));
    let of_kind = of_kind.filter(|(group, _)| group.kind == kind);
    let mut functions: Vec<HotFunction> = of_kind
        .map(|(group, time)| HotFunction {
            name: group.name.clone().into_owned(),
            library: group.library.filter(|_| group.is_named).map(str::to_owned),
            self_time: Duration::from_nanos(time.own.ns),
            total_time: Duration::from_nanos(time.total.ns),
            self_samples: time.own.samples as usize,
            total_samples: time.total.samples as usize,
        })
        .collect();
    functions.shared_sort_by(|one, other| {
        let key = |one: &HotFunction| (one.self_time, one.self_samples, one.total_time);
        let by_time = key(other).cmp(&key(one));
        let by_name = || one.name.cmp(&other.name);
        by_time
            .then_with(by_name)
            .then_with(|| one.library.cmp(&other.library))
    });
    functions
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::test_profile::TestProfile;
    use crate::model::WeightUnit;

    fn find<'a>(functions: &'a [HotFunction], name: &str) -> &'a HotFunction {
        let mut found = functions.iter().filter(|function| function.name == name);
        found.next().expect("the function")
    }

    #[test]
    fn inlined_time_is_self_time_of_the_called_function() {
        let mut test = TestProfile::new(1_000_000);
        test.profile.meta.has_cpu_deltas = true;
        let thread = test.thread("main");
        // A name that begins with `+` is inlined into the one before it.
        test.sample(thread, &["main", "work", "+inlined"], Some(700));
        test.sample(thread, &["main", "work", "work"], Some(200));
        test.sample(thread, &["(root)", "(truncated)", "leaf"], None);
        let all = summarize(&test.profile);
        let summary = &all[0];
        assert_eq!((summary.samples, summary.truncated_samples), (3, 1));
        assert_eq!(summary.cpu, Duration::from_nanos(900));
        assert_eq!(summary.sampled, Duration::from_millis(3));
        let work = find(&summary.functions, "work");
        assert_eq!((work.self_samples, work.total_samples), (2, 2));
        assert_eq!(work.self_time, Duration::from_nanos(600));
        assert_eq!(work.library.as_deref(), Some("app"));
        let inlined = find(&summary.functions, "inlined");
        assert_eq!((inlined.self_samples, inlined.total_samples), (0, 1));
        assert_eq!(inlined.total_time, Duration::from_nanos(300));
        let main = find(&summary.functions, "main");
        assert_eq!((main.self_samples, main.total_samples), (0, 2));
        assert_eq!(summary.functions[0].name, "work");
        assert!(summary.script_functions.is_empty());
    }

    #[test]
    fn script_function_gets_the_interpreters_time_unless_frames_were_left_out() {
        let mut test = TestProfile::new(1_000_000);
        let thread = test.thread("main");
        test.sample(thread, &["main", "@script", "interpret"], None);
        test.sample(
            thread,
            &["main", "@script", "(newer labels left out)", "interpret"],
            None,
        );
        let summary = &summarize(&test.profile)[0];
        let script = find(&summary.script_functions, "script");
        assert_eq!((script.self_samples, script.total_samples), (1, 2));
        assert_eq!(script.self_time, Duration::from_millis(1));
        assert_eq!(find(&summary.functions, "interpret").self_samples, 2);
        assert_eq!(summary.truncated_samples, 0);
    }

    #[test]
    fn row_counts_for_the_samples_of_its_weight() {
        let mut test = TestProfile::new(1_000_000);
        let thread = test.thread("main");
        test.sample(thread, &["main", "work"], None);
        test.sample(thread, &["(truncated)", "~wait"], None);
        let samples = &mut test.profile.threads[thread].samples;
        samples.update(1, |sample| sample.weight = 9);
        let summary = &summarize(&test.profile)[0];
        assert_eq!((summary.samples, summary.truncated_samples), (10, 9));
        assert_eq!(summary.sampled, Duration::from_millis(10));
        let wait = find(&summary.functions, "wait");
        assert_eq!((wait.self_samples, wait.total_samples), (9, 9));
        assert_eq!(wait.self_time, Duration::from_millis(9));

        // Bytes are neither samples nor a time.
        test.profile.threads[thread].samples.weight_unit = WeightUnit::Bytes;
        let summary = &summarize(&test.profile)[0];
        assert_eq!(summary.samples, 2);
        assert_eq!(find(&summary.functions, "wait").self_time, Duration::ZERO);
    }

    #[test]
    fn address_without_name_has_no_library() {
        let mut test = TestProfile::new(1_000_000);
        let thread = test.thread("main");
        test.sample(thread, &["main", "0x1f40"], None);
        let summary = &summarize(&test.profile)[0];
        assert_eq!(find(&summary.functions, "0x1f40").library, None);
    }
}
