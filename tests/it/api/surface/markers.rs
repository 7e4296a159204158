//! Every form of markers.

use std::cell::Cell;
use std::time::Duration;

use gekkota::gecko_profiler::{
    AutoProfilerTracingMarker, auto_profiler_marker_tracing, can_accept_markers,
    current_thread_is_being_profiled_for_markers, is_active, is_active_and_unpaused,
};
use gekkota::marker::built_in::{CowString, FlowStackMarker, StackMarker, Tracing};
use gekkota::marker::{
    AutoProfilerFlowMarker, MarkerBacktrace, add_text_marker_fmt, auto_profiler_flow_marker,
    built_in as types, lazy_add_text_marker, lazy_add_untyped_marker, profiler_marker_flow_only,
};
use gekkota::process::ProcessId;
use gekkota::schema::{
    Format, GraphColor, GraphType, JSONWriter, Location, MarkerField, MarkerSchema, PayloadFlags,
    Searchable,
};
use gekkota::stack::profiler_capture_backtrace;
use gekkota::thread::{ThreadId, profiler_current_thread_id};
use gekkota::{
    AutoProfilerMarker, Features, FlowId, MarkerOptions, MarkerStack, MarkerTiming as Timing,
    ProfilerMarker, ProfilerTime, ProfilingCategoryPair, add_marker, auto_profiler_marker,
    auto_profiler_marker_text, gecko_profiler_category, lazy_add_marker, marker,
    profiler_feature_active, profiler_is_active, profiler_is_active_and_unpaused,
};

const OTHER: ProfilingCategoryPair = ProfilingCategoryPair::Other(None);

/// A field of an application's type.
#[cfg_attr(
    feature = "serde",
    derive(gekkota::schema::Serialize, gekkota::schema::Deserialize)
)]
struct Celsius(f64);

impl MarkerField for Celsius {
    fn write_field(&self, json: &mut JSONWriter<'_>, key: &str, format: Format) {
        self.0.write_field(json, key, format);
    }

    fn write_element(&self, json: &mut JSONWriter<'_>) {
        self.0.write_element(json);
    }
}

gekkota::marker_type! {
    /// A marker type with every option.
    struct Reading {
        degrees: Celsius => "Degrees", Decimal;
        sensors: Vec<u32> => "Sensors", List;
        took: Duration => "Took", Duration;
        note: Option<String> => hidden, String;
    }
    name = "reading";
    places = [MarkerChart, MarkerTable];
    label = "{marker.name}";
    chart_label = "{marker.data.degrees}";
    table_label = "{marker.data.degrees}";
    tooltip_label = "{marker.name}";
    description = "Readings of a sensor";
    color_field = "note";
    stack_based = true;
    graph = (degrees, Line, Red);
}

/// A marker type with a hand-written implementation.
#[cfg_attr(
    feature = "serde",
    derive(gekkota::schema::Serialize, gekkota::schema::Deserialize)
)]
struct ByHand(u64);

impl ProfilerMarker for ByHand {
    fn marker_type_name() -> &'static str {
        "by hand"
    }

    fn marker_type_display() -> MarkerSchema {
        let mut schema = MarkerSchema::new(&[Location::MarkerTable]);
        schema
            .set_all_labels("{marker.name}")
            .set_chart_label("chart")
            .set_table_label("table")
            .set_tooltip_label("tooltip")
            .set_stack_based()
            .set_color_field("color")
            .add_key_format("number", Format::Integer)
            .add_key_label_format("flow", "Flow", Format::Flow)
            .add_key_format_searchable("time", Format::Time, Searchable::Searchable)
            .add_key_label_format_searchable(
                "text",
                "Text",
                Format::UniqueString,
                Searchable::NotSearchable,
            )
            .add_key_format_with_flags("color", Format::String, PayloadFlags::Hidden)
            .add_key_label_format_with_flags("part", "Part", Format::Percentage, PayloadFlags::None)
            .add_key_label_table(
                "rows",
                "Rows",
                &[("Name", None), ("Size", Some(Format::Bytes))],
            )
            .add_static_label_value("Description", "written by hand")
            .add_chart("number", GraphType::Bar)
            .add_chart_color("part", GraphType::LineFilled, GraphColor::Teal);
        schema
    }

    fn stream_json_marker_data(&self, json: &mut JSONWriter<'_>) {
        json.uint_property("number", self.0);
        json.int_property("negative", -1);
        json.flow_property("flow", FlowId::from(self.0));
        json.time_property("time", ProfilerTime::now());
        json.unique_string_property("text", "once");
        json.string_property("color", "green");
        json.float_property("part", 0.5);
        json.bool_property("is_set", true);
        json.null_property("nothing");
        json.start_array_property("rows");
        json.start_array_element();
        json.string_element("name");
        json.uint_element(7);
        json.end_array();
        json.end_array();
        json.start_object_property("object");
        json.start_array_property("all");
        json.int_element(-1);
        json.float_element(0.5);
        json.bool_element(false);
        json.unique_string_element("once");
        json.time_element(ProfilerTime::now());
        json.null_element();
        json.start_object_element();
        json.end_object();
        json.end_array();
        json.end_object();
    }
}

/// Returns whether the thread's markers are recorded, according to every function that reports it.
fn records() -> bool {
    let records = current_thread_is_being_profiled_for_markers();
    assert_eq!(can_accept_markers(), records);
    assert_eq!(
        (is_active(), is_active_and_unpaused()),
        (profiler_is_active(), profiler_is_active_and_unpaused())
    );
    assert_eq!(
        records,
        is_active(),
        "every session of the test profiles the thread"
    );
    records
}

fn lazily(records: bool) {
    let evaluated = Cell::new(0);
    let once = |number: u64| {
        evaluated.set(evaluated.get() + 1);
        number
    };
    let options = MarkerOptions::default();
    lazy_add_marker!("lazy", OTHER, options, ByHand(once(1)));
    lazy_add_marker!("lazy", OTHER, ByHand(once(2)));
    lazy_add_marker!("lazy", ByHand(once(3)));
    lazy_add_text_marker!("lazy", OTHER, options, &once(4).to_string());
    lazy_add_untyped_marker!(&once(5).to_string(), OTHER, options);
    add_text_marker_fmt!("lazy", OTHER, options, "{}", once(6));
    marker!(&once(7).to_string());
    marker!("lazy", once(8));
    marker!(
        &once(9).to_string(),
        "{} of {all}",
        once(10),
        all = once(11)
    );
    marker!("lazy fields", number = once(12), text = "text");
    assert_eq!(evaluated.take(), if records { 12 } else { 0 });
    assert!(!profiler_feature_active(Features::FLOWS));
    profiler_marker_flow_only!(
        "flow",
        OTHER,
        options,
        types::FlowMarker {
            flow: FlowId::from(once(13))
        }
    );
    assert_eq!(evaluated.get(), 0, "evaluated without the feature");
}

fn options() {
    let stack = profiler_capture_backtrace();
    assert_eq!(stack.is_some(), cfg!(has_profiler));
    let backtrace: Option<MarkerBacktrace> = stack.as_ref().map(MarkerBacktrace::from);
    let stacks = [
        MarkerStack::NoStack,
        MarkerStack::Full,
        MarkerStack::NonNative,
        MarkerStack::maybe_capture(true),
        backtrace.map_or(MarkerStack::default(), MarkerStack::Backtrace),
        stack
            .as_ref()
            .map_or(MarkerStack::NoStack, MarkerStack::from),
    ];
    let now = ProfilerTime::now();
    let timings = [
        Timing::default(),
        Timing::instant_at(now),
        Timing::interval(now, now.add_microseconds(1.0)),
        Timing::interval_start(now),
        Timing::interval_end(now),
    ];
    for (stack, timing) in stacks
        .into_iter()
        .flat_map(|stack| timings.map(|timing| (stack, timing)))
    {
        let options = MarkerOptions::from(timing).with_stack(stack);
        let options = options
            .with_thread_id(profiler_current_thread_id())
            .with_inner_window_id(3);
        assert_eq!(
            (options.stack, options == MarkerOptions::default()),
            (stack, false)
        );
        add_marker("with options", OTHER, options, StackMarker());
    }
    assert_eq!(
        MarkerOptions::from(MarkerStack::Full).stack,
        MarkerStack::Full
    );
}

fn scopes(records: bool) {
    let category = super::labels::Surface::Deep;
    let options = MarkerOptions::default();
    let flow = FlowStackMarker::from_pointer(&raw const category);
    auto_profiler_marker!("scope", category, options);
    auto_profiler_marker_tracing!("scope", category, options, "word".into());
    auto_profiler_flow_marker!("scope", category, options, flow);
    auto_profiler_marker!("scope", category);
    auto_profiler_marker!("scope");
    auto_profiler_marker_text!("scope", category, "text");
    auto_profiler_marker_text!("scope", "text");
    let plain = AutoProfilerMarker::new("scope", category, options);
    let tracing =
        AutoProfilerTracingMarker::new("scope", category, options, CowString::from("word"));
    let flow_guard = AutoProfilerFlowMarker::new("scope", category, options, flow);
    assert_eq!(
        (plain.is_some(), tracing.is_some(), flow_guard.is_some()),
        (records, records, records)
    );
}

fn flows(category: ProfilingCategoryPair) {
    let mut local = 7u8;
    let flow = FlowId::from(&raw const local);
    assert_eq!(
        (FlowId::from(&raw mut local), &FlowId::from(10u64).to_hex()),
        (flow, b"000000000000000a")
    );
    let add = MarkerOptions::default();
    let (name, terminating_flow) = (CowString::from("text"), flow);
    add_marker("flow", category, add, FlowStackMarker(flow));
    add_marker("flow", category, add, types::FlowMarker { flow });
    add_marker(
        "flow",
        category,
        add,
        types::FlowTextMarker {
            name: name.clone(),
            flow,
        },
    );
    add_marker(
        "flow",
        category,
        add,
        types::FlowStackTextMarker {
            name: name.clone(),
            flow,
        },
    );
    add_marker(
        "flow",
        category,
        add,
        types::TerminatingFlowStackMarker { flow },
    );
    add_marker(
        "flow",
        category,
        add,
        types::TerminatingFlowTextMarker {
            name,
            terminatingFlow: terminating_flow,
        },
    );
    add_marker(
        "flow",
        category,
        add,
        types::TerminatingFlowMarker {
            terminatingFlow: terminating_flow,
        },
    );
}

pub(crate) fn every_form() {
    let records = records();
    let category = gecko_profiler_category!(Media);
    let reading = Reading {
        degrees: Celsius(21.5),
        sensors: vec![1, 2],
        took: Duration::from_millis(1),
        note: None,
    };
    add_marker("reading", category, MarkerOptions::default(), reading);
    add_marker("by hand", category, MarkerOptions::default(), ByHand(7));
    assert_eq!(
        (Reading::marker_type_name(), ByHand::marker_type_name()),
        ("reading", "by hand")
    );
    assert_ne!(
        Reading::marker_type_display(),
        ByHand::marker_type_display()
    );
    assert_eq!(
        MarkerSchema::new_with_special_frontend_location(),
        types::NativeAllocation::marker_type_display()
    );
    lazily(records);
    options();
    scopes(records);
    flows(category);
    super::built_in::every_type();
    add_marker(
        "tracing",
        category,
        MarkerOptions::default(),
        Tracing::from_str("word"),
    );
    let (process, thread) = (ProcessId::from_number(7), ThreadId::from_number(8));
    super::built_in::transfers(process, thread);
}
