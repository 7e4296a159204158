//! File accesses, CPU cores, threads that wake up or have not registered, and allocations.

use std::time::Duration;

use crate::markers::built_in::text::CowString;
use crate::markers::json_writer::JSONWriter;
use crate::markers::profiler_marker::ProfilerMarker;
use crate::markers::schema::{Format, Location, MarkerSchema};
use crate::types::ThreadId;

marker_type! {
    /// A file access. The items of [`file_io`](crate::file_io) record such markers.
    #[derive(Clone, PartialEq, Eq, Debug)]
    #[allow(non_snake_case, reason = "the viewer's name")]
    pub struct FileIO {
        /// The operation: “read” or “fsync”, for example.
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

/// The fields of a [`FileIO`], borrowed. They are encoded as those of a `FileIO` are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BorrowedFileIO<'a> {
    pub(crate) operation: &'a str,
    pub(crate) source: &'a str,
    pub(crate) filename: Option<&'a str>,
    pub(crate) thread_id: Option<ThreadId>,
}

#[cfg(has_profiler)]
impl serde::Serialize for BorrowedFileIO<'_> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        (self.operation, self.source, self.filename, self.thread_id).serialize(serializer)
    }
}

marker_type! {
    /// The speed of a CPU core.
    #[doc(alias = "CPUSpeedMarker")]
    #[derive(Clone, Copy, PartialEq, Debug)]
    pub struct CPUSpeed {
        /// Speed in GHz. A number, so that the viewer can draw it as a graph.
        pub speed: f64 => "CPU Speed (GHz)", Decimal;
    }
    chart_label = "{marker.data.speed}GHz";
    table_label = "{marker.name} - Speed = {marker.data.speed}GHz";
    tooltip_label = "{marker.name} Speed = {marker.data.speed}GHz";
    graph = (speed, Bar, Ink);
}

marker_type! {
    /// How a thread used its time, and how often it left its processor: the feature
    /// [`CONTEXT_SWITCHES`](crate::Features::CONTEXT_SWITCHES) adds such a marker to the track of a
    /// thread that has run, for each 100 ms or more.
    ///
    /// `ran`, `waited` and `slept` add up to the length of the marker. The viewer draws `waited` over
    /// time. If the kernel does not report waits, a marker has `ran` and both counts, the other two
    /// times are empty in its labels, there is no graph, and `profilingLog` says so.
    ///
    /// These are markers because the viewer shows a marker on the track of its thread. A counter
    /// would be a track of the process: three for each thread.
    #[doc(alias = "schedstat")]
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct ContextSwitches {
        /// Time on a processor.
        pub ran: Duration => "Ran", Duration;
        /// Time in which the thread could have run and had no processor; `None` if the kernel does not
        /// report it.
        pub waited: Option<Duration> => "Waited for a processor", Duration;
        /// The rest of the time: the thread waited for something else. `None` without `waited`.
        pub slept: Option<Duration> => "Slept", Duration;
        /// How often the thread left its processor to wait for something.
        pub voluntary: u64 => "Voluntary switches", Integer;
        /// How often the kernel took the processor from the thread.
        pub involuntary: u64 => "Involuntary switches", Integer;
    }
    chart_label = "waited {marker.data.waited} for a processor";
    table_label = "ran {marker.data.ran}, waited {marker.data.waited} for a processor, slept {marker.data.slept}";
    graph = (waited, Bar, Orange);
}

payload! {
    /// An interval in which a thread is awake. Its start marker has the core, its end marker the CPU
    /// time used.
    #[derive(Clone, Copy, PartialEq, Debug)]
    pub struct Awake {
        /// CPU time used, in ns; `None` in the start marker.
        pub cpu_time_ns: Option<u64>,
        /// Number of the core; `None` in the end marker.
        pub cpu_id: Option<u32>,
    }
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
    table_label = "{marker.name} - {marker.data.Count}";
}

payload! {
    /// The life of a thread that has not registered, on the main thread's track. The feature
    /// `unregisteredthreads` records it.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub struct UnregisteredThreadLifetime {
        /// The thread's id.
        pub thread_id: ThreadId,
        /// The thread's name, as the system has it.
        pub thread_name: String,
        /// Why the thread is no longer watched.
        pub end_event: String,
    }
}

impl ProfilerMarker for UnregisteredThreadLifetime {
    fn marker_type_name() -> &'static str {
        "UnregisteredThreadLifetime"
    }

    fn marker_type_display() -> MarkerSchema {
        let mut schema = MarkerSchema::new(&[Location::MarkerChart, Location::MarkerTable]);
        schema
            .add_key_format("Thread Id", Format::Integer)
            .add_key_format("Thread Name", Format::String)
            .add_key_format("End Event", Format::String);
        schema.set_chart_label("{marker.name}");
        schema.set_table_label("{marker.name} lifetime");
        schema
    }

    fn stream_json_marker_data(&self, json_writer: &mut JSONWriter<'_>) {
        json_writer.int_property("Thread Id", self.thread_id.to_number().into());
        json_writer.string_property("Thread Name", &self.thread_name);
        json_writer.string_property("End Event", &self.end_event);
    }
}

payload! {
    /// The CPU time of a thread that has not registered, on the main thread's track. The feature
    /// `unregisteredthreads` records it.
    #[derive(Clone, Copy, PartialEq, Debug)]
    pub struct UnregisteredThreadCPU {
        /// The thread's id.
        pub thread_id: ThreadId,
        /// CPU time in the marker's interval, in ns.
        pub cpu_time_ns: u64,
        /// CPU time divided by the length of the interval.
        pub utilization: f64,
    }
}

impl ProfilerMarker for UnregisteredThreadCPU {
    fn marker_type_name() -> &'static str {
        "UnregisteredThreadCPU"
    }

    fn marker_type_display() -> MarkerSchema {
        let mut schema = MarkerSchema::new(&[Location::MarkerChart, Location::MarkerTable]);
        schema
            .add_key_format("Thread Id", Format::Integer)
            .add_key_format("CPU Time", Format::Nanoseconds)
            .add_key_format("CPU Utilization", Format::Percentage);
        schema.set_table_label("{marker.name} - Activity: {marker.data.CPU Utilization}");
        schema
    }

    fn stream_json_marker_data(&self, json_writer: &mut JSONWriter<'_>) {
        json_writer.int_property("Thread Id", self.thread_id.to_number().into());
        json_writer.float_property("CPU Time", self.cpu_time_ns as f64);
        json_writer.float_property("CPU Utilization", self.utilization);
    }
}

payload! {
    /// An allocation or, with a negative size, a deallocation.
    ///
    /// If these markers have stacks, the viewer builds call trees of retained, allocated and freed
    /// memory from them.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct NativeAllocation {
        /// Size in bytes; negative for a deallocation.
        pub size: i64,
        /// Address of the memory.
        pub memory_address: u64,
        /// The thread that allocated or freed the memory.
        pub thread_id: ThreadId,
        /// Size of the memory itself in bytes, if `size` is an estimate of the bytes that this sample
        /// represents; 0 otherwise.
        pub sampled_size: u64,
    }
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
        if self.sampled_size > 0 {
            json_writer.uint_property("sampledSize", self.sampled_size);
        }
    }
}

payload! {
    /// An allocation by a script interpreter. If these markers have stacks, the viewer builds a call
    /// tree from them.
    #[doc(alias = "JsAllocationMarker")]
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub struct JsAllocation {
        /// Class of the object: “Function”, for example.
        pub class_name: CowString,
        /// The interpreter's type of the object: “JSObject”, for example.
        pub type_name: CowString,
        /// Coarse type of the object: “Object” or “String”, for example.
        pub coarse_type: CowString,
        /// Size in bytes.
        pub size: u64,
        /// Whether the object is in the nursery, where the interpreter allocates young objects.
        pub in_nursery: bool,
    }
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
