//! A profile with every kind of frame and marker, for the tests of the protobuf formats.

use crate::model::{
    Category, CategoryPair, Counter, CounterSample, FieldValue, Frame, FrameId, Function,
    FunctionKind, Marker, MarkerPayload, MarkerPhase, MarkerSchema, Markers, Module, ModuleId,
    NativeSymbol, Process, ProfileModel, Sample, Samples, StackId, Thread,
};

/// Interval of the sampler.
pub(crate) const INTERVAL_NS: u64 = 1_000_000;

/// Name of a function that pprof would cut at the first parenthesis.
pub(crate) const TUPLE_METHOD: &str = "<(app::A, app::B) as app::T>::f";

/// Returns a profile of two threads, `main` and `worker`, of the program `app`.
///
/// `main` has 3 samples in an inlined function below the label `Request`, the last 2 of them during
/// the marker `fetch`, and then 2 idle samples. `worker` has a sample in a script, one without a
/// stack, and one at an address without a name.
pub(crate) fn sample_profile() -> ProfileModel {
    let mut profile = ProfileModel::default();
    profile.meta.product = "app".into();
    profile.meta.start_epoch_ms = 1_700_000_000_000.0;
    profile.meta.interval_ns = INTERVAL_NS;
    profile.meta.session_ns = Some((0, 10 * INTERVAL_NS as i64));
    profile.meta.is_symbolicated = true;
    profile.meta.has_cpu_deltas = true;
    profile.categories = ["Other", "Idle"].map(category).into();
    profile.modules = vec![
        module("libc.so.6", 0x1000, 0),
        module("app", 0x40_0000, 0x100),
    ];
    profile.processes.push(Process {
        pid: "77".into(),
        name: "app".into(),
        ..Process::default()
    });
    profile.marker_schemas.push(MarkerSchema {
        name: "Http".into(),
        json: r#"{"name": "Http", "fields": [{"key": "flow", "format": "flow-id"}]}"#.into(),
    });
    let busy = busy_stack(&mut profile);
    let idle = {
        let mut frame = native(&mut profile, 0, "read", 0x30, 0, None);
        frame.category = Some(CategoryPair {
            category: 1,
            subcategory: 0,
        });
        stack(&mut profile, Some(busy.1), frame)
    };
    let script = script_stack(&mut profile);
    let unnamed = native(&mut profile, 0, "0x44", 0x44, 0, None);
    let unnamed = stack(&mut profile, None, unnamed);
    let busy = Some(busy.0);
    let main = samples(&[
        (busy, 900_000),
        (busy, 800_000),
        (busy, 700_000),
        (Some(idle), 0),
        (Some(idle), 0),
    ]);
    let worker = samples(&[(Some(script), 5), (None, 6), (Some(unnamed), 7)]);
    let markers = markers(&mut profile, busy);
    profile.threads.push(thread("main", "77", main, markers));
    profile
        .threads
        .push(thread("worker", "78", worker, Markers::default()));
    let value = |time_ns, delta| CounterSample {
        time_ns,
        delta,
        operations: None,
    };
    profile.counters.push(Counter {
        process: 0,
        name: "heap".into(),
        category: "Memory".into(),
        description: "Memory of the heap".into(),
        graph: None,
        samples: vec![value(1_000, 100.0), value(2_000, -40.0)],
    });
    profile
}

fn category(name: &str) -> Category {
    Category {
        name: name.into(),
        color: "grey".into(),
        subcategories: vec!["Other".into()],
    }
}

fn module(name: &str, start: u64, offset: u64) -> Module {
    Module {
        process: 0,
        start,
        end: start + 0x1000,
        offset,
        name: name.into(),
        path: format!("/bin/{name}"),
        debug_name: name.into(),
        debug_path: String::new(),
        breakpad_id: String::new(),
        code_id: Some(format!("0a{:02x}", start >> 12 & 0xff)),
        arch: None,
    }
}

fn native(
    profile: &mut ProfileModel,
    module: u32,
    name: &str,
    address: u64,
    inline_depth: u16,
    line: Option<u32>,
) -> Frame {
    let name = profile.intern(name);
    let file = line.map(|_| profile.intern("src/app.rs"));
    let function = profile.intern_function(Function {
        module: Some(ModuleId(module)),
        file,
        ..Function::new(name, FunctionKind::Native)
    });
    Frame {
        address: Some(address),
        inline_depth,
        line,
        ..Frame::new(function)
    }
}

fn stack(profile: &mut ProfileModel, prefix: Option<StackId>, frame: Frame) -> StackId {
    let frame: FrameId = profile.intern_frame(&frame);
    profile.append_frame(prefix, frame)
}

fn other(profile: &mut ProfileModel, kind: FunctionKind, name: &str) -> Frame {
    let name = profile.intern(name);
    Frame::new(profile.intern_function(Function::new(name, kind)))
}

/// Returns the stack of a busy sample, and that of its outermost function.
fn busy_stack(profile: &mut ProfileModel) -> (StackId, StackId) {
    let root = other(profile, FunctionKind::Structure, "(root)");
    let root = stack(profile, None, root);
    let name = profile.intern("_ZN3app4mainE");
    profile.native_symbols.push(NativeSymbol {
        module: ModuleId(1),
        address: 0x110,
        size: None,
        name,
    });
    let main = Frame {
        native_symbol: Some(0),
        ..native(profile, 1, "app::main", 0x118, 0, Some(3))
    };
    let main = stack(profile, Some(root), main);
    let label = other(profile, FunctionKind::Label, "Request");
    let label = stack(profile, Some(main), label);
    let label_inside = other(profile, FunctionKind::Label, "Parse");
    let label_inside = stack(profile, Some(label), label_inside);
    let outer = native(profile, 1, TUPLE_METHOD, 0x120, 0, Some(7));
    let outer = stack(profile, Some(label_inside), outer);
    let inner = native(profile, 1, "app::inner", 0x120, 1, Some(9));
    (stack(profile, Some(outer), inner), main)
}

fn script_stack(profile: &mut ProfileModel) -> StackId {
    let name = profile.intern("tick");
    let file = profile.intern("game.lua");
    let function = profile.intern_function(Function {
        file: Some(file),
        line: Some(3),
        ..Function::new(name, FunctionKind::Script)
    });
    let frame = Frame {
        line: Some(5),
        ..Frame::new(function)
    };
    stack(profile, None, frame)
}

/// Returns samples at intervals, with these stacks and CPU times.
fn samples(rows: &[(Option<StackId>, u64)]) -> Samples {
    let mut samples = Samples::default();
    for (index, (stack, cpu_ns)) in rows.iter().enumerate() {
        samples.push(Sample {
            stack: *stack,
            time_ns: (index as u64 * INTERVAL_NS) as i64,
            cpu_delta_ns: Some(*cpu_ns),
            event_delay_ns: None,
            weight: 1,
        });
    }
    samples
}

fn thread(name: &str, tid: &str, samples: Samples, markers: Markers) -> Thread {
    Thread {
        process: 0,
        name: name.into(),
        tid: tid.into(),
        is_main: name == "main",
        registered_ns: None,
        unregistered_ns: None,
        asleep_at: None,
        samples,
        markers,
    }
}

/// Returns an interval with fields and a stack, an interval that overlaps it, a pair of a beginning
/// and an end within the first one, and an instant.
fn markers(profile: &mut ProfileModel, cause: Option<StackId>) -> Markers {
    let texts = [
        "fetch", "Http", "url", "/index", "flow", "0xf", "size", "overlap", "tick", "step",
    ];
    let [
        fetch,
        http,
        url,
        index,
        flow,
        flow_id,
        size,
        overlap,
        tick,
        step,
    ] = texts.map(|text| profile.intern(text));
    let fields = [
        (url, FieldValue::Text(index)),
        (flow, FieldValue::UniqueText(flow_id)),
        (size, FieldValue::Integer(-4)),
    ];
    let marker = |name, phase, start_ns: Option<i64>, end_ns: Option<i64>| Marker {
        name,
        phase,
        start_ns,
        end_ns,
        category: 0,
        payload: None,
    };
    let fetch = Marker {
        payload: Some(MarkerPayload {
            type_name: http,
            fields: &fields,
            stack: cause.map(|cause| (cause, 400_000)),
        }),
        ..marker(fetch, MarkerPhase::Interval, Some(500_000), Some(2_500_000))
    };
    let mut markers = Markers::default();
    for marker in [
        fetch,
        marker(
            overlap,
            MarkerPhase::Interval,
            Some(2_200_000),
            Some(2_900_000),
        ),
        marker(step, MarkerPhase::IntervalStart, Some(1_200_000), None),
        marker(step, MarkerPhase::IntervalEnd, None, Some(1_300_000)),
        marker(tick, MarkerPhase::Instant, Some(-5_000), None),
    ] {
        markers.push(marker);
    }
    markers
}
