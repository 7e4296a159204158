//! The messages of `profile.proto` of google/pprof, with the fields that the writer fills in.

use prost::Message;

/// A profile. The writer writes it in parts: a reader that finds a list in several parts appends
/// them.
#[derive(Clone, PartialEq, Message)]
pub(in crate::export::write) struct Profile {
    #[prost(message, repeated, tag = "1")]
    pub(in crate::export::write) sample_type: Vec<ValueType>,
    #[prost(message, repeated, tag = "2")]
    pub(in crate::export::write) sample: Vec<Sample>,
    #[prost(message, repeated, tag = "3")]
    pub(in crate::export::write) mapping: Vec<Mapping>,
    #[prost(message, repeated, tag = "4")]
    pub(in crate::export::write) location: Vec<Location>,
    #[prost(message, repeated, tag = "5")]
    pub(in crate::export::write) function: Vec<Function>,
    /// All texts. Other messages refer to them by their index. The first one is empty.
    #[prost(string, repeated, tag = "6")]
    pub(in crate::export::write) string_table: Vec<String>,
    /// Present so that tests see that it is never written.
    #[prost(int64, tag = "7")]
    pub(in crate::export::write) drop_frames: i64,
    /// Start of the profile, in ns since the Unix epoch.
    #[prost(int64, tag = "9")]
    pub(in crate::export::write) time_nanos: i64,
    #[prost(int64, tag = "10")]
    pub(in crate::export::write) duration_nanos: i64,
    #[prost(message, optional, tag = "11")]
    pub(in crate::export::write) period_type: Option<ValueType>,
    #[prost(int64, tag = "12")]
    pub(in crate::export::write) period: i64,
    /// The sample type that a reader shows first; 0 for the last one.
    #[prost(int64, tag = "14")]
    pub(in crate::export::write) default_sample_type: i64,
}

/// The meaning and the unit of a value, as texts.
#[derive(Clone, Copy, PartialEq, Message)]
pub(in crate::export::write) struct ValueType {
    #[prost(int64, tag = "1")]
    pub(in crate::export::write) kind: i64,
    #[prost(int64, tag = "2")]
    pub(in crate::export::write) unit: i64,
}

/// The values of all samples with one stack and the same labels.
#[derive(Clone, PartialEq, Message)]
pub(in crate::export::write) struct Sample {
    /// Ids of the locations, the innermost first.
    #[prost(uint64, repeated, tag = "1")]
    pub(in crate::export::write) location_id: Vec<u64>,
    /// One value for each sample type.
    #[prost(int64, repeated, tag = "2")]
    pub(in crate::export::write) value: Vec<i64>,
    #[prost(message, repeated, tag = "3")]
    pub(in crate::export::write) label: Vec<Label>,
}

/// A label of a sample: a text or a number.
#[derive(Clone, Copy, PartialEq, Message)]
pub(in crate::export::write) struct Label {
    #[prost(int64, tag = "1")]
    pub(in crate::export::write) key: i64,
    #[prost(int64, tag = "2")]
    pub(in crate::export::write) str: i64,
    #[prost(int64, tag = "3")]
    pub(in crate::export::write) num: i64,
}

/// A module at its addresses.
#[derive(Clone, PartialEq, Message)]
pub(in crate::export::write) struct Mapping {
    #[prost(uint64, tag = "1")]
    pub(in crate::export::write) id: u64,
    #[prost(uint64, tag = "2")]
    pub(in crate::export::write) memory_start: u64,
    #[prost(uint64, tag = "3")]
    pub(in crate::export::write) memory_limit: u64,
    #[prost(uint64, tag = "4")]
    pub(in crate::export::write) file_offset: u64,
    #[prost(int64, tag = "5")]
    pub(in crate::export::write) filename: i64,
    #[prost(int64, tag = "6")]
    pub(in crate::export::write) build_id: i64,
    #[prost(bool, tag = "7")]
    pub(in crate::export::write) has_functions: bool,
    #[prost(bool, tag = "8")]
    pub(in crate::export::write) has_filenames: bool,
    #[prost(bool, tag = "9")]
    pub(in crate::export::write) has_line_numbers: bool,
    #[prost(bool, tag = "10")]
    pub(in crate::export::write) has_inline_frames: bool,
}

/// An address with its functions, or a frame that has no address.
#[derive(Clone, PartialEq, Message)]
pub(in crate::export::write) struct Location {
    #[prost(uint64, tag = "1")]
    pub(in crate::export::write) id: u64,
    /// 0 for none.
    #[prost(uint64, tag = "2")]
    pub(in crate::export::write) mapping_id: u64,
    #[prost(uint64, tag = "3")]
    pub(in crate::export::write) address: u64,
    /// The innermost inlined function first, and the one that the others were inlined into last.
    #[prost(message, repeated, tag = "4")]
    pub(in crate::export::write) line: Vec<Line>,
}

/// A position in a function.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Message)]
pub(in crate::export::write) struct Line {
    #[prost(uint64, tag = "1")]
    pub(in crate::export::write) function_id: u64,
    #[prost(int64, tag = "2")]
    pub(in crate::export::write) line: i64,
    #[prost(int64, tag = "3")]
    pub(in crate::export::write) column: i64,
}

/// A function.
#[derive(Clone, PartialEq, Message)]
pub(in crate::export::write) struct Function {
    #[prost(uint64, tag = "1")]
    pub(in crate::export::write) id: u64,
    /// The name for people.
    #[prost(int64, tag = "2")]
    pub(in crate::export::write) name: i64,
    /// The name in the symbol table.
    #[prost(int64, tag = "3")]
    pub(in crate::export::write) system_name: i64,
    #[prost(int64, tag = "4")]
    pub(in crate::export::write) filename: i64,
    #[prost(int64, tag = "5")]
    pub(in crate::export::write) start_line: i64,
}
