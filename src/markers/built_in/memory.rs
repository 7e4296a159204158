//! Allocations, from which the viewer builds call trees.

use crate::markers::built_in::text::CowString;
use crate::markers::json_writer::JSONWriter;
use crate::markers::profiler_marker::ProfilerMarker;
use crate::markers::schema::MarkerSchema;
use crate::types::ThreadId;

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
