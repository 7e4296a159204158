//! Writes OpenTelemetry's profiles, of the version that is called `v1development` and may change.
//!
//! A request has one profile for each kind of value, because the format allows one:
//! `samples/count`, `wall/nanoseconds` and `cpu/nanoseconds`. All samples have one shape: a value,
//! and no times. The first element of each table is empty. Tables have no duplicates, and samples
//! refer to all other elements. Mappings have build ids. A sample of a span has a link with the ids
//! of trace and span.
//!
//! A request is made from the messages of a pprof profile, which has the same samples.

use std::collections::HashMap;
use std::hash::Hash;
use std::io::{self, Write};

use prost::{Message, Oneof};

use crate::export::options::ExportOptions;
use crate::export::write::pprof;
use crate::model::ProfileModel;
use crate::util::UniqueList;

/// The key of a mapping's build id, by OpenTelemetry's conventions.
const BUILD_ID: &str = "process.executable.build_id.gnu";
/// Labels of pprof profiles, and their keys by OpenTelemetry's conventions.
const KEYS: &[(&str, &str)] = &[("thread", "thread.name"), ("thread_id", "thread.id")];

/// What a request says about the process.
#[derive(Clone, Debug)]
pub(crate) struct OtlpResource {
    /// `service.name` and others.
    pub(crate) attributes: Vec<(String, String)>,
    /// Sixteen bytes that no other request has.
    pub(crate) id: u128,
}

/// Writes a request for the path `/v1development/profiles`, with a profile for each kind of value.
pub(crate) fn write_otlp(
    profile: &ProfileModel,
    options: &ExportOptions,
    resource: &OtlpResource,
    out: &mut dyn Write,
) -> io::Result<()> {
    let pprof = pprof::to_message(profile, options)?;
    let request = Builder::new(&pprof).request(resource);
    out.write_all(&request.encode_to_vec())
}

struct Builder<'a> {
    pprof: &'a pprof::Profile,
    tables: Tables,
    /// The indices of those that samples refer to, by their ids.
    known_locations: HashMap<u64, i32>,
}

impl<'a> Builder<'a> {
    fn new(pprof: &'a pprof::Profile) -> Self {
        Self {
            pprof,
            tables: Tables::default(),
            known_locations: HashMap::new(),
        }
    }

    fn text(&self, index: i64) -> &'a str {
        let text = usize::try_from(index).ok();
        let text = text.and_then(|index| self.pprof.string_table.get(index));
        text.map_or("", String::as_str)
    }

    fn indexed_text(&mut self, index: i64) -> i32 {
        let text = self.text(index);
        self.tables.text(text)
    }

    fn request(mut self, resource: &OtlpResource) -> ExportRequest {
        let pprof = self.pprof;
        let mut profiles = Vec::new();
        for (place, kind) in pprof.sample_type.iter().enumerate() {
            let samples = self.samples(place);
            // With "cpu", Pyroscope would take the number of samples for CPU time, also those of
            // threads that sleep.
            let wall_time = ValueType {
                type_strindex: self.tables.text("wall"),
                unit_strindex: self.tables.text("nanoseconds"),
            };
            profiles.push(Profile {
                sample_type: Some(self.value_type(*kind)),
                samples,
                time_unix_nano: u64::try_from(pprof.time_nanos).unwrap_or(0),
                duration_nano: u64::try_from(pprof.duration_nanos).unwrap_or(0),
                period_type: Some(wall_time),
                period: pprof.period,
                profile_id: resource
                    .id
                    .wrapping_add(place as u128)
                    .to_be_bytes()
                    .to_vec(),
            });
        }
        let attributes = resource.attributes.iter().map(|(key, value)| KeyValue {
            key: key.clone(),
            value: Some(AnyValue {
                value: Some(Value::Text(value.clone())),
            }),
        });
        ExportRequest {
            resource_profiles: vec![ResourceProfiles {
                resource: Some(Resource {
                    attributes: attributes.collect(),
                }),
                scope_profiles: vec![ScopeProfiles {
                    scope: Some(Scope {
                        name: "gekkota".to_owned(),
                        version: env!("CARGO_PKG_VERSION").to_owned(),
                    }),
                    profiles,
                }],
            }],
            dictionary: Some(self.tables.into_dictionary()),
        }
    }

    fn value_type(&mut self, kind: pprof::ValueType) -> ValueType {
        ValueType {
            type_strindex: self.indexed_text(kind.kind),
            unit_strindex: self.indexed_text(kind.unit),
        }
    }

    /// Returns the samples that have a value of the kind at this place, each identity once.
    fn samples(&mut self, place: usize) -> Vec<Sample> {
        let mut identities = UniqueList::default();
        let mut sums: Vec<i64> = Vec::new();
        for sample in &self.pprof.sample {
            let value = sample.value.get(place).copied().unwrap_or(0);
            if value == 0 {
                continue;
            }
            let locations = sample.location_id.iter().map(|id| self.location(*id));
            let location_indices = locations.collect();
            let stack_index = self.tables.stacks.index(Stack { location_indices });
            let row = identities.index(&(stack_index, self.labels(&sample.label))) as usize;
            sums.resize(identities.elements.len(), 0);
            sums[row] = sums[row].saturating_add(value);
        }
        let samples = identities.elements.into_iter().zip(sums);
        let samples = samples.map(|((stack_index, labels), sum)| Sample {
            stack_index,
            attribute_indices: labels.0,
            link_index: labels.1,
            values: vec![sum],
            timestamps_unix_nano: Vec::new(),
        });
        samples.collect()
    }

    /// Returns the attributes of a sample, and its link.
    fn labels(&mut self, labels: &[pprof::Label]) -> (Vec<i32>, i32) {
        let id_of = |this: &Self, key: &str| {
            let label = labels.iter().find(|label| this.text(label.key) == key);
            label.map(|label| this.text(label.str))
        };
        let trace = id_of(self, "trace_id").and_then(|id| u128::from_str_radix(id, 16).ok());
        let span = id_of(self, "span_id").and_then(|id| u64::from_str_radix(id, 16).ok());
        let ids = trace
            .zip(span)
            .filter(|(trace, span)| *trace != 0 && *span != 0);
        let link = ids.map_or(0, |(trace, span)| {
            self.tables.links.index(Link {
                trace_id: trace.to_be_bytes().to_vec(),
                span_id: span.to_be_bytes().to_vec(),
            })
        });
        let (mut attributes, mut keys) = (Vec::new(), Vec::new());
        for label in labels {
            let key = self.text(label.key);
            if link != 0 && matches!(key, "trace_id" | "span_id") {
                continue;
            }
            let named = KEYS.iter().find(|(known, _)| *known == key);
            let key = named.map_or(key, |(_, name)| name);
            if keys.contains(&key) {
                continue;
            }
            keys.push(key);
            let value = match label.str {
                0 => Value::Number(label.num),
                text => Value::Text(self.text(text).to_owned()),
            };
            attributes.push(self.tables.attribute(key, value));
        }
        // A set, whatever the order.
        attributes.sort_unstable();
        (attributes, link)
    }

    fn location(&mut self, id: u64) -> i32 {
        if let Some(known) = self.known_locations.get(&id) {
            return *known;
        }
        let index = element(&self.pprof.location, id).map_or(0, |location| {
            let lines = location.line.iter().map(|line| Line {
                function_index: self.function(line.function_id),
                line: line.line,
                column: line.column,
            });
            let lines = lines.collect();
            let mapping_index = self.mapping(location.mapping_id);
            self.tables.locations.index(Location {
                mapping_index,
                address: location.address,
                lines,
            })
        });
        self.known_locations.insert(id, index);
        index
    }

    fn function(&mut self, id: u64) -> i32 {
        element(&self.pprof.function, id).map_or(0, |function| {
            let message = Function {
                name_strindex: self.indexed_text(function.name),
                system_name_strindex: self.indexed_text(function.system_name),
                filename_strindex: self.indexed_text(function.filename),
                start_line: function.start_line,
            };
            self.tables.functions.index(message)
        })
    }

    fn mapping(&mut self, id: u64) -> i32 {
        let mapping = self.pprof.mapping.iter().find(|mapping| mapping.id == id);
        mapping.map_or(0, |mapping| {
            let build_id = self.text(mapping.build_id);
            let attribute = (!build_id.is_empty()).then(|| {
                self.tables
                    .attribute(BUILD_ID, Value::Text(build_id.to_owned()))
            });
            let message = Mapping {
                memory_start: mapping.memory_start,
                memory_limit: mapping.memory_limit,
                file_offset: mapping.file_offset,
                filename_strindex: self.indexed_text(mapping.filename),
                attribute_indices: attribute.into_iter().collect(),
            };
            self.tables.mappings.index(message)
        })
    }
}

/// Returns the function or the location with an id. Their ids are their places, from 1 on.
fn element<T>(elements: &[T], id: u64) -> Option<&T> {
    elements.get(usize::try_from(id).ok()?.checked_sub(1)?)
}

/// The tables of a message. An element is added when it is referred to, so each is used.
#[derive(Default)]
struct Tables {
    texts: Table<String>,
    attributes: Table<Attribute>,
    links: Table<Link>,
    mappings: Table<Mapping>,
    functions: Table<Function>,
    locations: Table<Location>,
    stacks: Table<Stack>,
}

impl Tables {
    fn text(&mut self, text: &str) -> i32 {
        self.texts.index(text.to_owned())
    }

    fn attribute(&mut self, key: &str, value: Value) -> i32 {
        let attribute = Attribute {
            key_strindex: self.text(key),
            value: Some(AnyValue { value: Some(value) }),
        };
        self.attributes.index(attribute)
    }

    fn into_dictionary(self) -> Dictionary {
        Dictionary {
            mapping_table: self.mappings.0.elements,
            location_table: self.locations.0.elements,
            function_table: self.functions.0.elements,
            link_table: self.links.0.elements,
            string_table: self.texts.0.elements,
            attribute_table: self.attributes.0.elements,
            stack_table: self.stacks.0.elements,
        }
    }
}

/// A table without duplicates, whose first element is empty.
struct Table<T>(UniqueList<T>);

impl<T: Clone + Default + Eq + Hash> Default for Table<T> {
    fn default() -> Self {
        let mut elements = UniqueList::default();
        elements.index(&T::default());
        Self(elements)
    }
}

impl<T: Clone + Eq + Hash> Table<T> {
    /// Returns the index of an element, and adds it if it is new.
    fn index(&mut self, element: T) -> i32 {
        i32::try_from(self.0.index(&element)).unwrap_or(0)
    }
}

// The messages of OpenTelemetry's `profiles.proto` (`v1development`) and of what it uses, with the
// fields that the writer fills in.

/// The request that a collector takes.
#[derive(Clone, PartialEq, Message)]
struct ExportRequest {
    #[prost(message, repeated, tag = "1")]
    resource_profiles: Vec<ResourceProfiles>,
    #[prost(message, optional, tag = "2")]
    dictionary: Option<Dictionary>,
}

/// The tables that profiles refer to by index. The first element of each is empty.
#[derive(Clone, PartialEq, Message)]
struct Dictionary {
    #[prost(message, repeated, tag = "1")]
    mapping_table: Vec<Mapping>,
    #[prost(message, repeated, tag = "2")]
    location_table: Vec<Location>,
    #[prost(message, repeated, tag = "3")]
    function_table: Vec<Function>,
    #[prost(message, repeated, tag = "4")]
    link_table: Vec<Link>,
    #[prost(string, repeated, tag = "5")]
    string_table: Vec<String>,
    #[prost(message, repeated, tag = "6")]
    attribute_table: Vec<Attribute>,
    #[prost(message, repeated, tag = "7")]
    stack_table: Vec<Stack>,
}

/// The profiles of a process.
#[derive(Clone, PartialEq, Message)]
struct ResourceProfiles {
    #[prost(message, optional, tag = "1")]
    resource: Option<Resource>,
    #[prost(message, repeated, tag = "2")]
    scope_profiles: Vec<ScopeProfiles>,
}

#[derive(Clone, PartialEq, Message)]
struct Resource {
    #[prost(message, repeated, tag = "1")]
    attributes: Vec<KeyValue>,
}

#[derive(Clone, PartialEq, Message)]
struct KeyValue {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(message, optional, tag = "2")]
    value: Option<AnyValue>,
}

#[derive(Clone, PartialEq, Eq, Hash, Message)]
struct AnyValue {
    #[prost(oneof = "Value", tags = "1, 3")]
    value: Option<Value>,
}

#[derive(Clone, PartialEq, Eq, Hash, Oneof)]
enum Value {
    #[prost(string, tag = "1")]
    Text(String),
    #[prost(int64, tag = "3")]
    Number(i64),
}

#[derive(Clone, PartialEq, Message)]
struct ScopeProfiles {
    #[prost(message, optional, tag = "1")]
    scope: Option<Scope>,
    #[prost(message, repeated, tag = "2")]
    profiles: Vec<Profile>,
}

/// The library that has recorded the profiles.
#[derive(Clone, PartialEq, Message)]
struct Scope {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    version: String,
}

/// A profile of one kind of value.
#[derive(Clone, PartialEq, Message)]
struct Profile {
    #[prost(message, optional, tag = "1")]
    sample_type: Option<ValueType>,
    #[prost(message, repeated, tag = "2")]
    samples: Vec<Sample>,
    #[prost(fixed64, tag = "3")]
    time_unix_nano: u64,
    #[prost(uint64, tag = "4")]
    duration_nano: u64,
    #[prost(message, optional, tag = "5")]
    period_type: Option<ValueType>,
    #[prost(int64, tag = "6")]
    period: i64,
    #[prost(bytes = "vec", tag = "7")]
    profile_id: Vec<u8>,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct ValueType {
    #[prost(int32, tag = "1")]
    type_strindex: i32,
    #[prost(int32, tag = "2")]
    unit_strindex: i32,
}

/// The span that samples belong to.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
struct Link {
    #[prost(bytes = "vec", tag = "1")]
    trace_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    span_id: Vec<u8>,
}

/// The samples with one stack, the same attributes and the same link.
#[derive(Clone, PartialEq, Message)]
struct Sample {
    #[prost(int32, tag = "1")]
    stack_index: i32,
    #[prost(int32, repeated, tag = "2")]
    attribute_indices: Vec<i32>,
    #[prost(int32, tag = "3")]
    link_index: i32,
    /// One value.
    #[prost(int64, repeated, tag = "4")]
    values: Vec<i64>,
    /// Present so that tests see that it is never written.
    #[prost(fixed64, repeated, tag = "5")]
    timestamps_unix_nano: Vec<u64>,
}

#[derive(Clone, PartialEq, Eq, Hash, Message)]
struct Mapping {
    #[prost(uint64, tag = "1")]
    memory_start: u64,
    #[prost(uint64, tag = "2")]
    memory_limit: u64,
    #[prost(uint64, tag = "3")]
    file_offset: u64,
    #[prost(int32, tag = "4")]
    filename_strindex: i32,
    #[prost(int32, repeated, tag = "5")]
    attribute_indices: Vec<i32>,
}

/// The locations of a stack, the innermost first.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
struct Stack {
    #[prost(int32, repeated, tag = "1")]
    location_indices: Vec<i32>,
}

#[derive(Clone, PartialEq, Eq, Hash, Message)]
struct Location {
    #[prost(int32, tag = "1")]
    mapping_index: i32,
    #[prost(uint64, tag = "2")]
    address: u64,
    /// The innermost inlined function first.
    #[prost(message, repeated, tag = "3")]
    lines: Vec<Line>,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Message)]
struct Line {
    #[prost(int32, tag = "1")]
    function_index: i32,
    #[prost(int64, tag = "2")]
    line: i64,
    #[prost(int64, tag = "3")]
    column: i64,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Message)]
struct Function {
    #[prost(int32, tag = "1")]
    name_strindex: i32,
    #[prost(int32, tag = "2")]
    system_name_strindex: i32,
    #[prost(int32, tag = "3")]
    filename_strindex: i32,
    #[prost(int64, tag = "4")]
    start_line: i64,
}

#[derive(Clone, PartialEq, Eq, Hash, Message)]
struct Attribute {
    #[prost(int32, tag = "1")]
    key_strindex: i32,
    #[prost(message, optional, tag = "2")]
    value: Option<AnyValue>,
}

#[cfg(test)]
#[path = "otlp_tests.rs"]
mod tests;
