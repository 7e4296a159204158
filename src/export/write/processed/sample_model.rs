//! A profile with everything that the format has.

use crate::model::{
    Category, CategoryPair, Counter, CounterSample, FieldValue, Frame, Function, FunctionKind,
    Marker, MarkerPayload, MarkerPhase, MarkerSchema, Markers, Meta, Module, ModuleId,
    NativeSymbol, PausedRange, Process, ProfileModel, Sample, Samples, SourceText, StackId, TextId,
    Thread,
};

const MS: i64 = 1_000_000;

pub(crate) const IDLE: CategoryPair = pair(0, 0);
pub(crate) const WORK: CategoryPair = pair(1, 1);
pub(crate) const SCRIPT: CategoryPair = pair(2, 0);

const fn pair(category: u16, subcategory: u16) -> CategoryPair {
    CategoryPair {
        category,
        subcategory,
    }
}

/// The stacks of the sample profile.
pub(crate) struct Stacks {
    pub(crate) root: StackId,
    /// `(root)`, the thread's start, and the run loop.
    pub(crate) run_loop: StackId,
    /// `main`, called by the run loop.
    pub(crate) main: StackId,
    /// `parse`, inlined into `main`.
    pub(crate) parse: StackId,
    pub(crate) label: StackId,
    pub(crate) script: StackId,
    /// A frame of another library, which only the second process has.
    pub(crate) other: StackId,
}

fn module(process: usize, name: &str, start: u64) -> Module {
    Module {
        process,
        start,
        end: start + 0x1000,
        offset: 0,
        name: name.to_owned(),
        path: format!("/lib/{name}"),
        debug_name: name.to_owned(),
        debug_path: format!("/lib/{name}"),
        breakpad_id: "0123456789ABCDEF0123456789ABCDEF0".to_owned(),
        code_id: Some("67452301ab89efcd0123456789abcdef".to_owned()),
        arch: Some("x86_64".to_owned()),
    }
}

fn category(name: &str, color: &str, subcategories: &[&str]) -> Category {
    Category {
        name: name.to_owned(),
        color: color.to_owned(),
        subcategories: subcategories
            .iter()
            .map(|name| (*name).to_owned())
            .collect(),
    }
}

fn add_stacks(profile: &mut ProfileModel) -> Stacks {
    let mut function = |name: &str, kind, file: Option<&str>, line, module| {
        let function = Function {
            module,
            file: file.map(|file| profile.intern(file)),
            line,
            column: (kind == FunctionKind::Script).then_some(5),
            is_relevant_for_js: kind == FunctionKind::Label,
            ..Function::new(profile.intern(name), kind)
        };
        profile.intern_function(function)
    };
    let (demo, libc) = (Some(ModuleId(0)), Some(ModuleId(1)));
    let native = FunctionKind::Native;
    let root = function("(root)", FunctionKind::Structure, None, None, None);
    let run_loop = "std::sys::backtrace::__rust_begin_short_backtrace::<f, ()>";
    let run_loop = function(run_loop, native, None, None, demo);
    let start = function("start_thread", native, None, None, libc);
    let main = function("demo::main", native, Some("/src/main.rs"), Some(10), demo);
    let parse = function("demo::parse", native, Some("/src/parse.rs"), None, demo);
    let label = function("request", FunctionKind::Label, None, None, None);
    let url = "https://rules.example:8080/judge.js";
    let script = function("judge", FunctionKind::Script, Some(url), Some(3), None);
    let other = function("read", native, None, None, Some(ModuleId(2)));
    let engine = profile.intern("jit");
    let symbol = NativeSymbol {
        module: ModuleId(0),
        address: 0x100,
        size: Some(0x80),
        name: profile.intern("demo::main"),
    };
    profile.native_symbols.push(symbol);
    let at_main = Frame {
        address: Some(0x123),
        native_symbol: Some(0),
        line: Some(12),
        column: Some(7),
        category: Some(WORK),
        ..Frame::new(main)
    };
    let mut stack = |prefix, frame: Frame| {
        let frame = profile.intern_frame(&frame);
        profile.append_frame(prefix, frame)
    };
    let root = stack(None, Frame::new(root));
    let start = Frame {
        address: Some(0x40),
        ..Frame::new(start)
    };
    let start = stack(Some(root), start);
    let run_loop = Frame {
        address: Some(0x50),
        ..Frame::new(run_loop)
    };
    let run_loop = stack(Some(start), run_loop);
    let inlined = Frame {
        function: parse,
        inline_depth: 1,
        line: Some(2),
        ..at_main.clone()
    };
    let main = stack(Some(run_loop), at_main);
    let parse = stack(Some(main), inlined);
    let label = Frame {
        category: Some(IDLE),
        ..Frame::new(label)
    };
    let label = stack(Some(main), label);
    let script = Frame {
        category: Some(SCRIPT),
        implementation: Some(engine),
        line: Some(4),
        inner_window_id: 9,
        ..Frame::new(script)
    };
    let script = stack(Some(label), script);
    let other = Frame {
        address: Some(0x7),
        ..Frame::new(other)
    };
    let other = stack(Some(root), other);
    Stacks {
        root,
        run_loop,
        main,
        parse,
        label,
        script,
        other,
    }
}

/// A marker that a test adds.
struct NewMarker<'a> {
    phase: MarkerPhase,
    /// Start and end, in ms.
    times: (Option<i64>, Option<i64>),
    type_name: &'a str,
    fields: &'a [(&'a str, FieldValue)],
    stack: Option<StackId>,
}

impl NewMarker<'_> {
    fn add(&self, profile: &mut ProfileModel, markers: &mut Markers) {
        let fields = self.fields.iter();
        let fields = fields.map(|(key, value)| (profile.intern(key), *value));
        let fields: Vec<(TextId, FieldValue)> = fields.collect();
        let (start, end) = self.times;
        markers.push(Marker {
            name: profile.intern("a marker"),
            phase: self.phase,
            start_ns: start.map(|ms| ms * MS),
            end_ns: end.map(|ms| ms * MS),
            // A marker without a payload gets a category that does not exist.
            category: if self.type_name.is_empty() { 99 } else { 1 },
            payload: (!self.type_name.is_empty()).then(|| MarkerPayload {
                type_name: profile.intern(self.type_name),
                fields: &fields,
                stack: self.stack.map(|stack| (stack, MS)),
            }),
        });
    }
}

/// Returns markers that are not in the order of their times.
fn markers(profile: &mut ProfileModel, stacks: &Stacks) -> Markers {
    let mut markers = Markers::default();
    let plain = NewMarker {
        phase: MarkerPhase::Instant,
        times: (Some(1), None),
        type_name: "",
        fields: &[],
        stack: None,
    };
    let all = [
        NewMarker {
            phase: MarkerPhase::IntervalEnd,
            times: (None, Some(9)),
            ..plain
        },
        NewMarker {
            phase: MarkerPhase::IntervalStart,
            times: (Some(3), None),
            ..plain
        },
        NewMarker {
            type_name: "JS allocation",
            fields: &[
                ("className", FieldValue::Text(profile.intern("Map"))),
                ("size", FieldValue::Integer(24)),
            ],
            ..plain
        },
        NewMarker {
            type_name: "Native allocation",
            fields: &[
                ("size", FieldValue::Integer(-64)),
                ("memoryAddress", FieldValue::Integer(4096)),
                ("threadId", FieldValue::Integer(1000)),
            ],
            stack: Some(stacks.parse),
            ..plain
        },
        NewMarker {
            phase: MarkerPhase::Interval,
            times: (Some(4), Some(5)),
            type_name: "Request",
            fields: &[
                (
                    "url",
                    FieldValue::UniqueText(profile.intern("/only/in/the/marker")),
                ),
                ("share", FieldValue::Number(0.5)),
                ("ok", FieldValue::Bool(true)),
                ("note", FieldValue::Text(profile.intern("a \"note\""))),
                ("list", FieldValue::Json(profile.intern("[1,2]"))),
                ("nothing", FieldValue::Null),
                ("innerWindowID", FieldValue::Integer(12)),
            ],
            stack: Some(stacks.main),
        },
        NewMarker {
            times: (Some(6), None),
            type_name: "GCSlice",
            fields: &[(
                "timings",
                FieldValue::Json(profile.intern(r#"{"slice":1,"times":{"mark":2.5}}"#)),
            )],
            ..plain
        },
    ];
    all.iter()
        .for_each(|marker| marker.add(profile, &mut markers));
    markers
}

fn samples(stacks: &[Option<StackId>], start_ns: i64) -> Samples {
    let mut samples = Samples::default();
    for (index, stack) in (0_i64..).zip(stacks) {
        samples.push(Sample {
            stack: *stack,
            time_ns: start_ns + index * MS,
            cpu_delta_ns: (index > 0).then_some(250_000 * index.unsigned_abs()),
            event_delay_ns: None,
            weight: 1,
        });
    }
    samples
}

fn counter(name: &str, category: &str, operations: Option<u64>) -> Counter {
    let sample = |ms, delta| CounterSample {
        time_ns: ms * MS,
        delta,
        operations,
    };
    Counter {
        process: 0,
        name: name.to_owned(),
        category: category.to_owned(),
        description: format!("about {name}"),
        graph: None,
        samples: vec![sample(1, 4096.0), sample(2, -96.5)],
    }
}

pub(crate) fn sample_profile() -> (ProfileModel, Stacks) {
    let mut profile = ProfileModel::default();
    profile.meta = Meta {
        product: "demo".to_owned(),
        start_epoch_ms: 1_700_000_000_000.5,
        interval_ns: 1_000_000,
        session_ns: Some((0, 10 * MS)),
        is_symbolicated: true,
        has_cpu_deltas: true,
        other: [
            ("platform", r#""Linux""#),
            ("debug", "1"),
            ("shutdownTime", "null"),
            (
                "extensions",
                r#"{"schema":{"id":0,"name":1,"baseURL":2},"data":[["i","n","https://b.example/"]]}"#,
            ),
        ]
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .into(),
    };
    profile.categories = vec![
        category("Idle", "transparent", &["Other"]),
        category("Work", "blue", &["Other", "Parsing"]),
        category("JavaScript", "yellow", &["Other", "interpreter"]),
    ];
    profile.marker_schemas = vec![MarkerSchema {
        name: "Request".to_owned(),
        json: r#"{"name":"Request","display":["marker-chart","timeline-overview"],"data":[
            {"key":"url","format":"unique-string"},{"key":"share","format":"percentage"},
            {"label":"Marker","value":"unused"},{"label":"Description","value":"A request."}]}"#
            .to_owned(),
    }];
    profile.modules = vec![
        module(0, "demo", 0x1000),
        module(0, "libc.so.6", 0x4000),
        module(1, "libc.so.6", 0x8000),
    ];
    profile.processes = vec![
        Process {
            pid: "1000".to_owned(),
            name: "demo".to_owned(),
            kind: "default".to_owned(),
            started_ns: Some(0),
            paused_ranges: vec![PausedRange {
                start_ns: Some(MS),
                end_ns: Some(2 * MS),
                reason: "profiler-paused".into(),
            }],
            pages: "[]".to_owned(),
            log: r#"{"1000":{"samplerNice":0}}"#.to_owned(),
            ..Process::default()
        },
        Process {
            pid: "1001".to_owned(),
            name: "helper".to_owned(),
            started_ns: Some(-2 * MS),
            ended_ns: Some(8 * MS),
            pages: r#"[{"tabID":1,"innerWindowID":9,"url":"about:x","embedderInnerWindowID":0}]"#
                .to_owned(),
            log: r#"{"1001":{}}"#.to_owned(),
            ..Process::default()
        },
    ];
    let stacks = add_stacks(&mut profile);
    let file = profile.intern("/src/parse.rs");
    let text = SourceText("fn parse() {\n    read();\n}\n".to_owned());
    profile.sources.insert(file, text);
    let markers = markers(&mut profile, &stacks);
    let thread = |process, name: &str, tid: &str, samples, markers| Thread {
        process,
        name: name.to_owned(),
        tid: tid.to_owned(),
        is_main: name != "worker",
        registered_ns: None,
        unregistered_ns: None,
        asleep_at: None,
        samples,
        markers,
    };
    let main = [stacks.main, stacks.parse, stacks.parse, stacks.script].map(Some);
    let worker = [Some(stacks.run_loop), None, Some(stacks.label)];
    let helper = [Some(stacks.other), Some(stacks.root)];
    profile.threads = vec![
        thread(
            0,
            "GeckoMain",
            "1000",
            samples(&main, 0),
            Markers::default(),
        ),
        thread(0, "worker", "1002", samples(&worker, 500), markers),
        thread(
            1,
            "helper",
            "1001-1",
            samples(&helper, -MS - 5),
            Markers::default(),
        ),
    ];
    profile.counters = vec![
        counter("processCPU", "CPU", None),
        counter("malloc", "Memory", Some(2)),
        counter("queue", "demo", None),
    ];
    (profile, stacks)
}
