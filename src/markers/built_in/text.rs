//! Markers that carry a text or one end of an interval.

use std::borrow::Cow;

use crate::markers::json_writer::JSONWriter;
use crate::markers::profiler_marker::ProfilerMarker;
use crate::markers::schema::MarkerSchema;
use crate::markers::schema::{Format, Location};
use crate::types::ThreadId;

/// A string that needs no allocation if it is `'static`.
pub type CowString = Cow<'static, str>;

/// An instant, or one end of an interval, with the name of its group.
#[derive(Clone, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Tracing(pub CowString);

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

/// One end of an interval that nests inside others as calls do, without further data.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct StackMarker();

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
    /// A text on intervals that nest as calls do.
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
    table_label = "({marker.name}) {marker.data.message}";
    chart_label = "{marker.data.message}";
}

marker_type! {
    /// A file access.
    #[derive(Clone, PartialEq, Eq, Debug)]
    #[allow(non_snake_case, reason = "the viewer's name")]
    pub struct FileIO {
        /// The operation: “read”, “fsync”.
        pub operation: CowString => "Operation", String;
        /// The component that requested the operation.
        pub source: CowString => "Source", String;
        /// The file's path.
        pub filename: Option<String> => "Filename", FilePath;
        /// The thread that accessed the file, if the marker is on another thread's track.
        pub threadId: Option<ThreadId> => "Thread ID", Tid;
    }
    places = [MarkerChart, MarkerTable, TimelineFileIO];
}

/// An allocation or, with a negative size, a deallocation.
///
/// With stacks, the viewer builds trees of retained, allocated and freed memory from these markers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct NativeAllocation {
    /// Size in bytes; negative for a deallocation.
    pub size: i64,
    /// Address of the memory.
    pub memory_address: u64,
    /// The thread that allocated or freed the memory.
    pub thread_id: ThreadId,
}

impl ProfilerMarker for NativeAllocation {
    fn marker_type_name() -> &'static str {
        "Native allocation"
    }

    fn marker_type_display() -> MarkerSchema {
        MarkerSchema::new_with_special_frontend_location()
    }

    fn stream_json_marker_data(&self, json_writer: &mut JSONWriter<'_>) {
        json_writer.int_property("size", self.size);
        json_writer.uint_property("memoryAddress", self.memory_address);
        json_writer.int_property("threadId", self.thread_id.to_number().into());
    }
}

/// An allocation by a script interpreter. With stacks, the viewer builds a tree from these markers.
#[doc(alias = "JsAllocationMarker")]
#[derive(Clone, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct JsAllocation {
    /// Class of the object: “Function”.
    pub class_name: CowString,
    /// The interpreter's type of the object: “JSObject”.
    pub type_name: CowString,
    /// Coarse type of the object: “Object”, “String”.
    pub coarse_type: CowString,
    /// Size in bytes.
    pub size: u64,
    /// Whether the object is in the nursery, where the interpreter allocates young objects.
    pub in_nursery: bool,
}

impl ProfilerMarker for JsAllocation {
    fn marker_type_name() -> &'static str {
        "JS allocation"
    }

    fn marker_type_display() -> MarkerSchema {
        MarkerSchema::new_with_special_frontend_location()
    }

    fn stream_json_marker_data(&self, json_writer: &mut JSONWriter<'_>) {
        json_writer.string_property("className", &self.class_name);
        json_writer.string_property("typeName", &self.type_name);
        json_writer.string_property("coarseType", &self.coarse_type);
        json_writer.uint_property("size", self.size);
        json_writer.bool_property("inNursery", self.in_nursery);
    }
}

/// What a window shows from this instant until the window's next screenshot.
///
/// The viewer draws screenshots in a track of their own. In the profile these markers are named
/// “CompositorScreenshot”, whatever name the caller gave them.
#[derive(Clone, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct CompositorScreenshot {
    /// The image as a URL: `data:image/jpeg;base64,…`. It may be smaller than the window.
    pub url: CowString,
    /// Id of the window.
    pub window_id: u64,
    /// Width of the window.
    pub window_width: u32,
    /// Height of the window.
    pub window_height: u32,
}

impl ProfilerMarker for CompositorScreenshot {
    fn marker_type_name() -> &'static str {
        "CompositorScreenshot"
    }

    fn marker_type_display() -> MarkerSchema {
        MarkerSchema::new_with_special_frontend_location()
    }

    fn stream_json_marker_data(&self, json_writer: &mut JSONWriter<'_>) {
        json_writer.unique_string_property("url", &self.url);
        json_writer.string_property("windowID", &format!("{:#x}", self.window_id));
        json_writer.uint_property("windowWidth", self.window_width.into());
        json_writer.uint_property("windowHeight", self.window_height.into());
    }
}

marker_type! {
    /// The speed of a CPU core.
    #[doc(alias = "CPUSpeedMarker")]
    #[derive(Clone, Copy, PartialEq, Debug)]
    pub struct CPUSpeed {
        /// Speed in GHz.
        pub speed: f64 => "CPU Speed (GHz)", String;
    }
    label = "{marker.name} Speed = {marker.data.speed}GHz";
    graph = (speed, Bar, Ink);
}

/// An interval in which a thread is awake. Its start marker has the core, its end marker the CPU
/// time used.
#[derive(Clone, Copy, PartialEq, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Awake {
    /// CPU time used, in ns; only at the end.
    pub cpu_time_ns: Option<u64>,
    /// Number of the core; only at the start.
    pub cpu_id: Option<u32>,
}

impl ProfilerMarker for Awake {
    fn marker_type_name() -> &'static str {
        "Awake"
    }

    fn marker_type_display() -> MarkerSchema {
        let mut schema = MarkerSchema::new(&[Location::MarkerChart, Location::MarkerTable]);
        schema
            .add_key_format("CPU Time", Format::Duration)
            .add_key_format("CPU Id", Format::Integer);
        schema.set_table_label("{marker.name} - CPU Id = {marker.data.CPU Id}");
        schema
    }

    fn stream_json_marker_data(&self, json_writer: &mut JSONWriter<'_>) {
        if let Some(cpu_time_ns) = self.cpu_time_ns {
            json_writer.float_property("CPU Time", cpu_time_ns as f64 / 1e6);
        }
        if let Some(cpu_id) = self.cpu_id {
            json_writer.uint_property("CPU Id", cpu_id.into());
        }
    }
}

marker_type! {
    /// A number of thread wake-ups.
    #[derive(Clone, PartialEq, Eq, Debug)]
    #[allow(non_snake_case, reason = "the viewer's name")]
    pub struct WakeUpCount {
        /// The number of wake-ups.
        pub Count: u64 => "Count", Integer;
        /// The threads that were counted.
        pub label: CowString => "Label", String;
    }
    chart_label = "{marker.data.Count}";
    table_label = "{marker.name}: {marker.data.Count}";
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

marker_type! {
    /// An event that kept the main thread busy for a long time.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub struct MainThreadLongTask {
        /// Type of the event.
        pub category: CowString => "Type", String;
    }
    name = "MainThreadLongTask";
}

marker_type! {
    /// An interval in which a thread did not return to its event loop, as a hang monitor found it.
    #[doc(alias = "BHRMarker")]
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct DetectedHang {}
    name = "BHR-detected hang";
    places = [MarkerChart, MarkerTable, TimelineOverview];
    table_label = "{marker.name}";
}

marker_type! {
    /// A read of a preference.
    #[derive(Clone, PartialEq, Eq, Debug)]
    #[allow(non_snake_case, reason = "the viewer's names")]
    pub struct PreferenceRead {
        /// Name of the preference.
        pub prefName: String => "Name", String;
        /// Whether the value is the default or was set explicitly.
        pub prefKind: CowString => "Kind", String;
        /// Type of the value.
        pub prefType: CowString => "Type", String;
        /// The value.
        pub prefValue: String => "Value", SanitizedString;
    }
    table_label = "{marker.name} - {marker.data.prefName}";
}

marker_type! {
    /// A user interface event that the application handled.
    #[derive(Clone, PartialEq, Debug)]
    #[allow(non_snake_case, reason = "the viewer's names")]
    pub struct DOMEvent {
        /// Type of the event: “click”, for example.
        pub eventType: CowString => "Event Type", String;
        /// Target of the event.
        pub target: Option<String> => "Event Target", String;
        /// Time from the event's occurrence until it was handled, in ms.
        pub latency: Option<f64> => "Latency", Duration;
    }
    places = [MarkerChart, MarkerTable, TimelineOverview];
    tooltip_label = "{marker.data.eventType} — DOMEvent";
    table_label = "{marker.data.eventType} - {marker.data.target}";
    chart_label = "{marker.data.eventType}";
}

marker_type! {
    /// A segment of an audio or video stream.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    #[allow(non_snake_case, reason = "the viewer's names")]
    pub struct MediaSample {
        /// Start of the segment in its stream, in µs.
        pub sampleStartTimeUs: i64 => "Sample start time", Microseconds;
        /// End of the segment in its stream, in µs.
        pub sampleEndTimeUs: i64 => "Sample end time", Microseconds;
    }
}

marker_type! {
    /// A video frame that was decoded too late.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    #[allow(non_snake_case, reason = "the viewer's names")]
    pub struct VideoFallingBehind {
        /// Time in the stream at which the frame was due, in µs.
        pub videoFrameStartTimeUs: i64 => "Video frame start time", Microseconds;
        /// Playback position in the stream, in µs.
        pub mediaCurrentTimeUs: i64 => "Media current time", Microseconds;
    }
}

marker_type! {
    /// A video frame that was shown.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    #[allow(non_snake_case, reason = "the viewer's name")]
    pub struct VideoSinkRender {
        /// Playback position in the stream, in µs.
        pub clockTimeUs: i64 => "Clock time", Microseconds;
    }
}
