//! What the threads of a process share while a profile is read: facts, modules, categories and marker
//! types. Reads also the counters and pauses of a process.

use std::collections::{HashMap, HashSet};

use crate::export::read::builder::{Categories, ModelBuilder};
use crate::export::read::table::{Form, each_row};
use crate::export::read::value::{Object, Value};
use crate::model::{CategoryPair, Counter, CounterSample, Meta, Module, ModuleId, PausedRange};
use crate::types::ReadError;
use crate::util::SharedSort;

/// Maximum length of the interval between two samples, in ms. So the interval in ns fits into 64
/// bits many times.
const MAX_INTERVAL_MS: f64 = 1e9;

/// Formats of fields that hold the index of a string.
const INDEX_FORMATS: &[&str] = &["unique-string", "flow-id", "terminating-flow-id"];

/// The fields that hold the index of a string, by the marker's type.
type IndexFields = HashMap<String, HashSet<String>>;

/// The CPU time of samples, as the profile gives it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CpuUnit {
    Nanoseconds,
    Microseconds,
    /// Cycles of a clock whose rate is unknown. The model has no such times.
    Unknown,
}

impl CpuUnit {
    fn of(meta: &Object<'_, '_>) -> Result<Self, ReadError> {
        let Some(units) = meta.get("sampleUnits") else {
            return Ok(Self::Unknown);
        };
        let units = units.object("the units of the samples")?;
        Ok(match &*units.text("threadCPUDelta")? {
            "ns" => Self::Nanoseconds,
            "\u{b5}s" | "\u{3bc}s" | "us" => Self::Microseconds,
            _ => Self::Unknown,
        })
    }

    pub(crate) fn to_ns(self, value: f64) -> Option<u64> {
        let value = value.max(0.0);
        match self {
            Self::Nanoseconds => Some(value as u64),
            Self::Microseconds => Some((value * 1e3).round() as u64),
            Self::Unknown => None,
        }
    }
}

/// What the threads of a process share.
pub(crate) struct Context {
    pub(crate) form: Form,
    /// Start of the process, in ns since the profile's start. Its times are relative to it.
    pub(crate) offset_ns: i64,
    categories: Categories,
    pub(crate) index_fields: IndexFields,
    pub(crate) cpu_unit: CpuUnit,
    /// Sorted by address; in the order of the file if that has no addresses.
    pub(crate) modules: Vec<ModuleId>,
    /// The modules by their names.
    pub(crate) module_names: HashMap<String, ModuleId>,
    /// Index of the process in the model; the first one where the format does not tell.
    pub(crate) process: usize,
}

impl Context {
    /// Reads the context of a process from its profile and its `meta`.
    pub(crate) fn read(
        builder: &mut ModelBuilder,
        (form, offset_ns, process): (Form, i64, usize),
        (profile, meta): (&Object<'_, '_>, &Object<'_, '_>),
    ) -> Result<Self, ReadError> {
        let mut context = Self {
            form,
            offset_ns,
            categories: builder.read_categories(meta)?,
            index_fields: read_schemas(builder, meta)?,
            cpu_unit: CpuUnit::of(meta)?,
            modules: Vec::new(),
            module_names: HashMap::new(),
            process,
        };
        context.read_modules(builder, profile)?;
        Ok(context)
    }

    /// Adds the modules of a process, or of a thread, which replace the modules known before.
    pub(crate) fn read_modules(
        &mut self,
        builder: &mut ModelBuilder,
        part: &Object<'_, '_>,
    ) -> Result<(), ReadError> {
        let mut modules = Vec::new();
        for lib in part.list("libs").elements("an array of libraries")? {
            modules.push(self.read_module(&lib.object("a library")?)?);
        }
        modules.shared_sort_by_key(|module| (module.start, module.end));
        self.modules.clear();
        for module in modules {
            let names = [module.name.clone(), module.debug_name.clone()];
            let id = ModuleId(builder.profile.modules.len() as u32);
            builder.profile.modules.push(module);
            self.modules.push(id);
            for name in names {
                self.module_names.entry(name).or_insert(id);
            }
        }
        Ok(())
    }

    /// Reads an element of `libs`. The processed format has no addresses in it. A library with an
    /// address that JavaScript cannot hold exactly, which is written as -1, has no range.
    fn read_module(&self, lib: &Object<'_, '_>) -> Result<Module, ReadError> {
        let address = |key| {
            let address = lib.require(key, "an address")?;
            match address.text {
                "-1" => Ok(None),
                _ => address.unsigned("an address").map(Some),
            }
        };
        let range = match self.form {
            Form::Gecko => address("start")?.zip(address("end")?),
            Form::Processed => None,
        };
        let (start, end) = range.unwrap_or_default();
        let offset = lib.read("offset", |offset| offset.unsigned("an offset in the file"))?;
        let optional = |key| Ok(Some(lib.text(key)?).filter(|text| !text.is_empty()));
        Ok(Module {
            process: self.process,
            start,
            end,
            offset: offset.unwrap_or(0),
            name: lib.text("name")?,
            path: lib.text("path")?,
            debug_name: lib.text("debugName")?,
            debug_path: lib.text("debugPath")?,
            breakpad_id: lib.text("breakpadId")?,
            code_id: optional("codeId")?,
            arch: optional("arch")?,
        })
    }

    /// Returns a category of the profile, from a category and a subcategory of the process.
    pub(crate) fn category(
        &self,
        category: Option<Value<'_, '_>>,
        subcategory: Option<Value<'_, '_>>,
    ) -> Result<Option<CategoryPair>, ReadError> {
        let (Some(known), Some(category)) = (&self.categories, category) else {
            return Ok(None);
        };
        let category = &known[category.index(known.len(), "a category index")?];
        let own = match subcategory {
            Some(own) => own.index(category.subcategories.len(), "a subcategory index")?,
            None => 0,
        };
        Ok(Some(CategoryPair {
            category: category.category,
            subcategory: category.subcategories[own],
        }))
    }

    /// Adds the counters of a part of the profile.
    pub(crate) fn read_counters(
        &self,
        builder: &mut ModelBuilder,
        part: &Object<'_, '_>,
    ) -> Result<(), ReadError> {
        for counter in part.list("counters").elements("an array of counters")? {
            let counter = counter.object("a counter")?;
            let mut samples = Vec::new();
            // Before version 29, the samples were in groups.
            let groups = counter.get("sample_groups");
            let groups = groups.or_else(|| counter.get("sampleGroups"));
            match groups.filter(|_| counter.get("samples").is_none()) {
                Some(groups) => {
                    for group in groups.elements("an array of groups of samples")? {
                        let group = group.object("a group of samples")?;
                        self.read_counter_samples(&group, &mut samples)?;
                    }
                }
                None => self.read_counter_samples(&counter, &mut samples)?,
            }
            samples.shared_sort_by_key(|sample| sample.time_ns);
            let process = match self.form {
                Form::Gecko => Some(self.process),
                Form::Processed => {
                    let pid = counter.read("pid", Value::id)?;
                    pid.and_then(|pid| builder.process_with(&pid))
                }
            };
            builder.profile.counters.push(Counter {
                process: process.unwrap_or(0),
                name: counter.text("name")?,
                category: counter.text("category")?,
                description: counter.text("description")?,
                graph: None,
                samples,
            });
        }
        Ok(())
    }

    fn read_counter_samples(
        &self,
        part: &Object<'_, '_>,
        samples: &mut Vec<CounterSample>,
    ) -> Result<(), ReadError> {
        let columns = (&["count", "time", "number"][..], 2);
        each_row(self.form, &part.table("samples")?, columns, |_, row| {
            let operations = |number: &Value<'_, '_>| Ok(number.count("a number")? as u64);
            samples.push(CounterSample {
                time_ns: row.time_ns()?.saturating_add(self.offset_ns),
                delta: row.require("count", "a number")?.count("a number")?,
                operations: row.read("number", operations)?,
            });
            Ok(())
        })
    }
}

/// Reads the facts about the whole profile.
pub(crate) fn read_meta(
    builder: &mut ModelBuilder,
    meta: &Object<'_, '_>,
    form: Form,
) -> Result<(), ReadError> {
    let number = |key, expected| meta.read(key, |value| value.count(expected));
    let start_epoch_ms = number("startTime", "a time in ms since 1970")?.unwrap_or(0.0);
    let interval_ms = number("interval", "the time between two samples, in ms")?.unwrap_or(0.0);
    let session_start = meta.read("profilingStartTime", Value::time_ns)?;
    let session_end = meta.read("profilingEndTime", Value::time_ns)?;
    let symbolicated = match form {
        Form::Gecko => "presymbolicated",
        Form::Processed => "symbolicated",
    };
    builder.profile.meta = Meta {
        product: meta.text("product")?,
        start_epoch_ms,
        interval_ns: (interval_ms.clamp(0.0, MAX_INTERVAL_MS) * 1e6).round() as u64,
        session_ns: session_start.zip(session_end),
        is_symbolicated: meta.read(symbolicated, Value::bool)?.unwrap_or(false),
        has_cpu_deltas: CpuUnit::of(meta)? != CpuUnit::Unknown,
        other: meta
            .members()
            .map(|(key, value)| (key.to_owned(), value.text.to_owned()))
            .collect(),
    };
    Ok(())
}

/// Adds the marker schemas of a process to the model, and returns their fields that hold indices.
fn read_schemas(
    builder: &mut ModelBuilder,
    meta: &Object<'_, '_>,
) -> Result<IndexFields, ReadError> {
    let mut index_fields = IndexFields::new();
    let list = meta.list("markerSchema");
    for value in list.elements("an array of marker schemas")? {
        let schema = value.object("a marker schema")?;
        let name = schema.require("name", "the name of the type")?;
        let name = name.string("the name of the type")?.into_owned();
        let is_gecko = schema.get("data").is_some();
        let fields = schema.list(if is_gecko { "data" } else { "fields" });
        for field in fields.elements("an array of fields")? {
            let field = field.object("a field")?;
            // The format of a table is an object.
            let format = field.get("format").filter(Value::is_text);
            let format = format.map(|format| format.string("a format")).transpose()?;
            if format.is_some_and(|format| INDEX_FORMATS.contains(&&*format)) {
                let keys = index_fields.entry(name.clone()).or_default();
                keys.insert(field.text("key")?);
            }
        }
        builder.add_schema(name, value.text.to_owned());
    }
    Ok(index_fields)
}

/// Returns a time of a process that started `offset_ns` after the profile, in ns since the profile's
/// start.
pub(crate) fn in_profile(
    time: Option<Value<'_, '_>>,
    offset_ns: i64,
) -> Result<Option<i64>, ReadError> {
    let time_ns = time.map(|time| time.time_ns()).transpose()?;
    Ok(time_ns.map(|time_ns| time_ns.saturating_add(offset_ns)))
}

/// Reads the pauses of a process that started `offset_ns` after the profile.
pub(crate) fn read_pauses(
    offset_ns: i64,
    part: &Object<'_, '_>,
) -> Result<Vec<PausedRange>, ReadError> {
    let mut pauses = Vec::new();
    let list = part.list("pausedRanges");
    for pause in list.elements("an array of paused ranges")? {
        let pause = pause.object("a paused range")?;
        pauses.push(PausedRange {
            start_ns: in_profile(pause.get("startTime"), offset_ns)?,
            end_ns: in_profile(pause.get("endTime"), offset_ns)?,
            reason: pause.text("reason")?.into(),
        });
    }
    Ok(pauses)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn library_with_an_inexact_address_has_no_range() {
        let read = |start: &str, end: &str| {
            let text =
                format!(r#"{{"libs": [{{"name": "vdso", "start": {start}, "end": {end}}}]}}"#);
            let mut builder = ModelBuilder::default();
            let profile = Value::parse(&text)?;
            let profile = profile.object("a profile")?;
            let facts = (Form::Gecko, 0, 0);
            Context::read(&mut builder, facts, (&profile, &profile))?;
            let module = &builder.profile.modules[0];
            Ok::<_, ReadError>((module.start, module.end))
        };
        assert_eq!(read("4096", "8192").expect("a module"), (4096, 8192));
        assert_eq!(read("-1", "-1").expect("a module"), (0, 0));
        assert_eq!(read("4096", "-1").expect("a module"), (0, 0));
        let error = read("-2", "1").expect_err("no address").to_string();
        assert!(
            error.contains("start: got -2, expected an address"),
            "{error}"
        );
    }
}
