//! Network requests and inter-process messages. The viewer combines the markers of a request, or of a
//! message, by their fields.

use crate::markers::built_in::text::CowString;
use crate::markers::json_writer::JSONWriter;
use crate::markers::profiler_marker::ProfilerMarker;
use crate::markers::schema::{Format, Location, MarkerSchema};
use crate::types::{ProcessId, ProfilerTime, ThreadId, serde_as_index};

keywords! {
    /// The state of a request.
    NetworkStatus {
        /// Created, and not sent yet.
        Start = "STATUS_START",
        /// Answered.
        Stop = "STATUS_STOP",
        /// Redirected to another URL, under another id.
        Redirect = "STATUS_REDIRECT",
        /// Canceled.
        Cancel = "STATUS_CANCEL",
    }

    /// The kind of a redirection.
    NetworkRedirect {
        /// Permanent.
        Permanent = "Permanent",
        /// Temporary.
        Temporary = "Temporary",
        /// Made by the application itself.
        Internal = "Internal",
    }

    /// The result of the cache lookup for a response.
    NetworkCache {
        /// Not known yet.
        Unresolved = "Unresolved",
        /// Found in the cache.
        Hit = "Hit",
        /// Found in the cache, and revalidated by the server.
        HitViaReval = "HitViaReval",
        /// Not found in the cache.
        Missed = "Missed",
        /// Found in the cache, but the server reported it stale.
        MissedViaReval = "MissedViaReval",
    }

    /// The HTTP version of a connection.
    HttpVersion {
        /// HTTP/1.0.
        Http10 = "http/1.0",
        /// HTTP/1.1.
        Http11 = "http/1.1",
        /// HTTP/2.
        Http2 = "h2",
        /// HTTP/3.
        Http3 = "h3",
    }
}

marker_type! {
    /// A network request, as two intervals with the same id.
    ///
    /// The first has [`NetworkStatus::Start`] and lasts from the request's creation until it is
    /// sent. The second lasts from then until the request's end. It has another status, and the
    /// fields that have become known. The viewer merges both and draws the request with its phases.
    #[derive(Clone, PartialEq, Debug)]
    #[allow(non_snake_case, reason = "the viewer's names")]
    pub struct NetworkMarker {
        /// Id of the request within the process, at most 2⁵³.
        pub id: u64 => "ID", Integer;
        /// State of the request.
        pub status: NetworkStatus => "Status", String;
        /// The requested URL.
        pub URI: String => "URL", Url;
        /// The URL that the request was redirected to.
        pub RedirectURI: Option<String> => "Redirect URL", Url;
        /// Kind of the redirection.
        pub redirectType: Option<NetworkRedirect> => "Redirection type", String;
        /// Whether the redirection only switches from HTTP to HTTPS.
        pub isHttpToHttpsRedirect: Option<bool> => "HTTP to HTTPS", String;
        /// Id of the request that follows the redirection.
        pub redirectId: Option<u64> => "Redirected to", Integer;
        /// The request's method: `GET`, for example.
        pub requestMethod: Option<CowString> => "Method", String;
        /// Result of the request: `NS_OK`, for example.
        pub requestStatus: Option<CowString> => "Request Status", String;
        /// Status of the response: 200, for example.
        pub responseStatus: Option<u16> => "Response Status", Integer;
        /// Content type of the response: “text/html”, for example.
        pub contentType: Option<CowString> => "Content Type", String;
        /// HTTP version of the connection.
        pub httpVersion: Option<HttpVersion> => "HTTP Version", String;
        /// Result of the cache lookup.
        pub cache: Option<NetworkCache> => "Cache", String;
        /// Size of the response, in bytes.
        pub count: Option<u64> => "Size", Bytes;
        /// Priority: 0 is normal, and lower values are more urgent.
        pub pri: i32 => "Priority", Integer;
        /// Class of service, as text.
        pub classOfService: Option<CowString> => "Class of Service", String;
        /// Whether the request belongs to a private window. Users can omit such requests when they
        /// share a profile.
        pub isPrivateBrowsing: Option<bool> => hidden, String;
        /// Start of this interval.
        pub startTime: ProfilerTime => hidden, Time;
        /// End of this interval.
        pub endTime: ProfilerTime => hidden, Time;
        /// Start of the domain name lookup.
        pub domainLookupStart: Option<ProfilerTime> => hidden, Time;
        /// End of the domain name lookup.
        pub domainLookupEnd: Option<ProfilerTime> => hidden, Time;
        /// Start of the connection attempt.
        pub connectStart: Option<ProfilerTime> => hidden, Time;
        /// Time at which the TCP connection was established.
        pub tcpConnectEnd: Option<ProfilerTime> => hidden, Time;
        /// Start of the TLS handshake.
        pub secureConnectionStart: Option<ProfilerTime> => hidden, Time;
        /// Time at which the connection was ready, including TLS.
        pub connectEnd: Option<ProfilerTime> => hidden, Time;
        /// Start of sending the request.
        pub requestStart: Option<ProfilerTime> => hidden, Time;
        /// Start of the response.
        pub responseStart: Option<ProfilerTime> => hidden, Time;
        /// End of the response.
        pub responseEnd: Option<ProfilerTime> => hidden, Time;
    }
    name = "Network";
    places = [MarkerTable, MarkerChart, TimelineNetwork];
    chart_label = "{marker.data.URI}";
    table_label = "{marker.data.URI}";
}

impl NetworkMarker {
    /// Creates one interval of a request, with all optional fields unset.
    ///
    /// Add the marker with a timing of the same interval.
    ///
    /// ```
    /// use gekkota::marker::built_in::{NetworkMarker, NetworkStatus};
    /// use gekkota::{MarkerTiming, ProfilerTime, add_marker, gecko_profiler_category};
    ///
    /// let category = gecko_profiler_category!(Network);
    /// let (url, begin) = ("https://example.org/", ProfilerTime::now());
    /// let sent = ProfilerTime::now();
    /// let request = NetworkMarker::new(7, NetworkStatus::Start, url, begin, sent);
    /// add_marker("Load 7", category, MarkerTiming::interval(begin, sent).into(), request);
    /// let end = ProfilerTime::now();
    /// let answer = NetworkMarker {
    ///     responseStatus: Some(200),
    ///     ..NetworkMarker::new(7, NetworkStatus::Stop, url, sent, end)
    /// };
    /// add_marker("Load 7", category, MarkerTiming::interval(sent, end).into(), answer);
    /// ```
    pub fn new(
        id: u64,
        status: NetworkStatus,
        uri: impl Into<String>,
        start: ProfilerTime,
        end: ProfilerTime,
    ) -> Self {
        Self {
            id,
            status,
            URI: uri.into(),
            RedirectURI: None,
            redirectType: None,
            isHttpToHttpsRedirect: None,
            redirectId: None,
            requestMethod: None,
            requestStatus: None,
            responseStatus: None,
            contentType: None,
            httpVersion: None,
            cache: None,
            count: None,
            pri: 0,
            classOfService: None,
            isPrivateBrowsing: None,
            startTime: start,
            endTime: end,
            domainLookupStart: None,
            domainLookupEnd: None,
            connectStart: None,
            tcpConnectEnd: None,
            secureConnectionStart: None,
            connectEnd: None,
            requestStart: None,
            responseStart: None,
            responseEnd: None,
        }
    }
}

keywords! {
    /// The role of this process in relation to the other one.
    IPCSide {
        /// The process that started the other.
        Parent = "parent",
        /// The process that was started.
        Child = "child",
    }
}

/// A step of a message's delivery. The viewer merges the five markers, from [`Self::Sent`] to
/// [`Self::Received`], into one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum IPCStep {
    /// A thread of the sender sends the message.
    Sent,
    /// The sender starts to write the message.
    TransferStart,
    /// The sender has written the message.
    TransferEnd,
    /// The receiver has read the message.
    Arrived,
    /// A thread of the receiver handles the message.
    Received,
}

serde_as_index!(IPCStep {
    Sent,
    TransferStart,
    TransferEnd,
    Arrived,
    Received
});

impl IPCStep {
    /// Returns Gecko's keywords for the step: direction and phase.
    const fn keywords(self) -> (&'static str, &'static str) {
        match self {
            Self::Sent => ("sending", "endpoint"),
            Self::TransferStart => ("sending", "transferStart"),
            Self::TransferEnd => ("sending", "transferEnd"),
            Self::Arrived => ("receiving", "transferEnd"),
            Self::Received => ("receiving", "endpoint"),
        }
    }
}

payload! {
    /// A step in the delivery of a message to another process or another thread.
    ///
    /// The viewer merges the steps that share the message's number, its type and the two processes, and
    /// shows them as markers “IPCOut” and “IPCIn”. In the profile these markers are named “IPC”,
    /// regardless of the name that the application gave them.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub struct IPCMarker {
        /// Time of this step.
        pub time: ProfilerTime,
        /// The other process.
        pub other_pid: ProcessId,
        /// Number of the message between the two processes, at most 2⁵³.
        pub message_seqno: u64,
        /// Name of the message's type.
        pub message_type: CowString,
        /// Role of this process.
        pub side: IPCSide,
        /// The step.
        pub step: IPCStep,
        /// Whether the sender waits for a reply.
        pub is_sync: bool,
        /// The thread that performed the step, if the marker is on another thread's track.
        pub thread_id: Option<ThreadId>,
    }
}

impl ProfilerMarker for IPCMarker {
    fn marker_type_name() -> &'static str {
        "IPC"
    }

    // The viewer replaces this schema by a built-in one.
    fn marker_type_display() -> MarkerSchema {
        let mut schema = MarkerSchema::new(&[
            Location::MarkerChart,
            Location::MarkerTable,
            Location::TimelineIPC,
        ]);
        schema
            .set_table_label("{marker.data.messageType} — {marker.data.niceDirection}")
            .set_chart_label("{marker.data.messageType}")
            .add_key_label_format("startTime", "Start", Format::Time)
            .add_key_label_format("endTime", "End", Format::Time)
            .add_key_label_format("otherPid", "Other Pid", Format::Pid)
            .add_key_label_format("messageSeqno", "Number", Format::Integer)
            .add_key_label_format("messageType", "Type", Format::String)
            .add_key_label_format("side", "Side", Format::String)
            .add_key_label_format("direction", "Direction", Format::String)
            .add_key_label_format("phase", "Phase", Format::String)
            .add_key_label_format("sync", "Sync", Format::String)
            .add_key_label_format("threadId", "Thread ID", Format::Tid);
        schema
    }

    fn stream_json_marker_data(&self, json_writer: &mut JSONWriter<'_>) {
        let (direction, phase) = self.step.keywords();
        json_writer.time_property("startTime", self.time);
        json_writer.time_property("endTime", self.time);
        json_writer.int_property("otherPid", self.other_pid.to_number().into());
        json_writer.uint_property("messageSeqno", self.message_seqno);
        json_writer.string_property("messageType", &self.message_type);
        json_writer.string_property("side", self.side.keyword());
        json_writer.string_property("direction", direction);
        json_writer.string_property("phase", phase);
        json_writer.bool_property("sync", self.is_sync);
        if let Some(thread) = self.thread_id {
            json_writer.int_property("threadId", thread.to_number().into());
        }
    }
}
