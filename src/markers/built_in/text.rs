//! Markers with a text, markers that only nest or name a group, and markers of flows.

use std::borrow::Cow;

use crate::markers::flow::FlowId;
use crate::markers::json_writer::JSONWriter;
use crate::markers::profiler_marker::ProfilerMarker;
use crate::markers::schema::{Format, Location, MarkerSchema};
use crate::types::serde_as_inner;

/// A string that needs no allocation if it is `'static`.
pub type CowString = Cow<'static, str>;

/// A marker with the name of its group: an instant, or one end of an interval.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tracing(pub CowString);

serde_as_inner!(Tracing(CowString));

impl Tracing {
    /// Creates a payload with this group name, without copying the name.
    #[expect(clippy::should_implement_trait, reason = "Mozilla's name")]
    pub fn from_str(text: &'static str) -> Self {
        Self(Cow::Borrowed(text))
    }
}

impl ProfilerMarker for Tracing {
    fn marker_type_name() -> &'static str {
        "tracing"
    }

    fn marker_type_display() -> MarkerSchema {
        let mut schema = MarkerSchema::new(&[
            Location::MarkerChart,
            Location::MarkerTable,
            Location::TimelineOverview,
        ]);
        schema.add_key_label_format("category", "Type", Format::String);
        schema
    }

    fn stream_json_marker_data(&self, json_writer: &mut JSONWriter<'_>) {
        if !self.0.is_empty() {
            json_writer.string_property("category", &self.0);
        }
    }
}

/// One end of an interval that nests inside others as calls do. It has no fields.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct StackMarker();

__marker_type_serde!(StackMarker {});

impl ProfilerMarker for StackMarker {
    fn marker_type_name() -> &'static str {
        "StackMarker"
    }

    fn marker_type_display() -> MarkerSchema {
        let mut schema = MarkerSchema::new(&[
            Location::MarkerChart,
            Location::MarkerTable,
            Location::TimelineOverview,
        ]);
        schema.set_stack_based();
        schema
    }

    fn stream_json_marker_data(&self, _: &mut JSONWriter<'_>) {}
}

marker_type! {
    /// A text. Intervals of this type nest as calls do.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub struct TextStack {
        /// The text.
        pub name: CowString => "Details", UniqueString;
    }
    stack_based = true;
    chart_label = "{marker.data.name}";
    table_label = "{marker.name} - {marker.data.name}";
}

marker_type! {
    /// A log record. The marker's name is the module; the viewer's log shows the record with its
    /// time, thread and level.
    #[doc(alias = "LogMarker")]
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub struct Log {
        /// `Error`, `Warning`, `Info`, `Debug` or `Verbose`.
        pub level: CowString => "Level", UniqueString;
        /// The message.
        pub message: CowString => "Message", UniqueString;
    }
    table_label = "{marker.data.message}";
    chart_label = "{marker.data.message}";
}

marker_type! {
    /// A mark or a measure of the application, as the web's `performance.mark` and
    /// `performance.measure` record it.
    #[derive(Clone, PartialEq, Eq, Debug)]
    #[allow(non_snake_case, reason = "the viewer's names")]
    pub struct UserTiming {
        /// Name of the mark or measure.
        pub name: String => "Name", String;
        /// `mark` or `measure`.
        pub entryType: CowString => "Entry Type", String;
        /// The mark that starts a measure.
        pub startMark: Option<String> => "Start Mark", String;
        /// The mark that ends a measure.
        pub endMark: Option<String> => "End Mark", String;
    }
    label = "{marker.data.name}";
    description = "A mark or a measure of the application.";
}

/// An interval that nests as calls do and belongs to a flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FlowStackMarker(pub FlowId);

serde_as_inner!(FlowStackMarker(FlowId));

impl FlowStackMarker {
    /// Creates a payload for the flow that this address identifies.
    pub fn from_pointer<T>(pointer: *const T) -> Self {
        Self(FlowId::from(pointer))
    }
}

impl ProfilerMarker for FlowStackMarker {
    fn marker_type_name() -> &'static str {
        "FlowStackRust"
    }

    fn marker_type_display() -> MarkerSchema {
        let mut schema = MarkerSchema::new(&[Location::MarkerChart, Location::MarkerTable]);
        schema
            .set_stack_based()
            .add_key_label_format("flow", "Flow", Format::Flow);
        schema
    }

    fn stream_json_marker_data(&self, json_writer: &mut JSONWriter<'_>) {
        json_writer.flow_property("flow", self.0);
    }
}

marker_type! {
    /// A marker that belongs to a flow.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct FlowMarker {
        /// Id of the flow.
        pub flow: FlowId => "Flow", Flow;
    }
    table_label = "{marker.name} - (flow={marker.data.flow})";
}

marker_type! {
    /// A text that belongs to a flow.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub struct FlowTextMarker {
        /// The text.
        pub name: CowString => "Details", String;
        /// Id of the flow.
        pub flow: FlowId => "Flow", Flow;
    }
    table_label = "{marker.name} - {marker.data.name} (flow={marker.data.flow})";
    chart_label = "{marker.data.name}";
}

marker_type! {
    /// A text that belongs to a flow. Intervals of this type nest as calls do.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub struct FlowStackTextMarker {
        /// The text.
        pub name: CowString => "Details", String;
        /// Id of the flow.
        pub flow: FlowId => "Flow", Flow;
    }
    stack_based = true;
    table_label = "{marker.name} - {marker.data.name} (flow={marker.data.flow})";
    chart_label = "{marker.data.name}";
}

marker_type! {
    /// The end of a flow. After it, the id may identify another flow.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    #[allow(non_snake_case, reason = "the viewer's name")]
    pub struct TerminatingFlowMarker {
        /// Id of the flow.
        pub terminatingFlow: FlowId => "Terminating Flow", TerminatingFlow;
    }
    table_label = "{marker.name} - (terminatingFlow={marker.data.terminatingFlow})";
}

marker_type! {
    /// The end of a flow, with a text.
    #[derive(Clone, PartialEq, Eq, Debug)]
    #[allow(non_snake_case, reason = "the viewer's name")]
    pub struct TerminatingFlowTextMarker {
        /// The text.
        pub name: CowString => "Details", String;
        /// Id of the flow.
        pub terminatingFlow: FlowId => "Terminating Flow", TerminatingFlow;
    }
    table_label = "{marker.name} - {marker.data.name} (terminatingFlow={marker.data.terminatingFlow})";
    chart_label = "{marker.data.name}";
}

marker_type! {
    /// The end of a flow. Intervals of this type nest as calls do.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct TerminatingFlowStackMarker {
        /// Id of the flow.
        pub flow: FlowId => "Terminating Flow", TerminatingFlow;
    }
    stack_based = true;
    table_label = "{marker.name} - (terminatingFlow={marker.data.flow})";
}
