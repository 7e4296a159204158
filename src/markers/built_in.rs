//! The types of markers that Gecko has and that make sense off a browser, by Gecko's names and with its fields.
//!
//! [`Tracing`], [`StackMarker`] and [`FlowStackMarker`] are shaped as in Mozilla's crate; the others have a field for each of
//! Gecko's. A text alone is [`add_text_marker`](crate::add_text_marker)'s.
//!
//! Not here are `Java`, `JavaWithDetails` and `CONTENT_FULL_PAINT_TIME`, which are Android's or a browser's, and
//! `UnregisteredThreadLifetime` and `UnregisteredThreadCPU`, as nothing here watches threads that are not registered.

use std::borrow::Cow;

use crate::base::ThreadId;
pub use crate::markers::flow_markers::*;
use crate::markers::json_writer::JSONWriter;
use crate::markers::profiler_marker::ProfilerMarker;
use crate::markers::schema::MarkerSchema;
use crate::markers::schema_words::{Format, Location};
pub use crate::markers::transfers::*;

/// A text that allocates nothing where it is the program's own.
pub type CowString = Cow<'static, str>;

/// One end of an interval, or an instant, with a word of what it belongs to.
#[derive(Clone, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Tracing(pub CowString);

impl Tracing {
    /// With this word, which is not copied.
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

/// One end of an interval that lies in others as calls do, with nothing more to say.
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
    /// A text, on intervals that lie in others as calls do.
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
    /// A record of a log. The marker's name is the module's; the viewer's log has its time, thread and level.
    #[doc(alias = "LogMarker")]
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub struct Log {
        /// `Error`, `Warning`, `Info`, `Debug` or `Verbose`.
        pub level: CowString => "Level", UniqueString;
        /// What was said.
        pub message: CowString => "Message", UniqueString;
    }
    table_label = "({marker.name}) {marker.data.message}";
    chart_label = "{marker.data.message}";
}

marker_type! {
    /// An access to a file.
    #[derive(Clone, PartialEq, Eq, Debug)]
    #[allow(non_snake_case, reason = "the viewer's name")]
    pub struct FileIO {
        /// What was done: “read”, “fsync”.
        pub operation: CowString => "Operation", String;
        /// What asked for it.
        pub source: CowString => "Source", String;
        /// The file.
        pub filename: Option<String> => "Filename", FilePath;
        /// The thread that did it, where the marker is on another's track.
        pub threadId: Option<ThreadId> => "Thread ID", Tid;
    }
    places = [MarkerChart, MarkerTable, TimelineFileIO];
}

/// An allocation, or with a negative size its end. With stacks, the viewer makes trees of retained, allocated and freed memory
/// of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct NativeAllocation {
    /// How many bytes.
    pub size: i64,
    /// Where.
    pub memory_address: u64,
    /// On which thread.
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

/// An allocation of an interpreter's. With stacks, the viewer makes a tree of them.
#[doc(alias = "JsAllocationMarker")]
#[derive(Clone, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct JsAllocation {
    /// What sort of object: “Function”.
    pub class_name: CowString,
    /// What it is to the interpreter: “JSObject”.
    pub type_name: CowString,
    /// The same by a coarser division: “Object”, “String”.
    pub coarse_type: CowString,
    /// How many bytes.
    pub size: u64,
    /// Whether it is where young objects are.
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

/// What a window shows from this instant on, until the next of the window. The viewer draws them in a track; in the profile the
/// markers are called “CompositorScreenshot”, by whatever name they were added.
#[derive(Clone, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct CompositorScreenshot {
    /// The picture as a URL: `data:image/jpeg;base64,…`. It may be smaller than the window.
    pub url: CowString,
    /// Which window.
    pub window_id: u64,
    /// How wide the window is.
    pub window_width: u32,
    /// How high it is.
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
    /// How fast a core runs.
    #[doc(alias = "CPUSpeedMarker")]
    #[derive(Clone, Copy, PartialEq, Debug)]
    pub struct CPUSpeed {
        /// In GHz.
        pub speed: f64 => "CPU Speed (GHz)", String;
    }
    label = "{marker.name} Speed = {marker.data.speed}GHz";
    graph = (speed, Bar, Ink);
}

/// That a thread is awake: its beginning has the core, its end the CPU time that it used.
#[derive(Clone, Copy, PartialEq, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Awake {
    /// At the end: nanoseconds of CPU time.
    pub cpu_time_ns: Option<u64>,
    /// At the beginning: the core.
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
    /// How often threads woke up.
    #[derive(Clone, PartialEq, Eq, Debug)]
    #[allow(non_snake_case, reason = "the viewer's name")]
    pub struct WakeUpCount {
        /// So often.
        pub Count: u64 => "Count", Integer;
        /// Of what.
        pub label: CowString => "Label", String;
    }
    chart_label = "{marker.data.Count}";
    table_label = "{marker.name}: {marker.data.Count}";
}

marker_type! {
    /// A point or a span that the program measures for itself, by the names of the web's `performance.mark` and `.measure`.
    #[derive(Clone, PartialEq, Eq, Debug)]
    #[allow(non_snake_case, reason = "the viewer's names")]
    pub struct UserTiming {
        /// What is measured.
        pub name: String => "Name", String;
        /// `mark` or `measure`.
        pub entryType: CowString => "Entry Type", String;
        /// The mark at which a measure begins.
        pub startMark: Option<String> => "Start Mark", String;
        /// The mark at which it ends.
        pub endMark: Option<String> => "End Mark", String;
    }
    label = "{marker.data.name}";
    description = "A mark or a measure of the program's.";
}

marker_type! {
    /// An event that kept the main thread busy for long.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub struct MainThreadLongTask {
        /// Which sort of event.
        pub category: CowString => "Type", String;
    }
    name = "MainThreadLongTask";
}

marker_type! {
    /// A time in which a thread did not come back to its events, as who watches it found.
    #[doc(alias = "BHRMarker")]
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct DetectedHang {}
    name = "BHR-detected hang";
    places = [MarkerChart, MarkerTable, TimelineOverview];
    table_label = "{marker.name}";
}

marker_type! {
    /// A setting that was looked up.
    #[derive(Clone, PartialEq, Eq, Debug)]
    #[allow(non_snake_case, reason = "the viewer's names")]
    pub struct PreferenceRead {
        /// Its name.
        pub prefName: String => "Name", String;
        /// Whether it is the default, or set by somebody.
        pub prefKind: CowString => "Kind", String;
        /// What sort of value.
        pub prefType: CowString => "Type", String;
        /// The value.
        pub prefValue: String => "Value", SanitizedString;
    }
    table_label = "{marker.name} - {marker.data.prefName}";
}

marker_type! {
    /// An event of a user interface that was handled.
    #[derive(Clone, PartialEq, Debug)]
    #[allow(non_snake_case, reason = "the viewer's names")]
    pub struct DOMEvent {
        /// “click”, for example.
        pub eventType: CowString => "Event Type", String;
        /// What it was for.
        pub target: Option<String> => "Event Target", String;
        /// From when it happened until it was handled, in milliseconds.
        pub latency: Option<f64> => "Latency", Duration;
    }
    places = [MarkerChart, MarkerTable, TimelineOverview];
    tooltip_label = "{marker.data.eventType} — DOMEvent";
    table_label = "{marker.data.eventType} - {marker.data.target}";
    chart_label = "{marker.data.eventType}";
}

marker_type! {
    /// A piece of audio or video.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    #[allow(non_snake_case, reason = "the viewer's names")]
    pub struct MediaSample {
        /// From when on in its stream.
        pub sampleStartTimeUs: i64 => "Sample start time", Microseconds;
        /// Until when.
        pub sampleEndTimeUs: i64 => "Sample end time", Microseconds;
    }
}

marker_type! {
    /// A frame that came too late.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    #[allow(non_snake_case, reason = "the viewer's names")]
    pub struct VideoFallingBehind {
        /// When it should have been shown, in its stream.
        pub videoFrameStartTimeUs: i64 => "Video frame start time", Microseconds;
        /// Where in the stream the clock was.
        pub mediaCurrentTimeUs: i64 => "Media current time", Microseconds;
    }
}

marker_type! {
    /// A frame that was shown.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    #[allow(non_snake_case, reason = "the viewer's name")]
    pub struct VideoSinkRender {
        /// Where in the stream the clock was.
        pub clockTimeUs: i64 => "Clock time", Microseconds;
    }
}
