//! What a user sees and hears: user interface events, screenshots, long tasks, hangs, audio and video;
//! also reads of preferences.

use crate::markers::built_in::text::CowString;
use crate::markers::json_writer::JSONWriter;
use crate::markers::profiler_marker::ProfilerMarker;
use crate::markers::schema::MarkerSchema;

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

payload! {
    /// A screenshot of a window, valid from this instant until the window's next screenshot.
    ///
    /// The viewer draws screenshots in a track of their own. In the profile these markers are named
    /// “CompositorScreenshot”, regardless of the name that the application gave them.
    #[derive(Clone, PartialEq, Eq, Debug)]
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
