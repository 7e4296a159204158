//! Marker types that use every feature of a schema and of a writer.

use gekkota::gecko_profiler;

use gecko_profiler::gecko_bindings::profiling_categories::{Graphics, ProfilingCategoryPair};
use gecko_profiler::options::StackCaptureOptions;
use gecko_profiler::{
    Deserialize, JSONWriter, MarkerTiming, ProfilerMarker, ProfilerTime, Serialize,
};
use gecko_profiler::{MarkerOptions, MarkerStack, add_text_marker, add_untyped_marker, schema};
use gecko_profiler::{gecko_profiler_category, marker};

/// Mozilla's formats, each as a field of that name.
#[derive(Serialize, Deserialize, Debug)]
struct AllFormatsMarker {
    number: i32,
}

impl gecko_profiler::ProfilerMarker for AllFormatsMarker {
    fn marker_type_name() -> &'static str {
        "all formats"
    }

    fn stream_json_marker_data(&self, json_writer: &mut gecko_profiler::JSONWriter) {
        json_writer.int_property("integer", self.number.into());
    }

    fn marker_type_display() -> gecko_profiler::MarkerSchema {
        use gecko_profiler::marker::schema::*;
        let mut schema = MarkerSchema::new(&[
            Location::MarkerChart,
            Location::MarkerTable,
            Location::TimelineOverview,
            Location::TimelineMemory,
            Location::TimelineIPC,
            Location::TimelineFileIO,
            Location::StackChart,
        ]);
        schema
            .set_stack_based()
            .add_key_format("url", Format::Url)
            .add_key_format("file", Format::FilePath)
            .add_key_format("sanitized", Format::SanitizedString)
            .add_key_format("string", Format::String)
            .add_key_format("unique", Format::UniqueString)
            .add_key_format("duration", Format::Duration)
            .add_key_format("time", Format::Time)
            .add_key_format("seconds", Format::Seconds)
            .add_key_format("milliseconds", Format::Milliseconds)
            .add_key_format("microseconds", Format::Microseconds)
            .add_key_format("nanoseconds", Format::Nanoseconds)
            .add_key_format("bytes", Format::Bytes)
            .add_key_format("percentage", Format::Percentage)
            .add_key_format("integer", Format::Integer)
            .add_key_format("decimal", Format::Decimal)
            .add_key_format("flow", Format::Flow)
            .add_key_format("terminating", Format::TerminatingFlow);
        schema.add_key_format_with_flags("hidden", Format::String, PayloadFlags::Hidden);
        schema.add_key_label_format_with_flags(
            "shown",
            "Shown",
            Format::String,
            PayloadFlags::None,
        );
        schema.add_static_label_value("Help", "A type of the application");
        schema.add_chart("integer", GraphType::Line);
        schema.add_chart_color("decimal", GraphType::Bar, GraphColor::Blue);
        schema.add_chart_color("bytes", GraphType::LineFilled, GraphColor::Magenta);
        schema
    }
}

/// Every kind of value that the writer writes.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq)]
pub(crate) struct WrittenMarker {
    name: String,
    numbers: Vec<i64>,
    part: Option<f64>,
}

impl ProfilerMarker for WrittenMarker {
    fn marker_type_name() -> &'static str {
        "written"
    }

    fn marker_type_display() -> marker::MarkerSchema {
        let mut schema = schema::MarkerSchema::new(&[schema::Location::MarkerTable]);
        schema
            .set_table_label("{marker.data.name}")
            .set_tooltip_label("written");
        schema
    }

    fn stream_json_marker_data(&self, json_writer: &mut JSONWriter) {
        json_writer.string_property("name", &self.name);
        match self.part {
            Some(part) => json_writer.float_property("part", part),
            None => json_writer.null_property("part"),
        }
        json_writer.bool_property("is_long", self.numbers.len() > 2);
        json_writer.start_array_property("numbers");
        self.numbers
            .iter()
            .for_each(|&number| json_writer.int_element(number));
        json_writer.end_array();
        json_writer.start_object_property("object");
        json_writer.int_property("count", self.numbers.len() as i64);
        json_writer.unique_string_property("unique", &self.name);
        json_writer.end_object();
    }
}

/// A type that the viewer knows without a schema.
#[derive(Serialize, Deserialize, Debug)]
struct SpecialMarker();

impl ProfilerMarker for SpecialMarker {
    fn marker_type_name() -> &'static str {
        "special"
    }

    fn marker_type_display() -> gecko_profiler::MarkerSchema {
        gecko_profiler::MarkerSchema::new_with_special_frontend_location()
    }

    fn stream_json_marker_data(&self, _json_writer: &mut gecko_profiler::JSONWriter) {}
}

fn add<T: ProfilerMarker + 'static>(name: &str, payload: T) {
    let category = gecko_profiler_category!(Graphics, DisplayListBuilding);
    gecko_profiler::add_marker(name, category, Default::default(), payload);
}

/// Returns whether a payload survives encoding and decoding. Every payload implements serde's
/// traits.
fn survives_a_round_trip<T: ProfilerMarker + PartialEq>(payload: &T) -> bool {
    let text = serde_json::to_string(payload).unwrap();
    serde_json::from_str::<T>(&text).unwrap() == *payload
}

pub(crate) fn add_all() {
    let category = gecko_profiler_category!(Graphics, DisplayListBuilding);
    add("Formats", AllFormatsMarker { number: 5 });
    let written = WrittenMarker {
        name: "a \"name\"".to_owned(),
        numbers: vec![1, -2, 3],
        part: Some(0.25),
    };
    marker::add_marker("Written", category, Default::default(), written.clone());
    let none = WrittenMarker {
        part: None,
        numbers: Vec::new(),
        ..written
    };
    assert!(survives_a_round_trip(&none));
    add("Written", none);
    add("Special", SpecialMarker());

    let start = ProfilerTime::now();
    let end = start.clone().add_microseconds(2500.0);
    let timings = [
        MarkerTiming::instant_at(start.clone()),
        MarkerTiming::instant_now(),
        MarkerTiming::interval(start.clone(), end.clone()),
        MarkerTiming::interval_until_now_from(start.clone()),
        MarkerTiming::interval_start(start),
        MarkerTiming::interval_end(end),
        Default::default(),
    ];
    for (index, timing) in timings.into_iter().enumerate() {
        let name = format!("Timing {}", index);
        add_untyped_marker(
            &name,
            category,
            MarkerOptions {
                timing,
                ..Default::default()
            },
        );
    }
    let category = match category {
        ProfilingCategoryPair::Graphics(_) => {
            ProfilingCategoryPair::Graphics(Some(Graphics::Other))
        }
        other => other,
    };
    let stacks: [StackCaptureOptions; 3] = [
        MarkerStack::NoStack,
        StackCaptureOptions::Full,
        MarkerStack::NonNative,
    ];
    for stack in stacks {
        let name = format!("{:?}", stack);
        let options = MarkerOptions {
            timing: MarkerTiming::instant_now(),
            stack,
        };
        add_text_marker(&name, category, options, &format!("{:?}", options.stack));
    }
}
