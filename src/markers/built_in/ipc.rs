//! Inter-process messages. The viewer combines the markers of a message by their fields.

use crate::markers::built_in::text::CowString;
use crate::markers::json_writer::JSONWriter;
use crate::markers::profiler_marker::ProfilerMarker;
use crate::markers::schema::MarkerSchema;
use crate::markers::schema::{Format, Location};
use crate::types::{ProcessId, ProfilerTime, ThreadId, serde_as_index};

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
