//! What goes between processes and over the network, as the viewer puts it together: its words are types here, since it shows
//! nothing of a profile with others.

use std::borrow::Cow;

use crate::base::{ProcessId, ProfilerTime, ThreadId};
use crate::markers::json_writer::JSONWriter;
use crate::markers::marker_field::MarkerField;
use crate::markers::profiler_marker::ProfilerMarker;
use crate::markers::schema::MarkerSchema;
use crate::markers::schema_words::{Format, Location};

macro_rules! words {
    ($($(#[$meta:meta])* $name:ident { $($(#[$doc:meta])* $variant:ident = $word:literal,)+ })+) => {$(
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
        pub enum $name {
            $($(#[$doc])* $variant,)+
        }

        impl $name {
            const fn word(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)+
                }
            }
        }

        impl MarkerField for $name {
            fn write_field(&self, json: &mut JSONWriter<'_>, key: &str, format: Format) {
                self.word().write_field(json, key, format);
            }

            fn write_element(&self, json: &mut JSONWriter<'_>) {
                self.word().write_element(json);
            }
        }
    )+};
}

words! {
    /// Which of the two processes one is.
    IPCSide {
        /// The one that began the other.
        Parent = "parent",
        /// The other.
        Child = "child",
    }

    /// How far a request is.
    NetworkStatus {
        /// It was made: until it goes out.
        Start = "STATUS_START",
        /// It was answered.
        Stop = "STATUS_STOP",
        /// It was sent on to another place, under another id.
        Redirect = "STATUS_REDIRECT",
        /// Nobody wants its answer any more.
        Cancel = "STATUS_CANCEL",
    }

    /// For how long a request is sent on.
    NetworkRedirect {
        /// From now on.
        Permanent = "Permanent",
        /// This time.
        Temporary = "Temporary",
        /// By the program itself.
        Internal = "Internal",
    }

    /// What the cache had of an answer.
    NetworkCache {
        /// Nothing has been found out.
        Unresolved = "Unresolved",
        /// It was there.
        Hit = "Hit",
        /// It was there, and the server said that it still holds.
        HitViaReval = "HitViaReval",
        /// It was not.
        Missed = "Missed",
        /// It was there, and held no more.
        MissedViaReval = "MissedViaReval",
    }

    /// Which version of HTTP was spoken.
    HttpVersion {
        /// 1.0.
        Http10 = "http/1.0",
        /// 1.1.
        Http11 = "http/1.1",
        /// 2.
        Http2 = "h2",
        /// 3.
        Http3 = "h3",
    }
}

/// Where on its way a message is. The viewer makes one marker of the five, from [`Self::Sent`] to [`Self::Received`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum IPCStep {
    /// Some thread of the sender's sends it.
    Sent,
    /// The sender begins to write it.
    TransferStart,
    /// The sender has written it.
    TransferEnd,
    /// The receiver has read it.
    Arrived,
    /// Some thread of the receiver's takes it.
    Received,
}

impl IPCStep {
    /// Gecko's words: its direction, and its phase.
    const fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::Sent => ("sending", "endpoint"),
            Self::TransferStart => ("sending", "transferStart"),
            Self::TransferEnd => ("sending", "transferEnd"),
            Self::Arrived => ("receiving", "transferEnd"),
            Self::Received => ("receiving", "endpoint"),
        }
    }
}

/// A step of a message's way from one process to another, or from one thread to another. The viewer puts the steps together by
/// the message's number, its type and the two processes, and shows them as markers “IPCOut” and “IPCIn”: in the profile the
/// markers are called “IPC”, by whatever name they were added.
#[derive(Clone, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct IPCMarker {
    /// When this step was.
    pub time: ProfilerTime,
    /// The other process.
    pub other_pid: ProcessId,
    /// Which message of the two processes, up to 2⁵³.
    pub message_seqno: u64,
    /// What it is called.
    pub message_type: Cow<'static, str>,
    /// Which of the two this process is.
    pub side: IPCSide,
    /// How far it is.
    pub step: IPCStep,
    /// Whether the sender waits for the answer.
    pub is_sync: bool,
    /// The thread that the step was on, where the marker is on another's track.
    pub thread_id: Option<ThreadId>,
}

impl ProfilerMarker for IPCMarker {
    fn marker_type_name() -> &'static str {
        "IPC"
    }

    // The viewer has one of its own, in its place.
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
        let (direction, phase) = self.step.words();
        json_writer.time_property("startTime", self.time);
        json_writer.time_property("endTime", self.time);
        json_writer.int_property("otherPid", self.other_pid.to_number().into());
        json_writer.uint_property("messageSeqno", self.message_seqno);
        json_writer.string_property("messageType", &self.message_type);
        json_writer.string_property("side", self.side.word());
        json_writer.string_property("direction", direction);
        json_writer.string_property("phase", phase);
        json_writer.bool_property("sync", self.is_sync);
        if let Some(thread) = self.thread_id {
            json_writer.int_property("threadId", thread.to_number().into());
        }
    }
}

marker_type! {
    /// A request, in two intervals with the same id: from its beginning until it goes out, with [`NetworkStatus::Start`], and
    /// from then until it is over, with another status and what has become known meanwhile. The viewer makes one of both, and
    /// draws it with its phases.
    #[derive(Clone, PartialEq, Debug)]
    #[allow(non_snake_case, reason = "the viewer's names")]
    pub struct NetworkMarker {
        /// Which request of the process, up to 2⁵³.
        pub id: u64 => "ID", Integer;
        /// How far it is.
        pub status: NetworkStatus => "Status", String;
        /// What is asked for.
        pub URI: String => "URL", Url;
        /// Where to it was sent on.
        pub RedirectURI: Option<String> => "Redirect URL", Url;
        /// For how long.
        pub redirectType: Option<NetworkRedirect> => "Redirection type", String;
        /// Whether that goes from HTTP to HTTPS alone.
        pub isHttpToHttpsRedirect: Option<bool> => "HTTP to HTTPS", String;
        /// The request that was made of it.
        pub redirectId: Option<u64> => "Redirected to", Integer;
        /// `GET`, for example.
        pub requestMethod: Option<Cow<'static, str>> => "Method", String;
        /// What became of the request: `NS_OK`, for example.
        pub requestStatus: Option<Cow<'static, str>> => "Request Status", String;
        /// 200, for example.
        pub responseStatus: Option<u16> => "Response Status", Integer;
        /// Of the answer: “text/html”.
        pub contentType: Option<Cow<'static, str>> => "Content Type", String;
        /// Which version of HTTP.
        pub httpVersion: Option<HttpVersion> => "HTTP Version", String;
        /// What the cache had.
        pub cache: Option<NetworkCache> => "Cache", String;
        /// How long the answer is.
        pub count: Option<u64> => "Size", Bytes;
        /// How urgent it is: the less, the more; 0 is normal.
        pub pri: i32 => "Priority", Integer;
        /// How it is to be treated among others, in words.
        pub classOfService: Option<Cow<'static, str>> => "Class of Service", String;
        /// Whether it is one of a private window, so that who shares the profile may leave it out.
        pub isPrivateBrowsing: Option<bool> => hidden, String;
        /// When it began.
        pub startTime: ProfilerTime => hidden, Time;
        /// When this part of it was over.
        pub endTime: ProfilerTime => hidden, Time;
        /// When the name was looked up.
        pub domainLookupStart: Option<ProfilerTime> => hidden, Time;
        /// When it was found.
        pub domainLookupEnd: Option<ProfilerTime> => hidden, Time;
        /// When the connection was begun.
        pub connectStart: Option<ProfilerTime> => hidden, Time;
        /// When the other side had answered.
        pub tcpConnectEnd: Option<ProfilerTime> => hidden, Time;
        /// When its encryption was begun.
        pub secureConnectionStart: Option<ProfilerTime> => hidden, Time;
        /// When it stood.
        pub connectEnd: Option<ProfilerTime> => hidden, Time;
        /// When the request was sent.
        pub requestStart: Option<ProfilerTime> => hidden, Time;
        /// When the answer began.
        pub responseStart: Option<ProfilerTime> => hidden, Time;
        /// When it was there.
        pub responseEnd: Option<ProfilerTime> => hidden, Time;
    }
    name = "Network";
    places = [MarkerTable, MarkerChart, TimelineNetwork];
    chart_label = "{marker.data.URI}";
    table_label = "{marker.data.URI}";
}

impl NetworkMarker {
    /// A part of a request of which nothing more is known; what is goes into its fields. The marker's own timing is an interval
    /// with the same times.
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
