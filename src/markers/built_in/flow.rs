//! Gecko's marker types for flows, with Gecko's names.

use crate::markers::built_in::text::CowString;
use crate::markers::flow::FlowId;
use crate::markers::json_writer::JSONWriter;
use crate::markers::profiler_marker::ProfilerMarker;
use crate::markers::schema::MarkerSchema;
use crate::markers::schema::{Format, Location};
use crate::types::serde_as_inner;

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
