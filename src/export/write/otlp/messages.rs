//! The messages of OpenTelemetry's `profiles.proto` (`v1development`) and of what it uses, with the
//! fields that the writer fills in.

use prost::{Message, Oneof};

/// The request that a collector takes.
#[derive(Clone, PartialEq, Message)]
pub(super) struct ExportRequest {
    #[prost(message, repeated, tag = "1")]
    pub(super) resource_profiles: Vec<ResourceProfiles>,
    #[prost(message, optional, tag = "2")]
    pub(super) dictionary: Option<Dictionary>,
}

/// The tables that profiles refer to by index. The first element of each is empty.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Dictionary {
    #[prost(message, repeated, tag = "1")]
    pub(super) mapping_table: Vec<Mapping>,
    #[prost(message, repeated, tag = "2")]
    pub(super) location_table: Vec<Location>,
    #[prost(message, repeated, tag = "3")]
    pub(super) function_table: Vec<Function>,
    #[prost(message, repeated, tag = "4")]
    pub(super) link_table: Vec<Link>,
    #[prost(string, repeated, tag = "5")]
    pub(super) string_table: Vec<String>,
    #[prost(message, repeated, tag = "6")]
    pub(super) attribute_table: Vec<Attribute>,
    #[prost(message, repeated, tag = "7")]
    pub(super) stack_table: Vec<Stack>,
}

/// The profiles of a process.
#[derive(Clone, PartialEq, Message)]
pub(super) struct ResourceProfiles {
    #[prost(message, optional, tag = "1")]
    pub(super) resource: Option<Resource>,
    #[prost(message, repeated, tag = "2")]
    pub(super) scope_profiles: Vec<ScopeProfiles>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Resource {
    #[prost(message, repeated, tag = "1")]
    pub(super) attributes: Vec<KeyValue>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct KeyValue {
    #[prost(string, tag = "1")]
    pub(super) key: String,
    #[prost(message, optional, tag = "2")]
    pub(super) value: Option<AnyValue>,
}

#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub(super) struct AnyValue {
    #[prost(oneof = "Value", tags = "1, 3")]
    pub(super) value: Option<Value>,
}

#[derive(Clone, PartialEq, Eq, Hash, Oneof)]
pub(super) enum Value {
    #[prost(string, tag = "1")]
    Text(String),
    #[prost(int64, tag = "3")]
    Number(i64),
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ScopeProfiles {
    #[prost(message, optional, tag = "1")]
    pub(super) scope: Option<Scope>,
    #[prost(message, repeated, tag = "2")]
    pub(super) profiles: Vec<Profile>,
}

/// The library that has recorded the profiles.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Scope {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(string, tag = "2")]
    pub(super) version: String,
}

/// A profile of one kind of value.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Profile {
    #[prost(message, optional, tag = "1")]
    pub(super) sample_type: Option<ValueType>,
    #[prost(message, repeated, tag = "2")]
    pub(super) samples: Vec<Sample>,
    #[prost(fixed64, tag = "3")]
    pub(super) time_unix_nano: u64,
    #[prost(uint64, tag = "4")]
    pub(super) duration_nano: u64,
    #[prost(message, optional, tag = "5")]
    pub(super) period_type: Option<ValueType>,
    #[prost(int64, tag = "6")]
    pub(super) period: i64,
    #[prost(bytes = "vec", tag = "7")]
    pub(super) profile_id: Vec<u8>,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(super) struct ValueType {
    #[prost(int32, tag = "1")]
    pub(super) type_strindex: i32,
    #[prost(int32, tag = "2")]
    pub(super) unit_strindex: i32,
}

/// The span that samples belong to.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub(super) struct Link {
    #[prost(bytes = "vec", tag = "1")]
    pub(super) trace_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(super) span_id: Vec<u8>,
}

/// The samples with one stack, the same attributes and the same link.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Sample {
    #[prost(int32, tag = "1")]
    pub(super) stack_index: i32,
    #[prost(int32, repeated, tag = "2")]
    pub(super) attribute_indices: Vec<i32>,
    #[prost(int32, tag = "3")]
    pub(super) link_index: i32,
    /// One value.
    #[prost(int64, repeated, tag = "4")]
    pub(super) values: Vec<i64>,
    /// Present so that tests see that it is never written.
    #[prost(fixed64, repeated, tag = "5")]
    pub(super) timestamps_unix_nano: Vec<u64>,
}

#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub(super) struct Mapping {
    #[prost(uint64, tag = "1")]
    pub(super) memory_start: u64,
    #[prost(uint64, tag = "2")]
    pub(super) memory_limit: u64,
    #[prost(uint64, tag = "3")]
    pub(super) file_offset: u64,
    #[prost(int32, tag = "4")]
    pub(super) filename_strindex: i32,
    #[prost(int32, repeated, tag = "5")]
    pub(super) attribute_indices: Vec<i32>,
}

/// The locations of a stack, the innermost first.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub(super) struct Stack {
    #[prost(int32, repeated, tag = "1")]
    pub(super) location_indices: Vec<i32>,
}

#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub(super) struct Location {
    #[prost(int32, tag = "1")]
    pub(super) mapping_index: i32,
    #[prost(uint64, tag = "2")]
    pub(super) address: u64,
    /// The innermost inlined function first.
    #[prost(message, repeated, tag = "3")]
    pub(super) lines: Vec<Line>,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Message)]
pub(super) struct Line {
    #[prost(int32, tag = "1")]
    pub(super) function_index: i32,
    #[prost(int64, tag = "2")]
    pub(super) line: i64,
    #[prost(int64, tag = "3")]
    pub(super) column: i64,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Message)]
pub(super) struct Function {
    #[prost(int32, tag = "1")]
    pub(super) name_strindex: i32,
    #[prost(int32, tag = "2")]
    pub(super) system_name_strindex: i32,
    #[prost(int32, tag = "3")]
    pub(super) filename_strindex: i32,
    #[prost(int64, tag = "4")]
    pub(super) start_line: i64,
}

#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub(super) struct Attribute {
    #[prost(int32, tag = "1")]
    pub(super) key_strindex: i32,
    #[prost(message, optional, tag = "2")]
    pub(super) value: Option<AnyValue>,
}
