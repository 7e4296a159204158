//! A profile for the tests of Chrome's formats.

use crate::export::write::formats::v8_profile::{Activity, Ticks};
use crate::model::{
    Category, CategoryPair, Counter, CounterSample, FieldValue, Frame, Function, FunctionKind,
    Marker, MarkerPayload, MarkerPhase, MarkerSchema, Markers, Process, ProfileModel, Sample,
    Samples, StackId, Thread,
};

/// A profile of one thread, without samples and markers.
pub(crate) fn empty_profile() -> ProfileModel {
    let mut profile = ProfileModel::default();
    profile.meta.product = "sample".to_owned();
    profile.meta.interval_ns = 1_000_000;
    for name in ["Other", "Idle"] {
        profile.categories.push(Category {
            name: name.to_owned(),
            color: "grey".to_owned(),
            subcategories: vec!["Other".to_owned()],
        });
    }
    profile.processes.push(Process {
        pid: "100".to_owned(),
        ..Process::default()
    });
    profile.threads.push(Thread {
        process: 0,
        name: "main".to_owned(),
        tid: "100".to_owned(),
        is_main: true,
        registered_ns: None,
        unregistered_ns: None,
        asleep_at: None,
        samples: Samples::default(),
        markers: Markers::default(),
    });
    profile
}

/// Returns the stack of these functions, the outermost first. A function `name@line` is defined in
/// a file, at this line, and runs two lines below. `wait` is idle.
pub(crate) fn stack(profile: &mut ProfileModel, path: &[&str]) -> StackId {
    let root = Function::new(profile.intern("(root)"), FunctionKind::Structure);
    let root = profile.intern_function(root);
    let root = profile.intern_frame(&Frame::new(root));
    let mut stack = profile.append_frame(None, root);
    for part in path {
        let (name, line) = part.split_once('@').unwrap_or((part, ""));
        let line: Option<u32> = line.parse().ok();
        let function = Function {
            file: line.map(|_| profile.intern("/src/main.rs")),
            line,
            column: line.map(|_| 4),
            ..Function::new(profile.intern(name), FunctionKind::Native)
        };
        let frame = Frame {
            line: line.map(|line| line + 2),
            category: Some(CategoryPair {
                category: u16::from(name == "wait"),
                subcategory: 0,
            }),
            ..Frame::new(profile.intern_function(function))
        };
        let frame = profile.intern_frame(&frame);
        stack = profile.append_frame(Some(stack), frame);
    }
    stack
}

/// Adds a sample of the first thread.
pub(crate) fn push_sample(profile: &mut ProfileModel, time_ns: i64, path: Option<&[&str]>) {
    let stack = path.map(|path| stack(profile, path));
    profile.threads[0].samples.push(Sample {
        stack,
        time_ns,
        cpu_delta_ns: None,
        event_delay_ns: None,
        weight: 1,
    });
}

/// Adds a marker of the first thread, with these texts as fields.
pub(crate) fn push_marker(
    profile: &mut ProfileModel,
    name: &str,
    phase: MarkerPhase,
    (start_ns, end_ns): (Option<i64>, Option<i64>),
    fields: &[(&str, &str)],
) {
    let fields: Vec<_> = fields
        .iter()
        .map(|(key, text)| {
            let text = profile.intern(text);
            (profile.intern(key), FieldValue::UniqueText(text))
        })
        .collect();
    let (name, type_name) = (profile.intern(name), profile.intern("Request"));
    profile.threads[0].markers.push(Marker {
        name,
        phase,
        start_ns,
        end_ns,
        category: 0,
        payload: Some(MarkerPayload {
            type_name,
            fields: &fields,
            stack: None,
        }),
    });
}

/// Adds an interval of the first thread.
pub(crate) fn push_interval(profile: &mut ProfileModel, name: &str, start_ns: i64, end_ns: i64) {
    let times = (Some(start_ns), Some(end_ns));
    push_marker(profile, name, MarkerPhase::Interval, times, &[]);
}

/// Numbers that look random, but are always the same.
pub(crate) struct Numbers(pub(crate) u64);

impl Numbers {
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.0 >> 33) % bound
    }
}

/// A profile with `count` samples about every ms, of which some are idle or lack a stack, with
/// markers of all kinds, flows and a counter.
pub(crate) fn busy_profile(count: u32) -> ProfileModel {
    const PATHS: [&[&str]; 7] = [
        &["main@1", "work@10", "parse@20"],
        &["main@1", "work@10", "parse@20", "memcpy"],
        &["main@1", "work@10", "work@10"],
        &["main@1", "render@40"],
        &["main@1", "poll@50", "wait"],
        &["main@1"],
        &["start", "memcpy"],
    ];
    let mut profile = empty_profile();
    let mut numbers = Numbers(1);
    let (mut time_ns, mut path) = (0, 0);
    for _ in 0..count {
        if numbers.below(3) == 0 {
            path = numbers.below(PATHS.len() as u64) as usize;
        }
        let known = (numbers.below(20) > 0).then_some(PATHS[path]);
        push_sample(&mut profile, time_ns, known);
        time_ns += 900_000 + numbers.below(200_000) as i64;
    }
    let json = r#"{"name": "Request", "data": [{"key": "flow", "format": "flow-id"}]}"#;
    profile.marker_schemas.push(MarkerSchema {
        name: "Request".to_owned(),
        json: json.to_owned(),
    });
    let names = ["Task", "FunctionCall", "query", "query", "FunctionCall"];
    for index in 0..u64::from(count) / 4 {
        let start = numbers.below(time_ns.max(1) as u64) as i64;
        let end = start + numbers.below(20_000_000) as i64;
        push_interval(
            &mut profile,
            names[index as usize % names.len()],
            start,
            end,
        );
        let flow = [("flow", ["0x1", "0x2", "0x3"][index as usize / 3 % 3])];
        let (phase, times) = match index % 3 {
            0 => (MarkerPhase::Instant, (Some(start), None)),
            1 => (MarkerPhase::IntervalStart, (Some(start), None)),
            _ => (MarkerPhase::IntervalEnd, (None, Some(end))),
        };
        push_marker(&mut profile, "message", phase, times, &flow);
    }
    let value = |index: i64| CounterSample {
        time_ns: index * 1_000_000,
        delta: 16.0,
        operations: None,
    };
    profile.counters.push(Counter {
        name: "malloc".to_owned(),
        category: "Memory".to_owned(),
        samples: (0..i64::from(count.min(100))).map(value).collect(),
        ..Counter::default()
    });
    profile
}

/// Counts how many ticks of the first thread show each function innermost, and anywhere. A tick
/// that shows none counts for `(idle)` or `(program)`.
pub(crate) fn self_and_total(
    profile: &ProfileModel,
) -> std::collections::BTreeMap<String, (u64, u64)> {
    let mut counts = std::collections::BTreeMap::<String, (u64, u64)>::new();
    for tick in Ticks::new(profile, &profile.threads[0], &Default::default()) {
        let names: Vec<String> = match tick.activity {
            Activity::Idle => vec!["(idle)".to_owned()],
            Activity::Unknown => vec!["(program)".to_owned()],
            Activity::Ran(stack) => {
                let frames = profile.stack_frames(Some(stack));
                let name = |frame| profile.function_name(profile.frame(frame).function);
                frames.map(|frame| name(frame).to_owned()).collect()
            }
        };
        counts.entry(names[0].clone()).or_default().0 += 1;
        let all: std::collections::BTreeSet<_> = names.into_iter().collect();
        for name in all.into_iter().filter(|name| name != "(root)") {
            counts.entry(name).or_default().1 += 1;
        }
    }
    counts
}
