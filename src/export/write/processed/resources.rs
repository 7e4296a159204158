//! The resources and source files of functions.

use std::collections::HashMap;

use crate::export::write::processed::columns::{column, constant_column};
use crate::export::write::processed::context::Context;
use crate::export::write::processed::strings::Strings;
use crate::export::write::processed::used_rows::Rows;
use crate::json::JsonWriter;
use crate::model::{Function, FunctionId, FunctionKind, ProfileModel, TextId};

/// The collection of code that functions belong to.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Resource<'a> {
    Library {
        name: &'a str,
    },
    /// Scripts of a web server or of a browser extension.
    Host {
        origin: &'a str,
        host: &'a str,
    },
    Script {
        url: &'a str,
    },
}

impl<'a> Resource<'a> {
    /// Returns the number of the type in the format.
    fn type_number(self) -> u64 {
        match self {
            Self::Library { .. } => 1,
            Self::Host { .. } => 3,
            Self::Script { .. } => 5,
        }
    }

    fn name(self) -> &'a str {
        match self {
            Self::Library { name } => name,
            Self::Host { origin, .. } => origin,
            Self::Script { url } => url,
        }
    }

    fn host(self) -> Option<&'a str> {
        match self {
            Self::Host { host, .. } => Some(host),
            Self::Library { .. } | Self::Script { .. } => None,
        }
    }

    fn of_script(url: &'a str) -> Self {
        for scheme in ["http://", "https://", "moz-extension://"] {
            if let Some(rest) = url.strip_prefix(scheme) {
                let host = rest.split(['/', '?', '#']).next().unwrap_or(rest);
                let origin = &url[..scheme.len() + host.len()];
                return Self::Host { origin, host };
            }
        }
        Self::Script { url }
    }

    fn of_function(profile: &'a ProfileModel, function: &Function) -> Option<Self> {
        match function.kind {
            FunctionKind::Native => {
                let name = &profile.module(function.module?).name;
                Some(Self::Library { name })
            }
            FunctionKind::Script => Some(Self::of_script(profile.text(function.file?))),
            FunctionKind::Label | FunctionKind::Structure => None,
        }
    }
}

/// The resources and source files of the written functions, in the order of their first use.
pub(super) struct Resources<'a> {
    resources: Vec<Resource<'a>>,
    resource_indices: HashMap<Resource<'a>, u32>,
    /// Paths or URLs.
    sources: Vec<TextId>,
    source_indices: HashMap<TextId, u32>,
}

impl<'a> Resources<'a> {
    pub(super) fn of(profile: &'a ProfileModel, functions: &Rows) -> Self {
        let mut all = Self {
            resources: Vec::new(),
            resource_indices: HashMap::new(),
            sources: Vec::new(),
            source_indices: HashMap::new(),
        };
        for function in functions.iter().map(FunctionId) {
            let function = profile.function(function);
            if let Some(resource) = Resource::of_function(profile, function) {
                all.resource_indices.entry(resource).or_insert_with(|| {
                    all.resources.push(resource);
                    all.resources.len() as u32 - 1
                });
            }
            if let Some(file) = function.file {
                all.source_indices.entry(file).or_insert_with(|| {
                    all.sources.push(file);
                    all.sources.len() as u32 - 1
                });
            }
        }
        all
    }

    pub(super) fn resource_of(
        &self,
        profile: &'a ProfileModel,
        function: &Function,
    ) -> Option<u32> {
        let resource = Resource::of_function(profile, function)?;
        self.resource_indices.get(&resource).copied()
    }

    /// Returns the index of the file of a written function.
    pub(super) fn source_of(&self, file: TextId) -> u32 {
        self.source_indices[&file]
    }

    pub(super) fn write_resources(&self, json: &mut JsonWriter<'_>, strings: &mut Strings<'_>) {
        json.object(|json| {
            json.key("name").array(|json| {
                for resource in &self.resources {
                    json.unsigned(strings.other(resource.name()));
                }
            });
            json.key("host").array(|json| {
                for resource in &self.resources {
                    match resource.host() {
                        Some(host) => json.unsigned(strings.other(host)),
                        None => json.null(),
                    }
                }
            });
            column(json, "type", self.resources.iter(), |json, resource| {
                json.unsigned(resource.type_number());
            });
            json.key("length").unsigned(self.resources.len() as u64);
        });
    }

    /// Writes the source files, with the texts that are known.
    pub(super) fn write_sources(
        &self,
        json: &mut JsonWriter<'_>,
        context: &Context<'_>,
        strings: &mut Strings<'_>,
    ) {
        let text_of = |file| {
            let of_profile = context.profile.sources.get(file);
            let of_profile = of_profile.map(|text| &text.0);
            of_profile.or_else(|| context.options.sources.get(&file.0))
        };
        let length = self.sources.len();
        json.object(|json| {
            constant_column(json, "id", length, "null");
            json.key("filename").array(|json| {
                for &file in &self.sources {
                    json.unsigned(strings.text(file));
                }
            });
            // Where the file begins in a larger one: these are whole files.
            constant_column(json, "startLine", length, "1");
            constant_column(json, "startColumn", length, "1");
            constant_column(json, "sourceMapURL", length, "null");
            column(
                json,
                "content",
                self.sources.iter(),
                |json, file| match text_of(file) {
                    Some(text) => json.string(text),
                    None => json.null(),
                },
            );
            json.key("length").unsigned(length as u64);
        });
    }
}
