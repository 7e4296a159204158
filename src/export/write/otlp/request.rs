//! Makes the request from the messages of a pprof profile, which has the same samples.

use std::collections::HashMap;
use std::io::{self, Write};

use prost::Message;

use super::dictionary::Tables;
use super::messages::{
    AnyValue, ExportRequest, Function, KeyValue, Line, Link, Location, Mapping, Profile, Resource,
    ResourceProfiles, Sample, Scope, ScopeProfiles, Stack, Value, ValueType,
};
use crate::export::options::ExportOptions;
use crate::export::write::pprof;
use crate::model::ProfileModel;

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

/// A sample's stack, attributes and link.
type Identity = (i32, Vec<i32>, i32);

struct Builder<'a> {
    pprof: &'a pprof::Profile,
    tables: Tables,
    /// By their ids.
    functions: HashMap<u64, &'a pprof::Function>,
    mappings: HashMap<u64, &'a pprof::Mapping>,
    locations: HashMap<u64, &'a pprof::Location>,
    /// The indices of those that samples refer to, by their ids.
    known_locations: HashMap<u64, i32>,
}

impl<'a> Builder<'a> {
    fn new(pprof: &'a pprof::Profile) -> Self {
        Self {
            pprof,
            tables: Tables::new(),
            functions: pprof.function.iter().map(|one| (one.id, one)).collect(),
            mappings: pprof.mapping.iter().map(|one| (one.id, one)).collect(),
            locations: pprof.location.iter().map(|one| (one.id, one)).collect(),
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
            let period_type = Some(self.wall_time());
            profiles.push(Profile {
                sample_type: Some(self.value_type(*kind)),
                samples,
                time_unix_nano: u64::try_from(pprof.time_nanos).unwrap_or(0),
                duration_nano: u64::try_from(pprof.duration_nanos).unwrap_or(0),
                period_type,
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

    /// Returns what the period measures. With "cpu", Pyroscope would take the number of samples for
    /// CPU time, also those of threads that sleep.
    fn wall_time(&mut self) -> ValueType {
        ValueType {
            type_strindex: self.tables.text("wall"),
            unit_strindex: self.tables.text("nanoseconds"),
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
        let mut samples: Vec<Sample> = Vec::new();
        let mut known: HashMap<Identity, usize> = HashMap::new();
        for sample in &self.pprof.sample {
            let value = sample.value.get(place).copied().unwrap_or(0);
            if value == 0 {
                continue;
            }
            let locations = sample.location_id.iter().map(|id| self.location(*id));
            let location_indices = locations.collect();
            let stack_index = self.tables.stacks.index(Stack { location_indices });
            let (attribute_indices, link_index) = self.labels(&sample.label);
            let identity = (stack_index, attribute_indices.clone(), link_index);
            let row = *known.entry(identity).or_insert_with(|| {
                samples.push(Sample {
                    stack_index,
                    attribute_indices,
                    link_index,
                    values: vec![0],
                    timestamps_unix_nano: Vec::new(),
                });
                samples.len() - 1
            });
            let sum = &mut samples[row].values[0];
            *sum = sum.saturating_add(value);
        }
        samples
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
        let index = self.locations.get(&id).copied().map_or(0, |location| {
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
        self.functions.get(&id).copied().map_or(0, |function| {
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
        self.mappings.get(&id).copied().map_or(0, |mapping| {
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
