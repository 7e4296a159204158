//! Audio and video playback.

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
