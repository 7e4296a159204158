//! Warnings about profiles that say less than their reader may think.
//!
//! They are made here, and printed in three places: in the report, in the profile's `meta.warnings`,
//! and on standard error.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use crate::types::features::UnavailableFeature;
use crate::types::{NoStack, signal_name};

/// Title of the section of `meta.extra` about the profiler itself.
pub(crate) const PROFILER_SECTION: &str = "Profiler";
/// Labels of values in that section.
pub(crate) const SAMPLER_CPU: &str = "CPU time of the sampler";
pub(crate) const BUFFER_MEMORY: &str = "Memory of the buffer";
pub(crate) const STOP_TIME: &str = "Time in which threads were stopped";

const FILTERS: &str = "filters";
const MAIN_THREAD: &str = "main thread";
const MISSED_TICKS: &str = "missed ticks";
/// CPU time without a stack that is too little for a warning, in ns.
const MIN_WITHOUT_STACK_NS: u64 = 10_000_000;
/// Length of a session from which on its coverage says something about the program, in ns.
const SHORT_SESSION_NS: u64 = 1_000_000_000;

/// A reason why a profile may mislead its reader, with the remedy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Warning {
    /// The subject in one or two words, for programs that look for this warning.
    pub(crate) name: &'static str,
    pub(crate) text: String,
    /// Whether the warning depends on how busy the machine was, so that the same program may get it
    /// or not.
    pub(crate) is_about_load: bool,
}

impl Warning {
    fn new(name: &'static str, text: String) -> Self {
        Self {
            name,
            text,
            is_about_load: name == MISSED_TICKS,
        }
    }

    /// Returns whether the start or the end of a session prints it.
    pub(crate) fn is_told_elsewhere(&self) -> bool {
        self.name == FILTERS || self.name == MAIN_THREAD
    }
}

/// Names in a text about threads.
const MAX_NAMES: usize = 8;

/// Returns some of the names, and how many more there are.
fn some_of(names: &[String]) -> String {
    let shown = names[..names.len().min(MAX_NAMES)].join(", ");
    match names.len().checked_sub(MAX_NAMES) {
        Some(more @ 1..) => format!("{shown} and {more} more"),
        _ => shown,
    }
}

/// Why CPU time of a process may not be in its samples.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct Uncovered {
    /// Names of threads that the filters do not select, and the CPU time that they have used in all, which
    /// may be more than in the session.
    pub(crate) unselected: (Vec<String>, u64),
    /// Likewise of other threads that have no samples.
    pub(crate) unsampled: (Vec<String>, u64),
    /// Whether the session has filters.
    pub(crate) has_filters: bool,
    /// Whether the session samples threads that are not registered.
    pub(crate) samples_unregistered: bool,
    /// Number of threads that ended before their first sample, and the CPU time of the registered
    /// ones among them, in ns.
    pub(crate) too_short: (u64, u64),
    /// Share of the ticks that the sampler missed, in percent.
    pub(crate) missed_percent: u64,
    /// Number of threads whose CPU time the system does not tell.
    pub(crate) without_clock: u64,
    /// Number of samples that were dropped for lack of space or memory.
    pub(crate) dropped_samples: u64,
}

/// Warns if little of the process's CPU time is in samples. `reasons` is asked only then.
///
/// The process's time contains that of the sampler, which may be all that an idle program uses. So
/// the missing time must be a fifth of the session's and more than the sampled time.
pub(crate) fn low_coverage(
    (sampled_ns, process_ns, wall_ns): (u64, u64, u64),
    reasons: impl FnOnce() -> Uncovered,
) -> Option<Warning> {
    let missing_ns = process_ns.saturating_sub(sampled_ns);
    if missing_ns <= wall_ns / 5 || missing_ns <= sampled_ns {
        return None;
    }
    let share = sampled_ns as f64 / process_ns as f64 * 100.0;
    let text = format!(
        "only {share:.1}% of the process's CPU time is in samples, and {:.2} s are not: {}",
        missing_ns as f64 / 1e9,
        reasons().text(missing_ns)
    );
    Some(Warning {
        // In a short session, the profiler's own work may be most of it.
        is_about_load: wall_ns < SHORT_SESSION_NS,
        ..Warning::new("coverage", text)
    })
}

impl Uncovered {
    /// Returns the reasons, those with the most CPU time first, and those without a known one last.
    fn text(&self, missing_ns: u64) -> String {
        let seconds = |ns: u64| ns as f64 / 1e9;
        let at_most = |ns: u64| format!("at most {:.2} s", seconds(ns.min(missing_ns)));
        let mut texts = Vec::new();
        let (names, ns) = &self.unselected;
        if !names.is_empty() {
            let (time, names) = (at_most(*ns), some_of(names));
            let text = format!("{time}: the filters do not select the threads {names}");
            texts.push((*ns, text));
        }
        let (names, ns) = &self.unsampled;
        if !names.is_empty() {
            let (time, names) = (at_most(*ns), some_of(names));
            let text = match self.samples_unregistered {
                true => format!(
                    "{time}: the threads {names} have no samples, because the system does not let \
                     the profiler see them, for example"
                ),
                false => format!(
                    "{time}: the threads {names} are not registered, and the feature \
                     nounregisteredsampling leaves them out; omit the feature, or call \
                     gekkota::register_thread on each"
                ),
            };
            texts.push((*ns, text));
        }
        let (threads, ns) = self.too_short;
        if threads > 0 {
            let time = match ns {
                0 => String::new(),
                ns => format!("{:.2} s: ", seconds(ns)),
            };
            let text = format!(
                "{time}{threads} threads ended before their first sample; a thread that calls \
                 gekkota::register_thread is sampled from its beginning"
            );
            texts.push((ns, text));
        }
        let told_ns = self.unselected.1 + self.unsampled.1 + self.too_short.1;
        let rest_ns = missing_ns.saturating_sub(told_ns);
        if rest_ns > missing_ns / 2 {
            let why = match self.samples_unregistered {
                true => {
                    "threads that have ended before they were found, or destructors of threads \
                     that had unregistered"
                }
                false => {
                    "threads that have ended without having registered; each calls \
                     gekkota::register_thread when it begins, or omit the feature \
                     nounregisteredsampling"
                }
            };
            let filtered = match self.has_filters {
                true => "threads that the filters do not select and that have ended, ",
                false => "",
            };
            texts.push((
                rest_ns,
                format!("{:.2} s: {filtered}{why}", seconds(rest_ns)),
            ));
        }
        texts.sort_by_key(|(ns, _)| Reverse(*ns));
        let mut texts: Vec<String> = texts.into_iter().map(|(_, text)| text).collect();
        if self.missed_percent > 0 {
            texts.push(format!(
                "the sampler missed {} % of its ticks, because it got no processor; threads that \
                 ran only then have no samples",
                self.missed_percent
            ));
        }
        if self.without_clock > 0 {
            texts.push(format!(
                "the system does not tell the CPU time of {} threads, because of a sandbox for \
                 example",
                self.without_clock
            ));
        }
        if self.dropped_samples > 0 {
            texts.push(format!(
                "{} samples were dropped, because the buffer had no space or the system no memory",
                self.dropped_samples
            ));
        }
        texts.join("; ")
    }
}

/// Warns if samples of running threads have no stack, with the CPU time in ns and the threads' names for each
/// reason, the largest first. `sampled_ns` is the CPU time of all samples.
pub(crate) fn without_stacks(
    sampled_ns: u64,
    reasons: &BTreeMap<NoStack, (u64, Vec<String>)>,
) -> Option<Warning> {
    let all_ns: u64 = reasons.values().map(|(cpu_ns, _)| *cpu_ns).sum();
    if all_ns < MIN_WITHOUT_STACK_NS || all_ns < sampled_ns / 20 {
        return None;
    }
    let mut reasons: Vec<_> = reasons.iter().collect();
    reasons.sort_by_key(|(_, (cpu_ns, _))| Reverse(*cpu_ns));
    let texts = reasons.iter().map(|(reason, (cpu_ns, names))| {
        let (seconds, names) = (*cpu_ns as f64 / 1e9, some_of(names));
        let why = match reason {
            NoStack::Blocked(signal) => format!(
                "the threads {names} block {}; let them unblock it, or choose another signal with \
                 StartParams::signal",
                signal_name(*signal)
            ),
            NoStack::Replaced(signal) => format!(
                "another handler of {} replaced the profiler's while the threads {names} ran; \
                 choose another signal with StartParams::signal",
                signal_name(*signal)
            ),
            NoStack::NotInterruptible => format!(
                "the threads {names} cannot be interrupted; they are not the C library's, or the \
                 main thread, which has to call gekkota::profiler_init"
            ),
            NoStack::RanBetween => format!("no sample found the threads {names} running"),
        };
        format!("{seconds:.2} s: {why}")
    });
    let texts: Vec<String> = texts.collect();
    let share = all_ns as f64 / sampled_ns.max(1) as f64 * 100.0;
    Some(Warning::new(
        "no stacks",
        format!(
            "{share:.1}% of the CPU time has no stack: {}",
            texts.join("; ")
        ),
    ))
}

/// Warns that the session changed its sampling signal.
pub(crate) fn replaced_handler(signal: i32, signal_now: i32) -> Option<Warning> {
    (signal != signal_now).then(|| {
        let text = format!(
            "another handler of {} replaced the profiler's during the session, which went on with {}, \
             without events of the threads' CPU clocks; choose another signal with StartParams::signal",
            signal_name(signal),
            signal_name(signal_now)
        );
        Warning::new("signal", text)
    })
}

/// Warns if many ticks came late or not at all, and threads have no events of their CPU clocks.
pub(crate) fn late_signals(late: u64, ticks: u64, threads: &str) -> Option<Warning> {
    let percent = 100 * late / ticks.max(1);
    (ticks >= 10 && percent >= 5).then(|| Warning {
        is_about_load: true,
        ..Warning::new(
            "late ticks",
            format!(
                "{percent} % of the ticks came late, because the sampler waited for a processor, and \
                 {threads} threads have no events of their CPU clocks, because the system refuses \
                 perf_event_open, the sampling signal is not SIGURG, or too many threads work: \
                 shares of work that takes a few milliseconds or less may be wrong by up to {percent} \
                 points"
            ),
        )
    })
}

/// Warns if many ticks of the sampler were missed.
pub(crate) fn missed_ticks(missed: u64, wall_ns: u64, interval_ns: u64) -> Option<Warning> {
    let ticks = wall_ns.checked_div(interval_ns).unwrap_or(0);
    (ticks >= 10 && missed > ticks / 5).then(|| {
        Warning::new(
            MISSED_TICKS,
            format!(
                "{missed} of about {ticks} ticks were missed: the sampler got no processor, or a \
                 tick took longer than the interval; a longer interval, such as 10 ms, misses fewer"
            ),
        )
    })
}

/// Warns that the main thread's samples have no stacks while it runs.
pub(crate) fn unregistered_main_thread() -> Warning {
    Warning::new(
        MAIN_THREAD,
        "the main thread is not registered, so its samples have no stacks while it runs: create the \
         AutoProfilerInit, or call gekkota::profiler_init, at the beginning of main"
            .to_owned(),
    )
}

/// Warns of filters that have selected no thread. `threads` are the names of the threads that could
/// have been selected; an empty list says nothing about them.
pub(crate) fn unmatched_filters(filters: &[String], threads: &[String]) -> Option<Warning> {
    let now = match threads.is_empty() {
        true => "there are none now".to_owned(),
        false => format!("now there are: {}", some_of(threads)),
    };
    (!filters.is_empty()).then(|| {
        Warning::new(
            FILTERS,
            format!(
                "the filters {:?} selected no thread: expected parts of the names of threads; {now}",
                filters.join(",")
            ),
        )
    })
}

/// Warns of features that the caller asked for and this build or machine does not have.
pub(crate) fn unavailable_features(features: &[UnavailableFeature]) -> Option<Warning> {
    let names: Vec<&str> = features.iter().map(UnavailableFeature::name).collect();
    let reasons = features.iter();
    let reasons = reasons.map(|feature| format!("{}: {}", feature.name(), feature.reason));
    let reasons: Vec<String> = reasons.collect();
    (!features.is_empty()).then(|| {
        Warning::new(
            "features",
            format!(
                "the features {} record nothing here ({}); MOZ_PROFILER_HELP=1 lists those that are \
                 available",
                names.join(", "),
                reasons.join("; ")
            ),
        )
    })
}

/// What a profile lacks because there was too little memory.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct LackOfMemory {
    /// Most of the buffer's capacity that the limits of memory have withheld.
    pub(crate) withheld_bytes: u64,
    /// The oldest entries, which newer ones have replaced.
    pub(crate) recycled_bytes: u64,
    pub(crate) unrecorded_entries: u64,
    /// The oldest entries, left out of the file.
    pub(crate) left_out_bytes: u64,
    pub(crate) lacks_names: bool,
}

/// Warns of what a profile lacks because there was too little memory.
pub(crate) fn little_memory(lack: &LackOfMemory) -> Option<Warning> {
    let mib = |bytes: u64| format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20));
    let mut texts = Vec::new();
    if lack.withheld_bytes > 0 && lack.recycled_bytes > 0 {
        texts.push(format!(
            "the buffer had up to {} less than its capacity, so newer data replaced {} of the oldest",
            mib(lack.withheld_bytes),
            mib(lack.recycled_bytes)
        ));
    }
    if lack.unrecorded_entries > 0 {
        texts.push(format!(
            "{} entries were not recorded",
            lack.unrecorded_entries
        ));
    }
    if lack.left_out_bytes > 0 {
        texts.push(format!(
            "{} of the oldest data were left out of the profile",
            mib(lack.left_out_bytes)
        ));
    }
    if lack.lacks_names {
        texts.push("addresses have no names".to_owned());
    }
    (!texts.is_empty()).then(|| {
        Warning::new(
            "memory",
            format!(
                "the limits of a container, of the process or of the machine left too little \
                 memory: {}",
                texts.join("; ")
            ),
        )
    })
}

/// Warns that the program's own file has no function names.
pub(crate) fn stripped_program(path: &str) -> Warning {
    Warning::new(
        "stripped",
        format!(
            "the functions of {path} have no names, because the file is stripped: set `strip = \
             false` in the profile of Cargo.toml, and `debug = \"limited\"` for lines and inlined \
             functions"
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::features::Features;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn low_coverage_needs_a_fifth_of_the_time_and_more_than_what_is_sampled() {
        let warns =
            |sampled, process| low_coverage((sampled, process, 100), Uncovered::default).is_some();
        assert!(!warns(10, 30), "the sampler may have used it");
        assert!(warns(10, 31));
        assert!(!warns(40, 80), "more than half is sampled");
        assert!(warns(40, 81));
        let asked = || unreachable!("only asked for a warning");
        assert_eq!(low_coverage((0, 0, 100), asked), None);
    }

    #[test]
    fn low_coverage_tells_the_reasons_and_the_remedies() {
        const S: u64 = 1_000_000_000;
        let text = |reasons: Uncovered| {
            let warning = low_coverage((S, 9 * S, S), || reasons).expect("a warning");
            assert_eq!(warning.name, "coverage");
            warning.text
        };
        let unknown = text(Uncovered::default());
        let begin =
            "only 11.1% of the process's CPU time is in samples, and 8.00 s are not: 8.00 s: ";
        assert!(unknown.starts_with(begin), "{unknown}");
        assert!(unknown.contains("have ended") && unknown.contains("register_thread"));
        let sampled = |unsampled| Uncovered {
            unsampled,
            samples_unregistered: true,
            ..Uncovered::default()
        };
        assert!(text(sampled((Vec::new(), 0))).contains("before they were found"));
        assert!(!unknown.contains("filters"), "{unknown}");
        let filtered = text(Uncovered {
            has_filters: true,
            ..Uncovered::default()
        });
        let begin = "8.00 s: threads that the filters do not select and that have ended, threads";
        assert!(filtered.contains(begin), "{filtered}");
        let one = text(sampled((names(&["a"]), 20 * S)));
        assert!(
            one.contains("at most 8.00 s: the threads a have no samples"),
            "{one}"
        );
        let many: Vec<String> = (0..10).map(|number| format!("rayon-{number}")).collect();
        let all = text(Uncovered {
            unselected: (names(&["writer"]), S),
            unsampled: (many, 4 * S),
            has_filters: true,
            samples_unregistered: false,
            too_short: (5, 2 * S),
            missed_percent: 6,
            without_clock: 3,
            dropped_samples: 4,
        });
        let parts = [
            "at most 4.00 s: the threads rayon-0",
            "rayon-7 and 2 more are not registered",
            "omit the feature",
            "2.00 s: 5 threads ended before their first sample",
            "at most 1.00 s: the filters do not select the threads writer",
            "missed 6 % of its ticks",
            "CPU time of 3 threads",
            "4 samples were dropped",
        ];
        let places: Vec<_> = parts.iter().map(|part| all.find(part)).collect();
        assert!(
            places.is_sorted() && places[0].is_some(),
            "{places:?} in {all}"
        );
        assert!(!all.contains("have ended"), "{all}");
    }

    #[test]
    fn cpu_time_without_stack_is_told_by_reason_the_largest_first() {
        let warning = |blocked_ns| {
            const SIGURG: i32 = 23;
            let of = |cpu_ns, name: &str| (cpu_ns, names(&[name]));
            let reasons = BTreeMap::from([
                (NoStack::Blocked(SIGURG), of(blocked_ns, "rdk:main")),
                (NoStack::Replaced(SIGURG), of(2 * blocked_ns, "worker")),
            ]);
            without_stacks(10_000_000_000, &reasons).map(|warning| warning.text)
        };
        assert_eq!(warning(100_000_000), None, "less than a twentieth");
        let text = warning(500_000_000).expect("a warning");
        let expected = "15.0% of the CPU time has no stack: 1.00 s: another handler of SIGURG";
        assert!(text.starts_with(expected), "{text}");
        assert!(
            text.contains("; 0.50 s: the threads rdk:main block SIGURG; "),
            "{text}"
        );
        assert_eq!(without_stacks(10, &BTreeMap::new()), None);
    }

    #[test]
    fn late_ticks_warn_from_a_twentieth_on() {
        assert!(late_signals(4, 100, "2").is_none() && late_signals(1, 9, "2").is_none());
        let text = late_signals(23, 100, "2").expect("a warning").text;
        assert!(
            text.starts_with("23 %") && text.ends_with("by up to 23 points"),
            "{text}"
        );
    }

    #[test]
    fn missed_ticks_warn_from_a_fifth_on() {
        assert_eq!(missed_ticks(20, 100, 1), None);
        assert_eq!(missed_ticks(2, 9, 1), None, "too short");
        assert_eq!(missed_ticks(1, 100, 0), None);
        assert!(missed_ticks(21, 100, 1).is_some());
    }

    #[test]
    fn lack_of_memory_is_told_if_something_is_missing() {
        let withheld = LackOfMemory {
            withheld_bytes: 3 << 20,
            ..LackOfMemory::default()
        };
        assert_eq!(little_memory(&withheld), None, "nothing is missing");
        let all = LackOfMemory {
            recycled_bytes: 512 << 10,
            unrecorded_entries: 7,
            left_out_bytes: 1 << 20,
            lacks_names: true,
            ..withheld
        };
        let text = little_memory(&all).expect("a warning").text;
        let parts = "up to 3.0 MiB less than its capacity, so newer data replaced 0.5 MiB of the oldest; \
                     7 entries were not recorded; 1.0 MiB of the oldest data were left out of the \
                     profile; addresses have no names";
        assert!(text.ends_with(parts), "{text}");
    }

    #[test]
    fn lists_without_items_cause_no_warning() {
        assert_eq!(unmatched_filters(&[], &names(&["main"])), None);
        assert_eq!(unavailable_features(&[]), None);
        let filters = unmatched_filters(&names(&["a", "b"]), &[]).expect("a warning");
        assert!(filters.text.contains("\"a,b\"") && filters.text.contains("there are none"));
        let power = UnavailableFeature {
            feature: Features::POWER,
            reason: "cannot read x".to_owned(),
        };
        let java = UnavailableFeature::not_in_this_build(Features::JAVA);
        let features = unavailable_features(&[&[power], &java[..]].concat()).expect("a warning");
        let expected = "the features power, java record nothing here (power: cannot read x; java: \
                        this build of the profiler does not record it); ";
        assert!(features.text.starts_with(expected), "{}", features.text);
    }
}
