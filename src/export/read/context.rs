//! What the threads of a process share while a profile is read.

use std::collections::HashMap;

use crate::export::read::builder::{Categories, ModelBuilder};
use crate::export::read::marker_fields::{IndexFields, read_schemas};
use crate::export::read::meta::CpuUnit;
use crate::export::read::table::{Form, each_row};
use crate::export::read::value::{Object, Value};
use crate::model::{Counter, CounterSample, Module, ModuleId};
use crate::types::ReadError;
use crate::util::SharedSort;

/// What the threads of a process share.
pub(super) struct Context {
    pub(super) form: Form,
    /// Start of the process, in ns since the profile's start. Its times are relative to it.
    pub(super) offset_ns: i64,
    pub(super) categories: Categories,
    pub(super) index_fields: IndexFields,
    pub(super) cpu_unit: CpuUnit,
    /// Sorted by address; in the order of the file if that has no addresses.
    pub(super) modules: Vec<ModuleId>,
    /// The modules by their names.
    pub(super) module_names: HashMap<String, ModuleId>,
    /// Index of the process in the model; the first one where the format does not tell.
    pub(super) process: usize,
}

impl Context {
    /// Reads the context of a process from its profile and its `meta`.
    pub(super) fn read(
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
    pub(super) fn read_modules(
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
            let id = builder.add_module(module);
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
        let offset = match lib.get("offset") {
            Some(offset) => offset.unsigned("an offset in the file")?,
            None => 0,
        };
        let optional = |key| Ok(Some(lib.text(key)?).filter(|text| !text.is_empty()));
        Ok(Module {
            process: self.process,
            start,
            end,
            offset,
            name: lib.text("name")?,
            path: lib.text("path")?,
            debug_name: lib.text("debugName")?,
            debug_path: lib.text("debugPath")?,
            breakpad_id: lib.text("breakpadId")?,
            code_id: optional("codeId")?,
            arch: optional("arch")?,
        })
    }

    /// Returns a time of the process in ns since the profile's start.
    pub(super) fn in_profile(&self, time: Option<Value<'_, '_>>) -> Result<Option<i64>, ReadError> {
        let time_ns = time.map(|time| time.time_ns()).transpose()?;
        Ok(time_ns.map(|time_ns| time_ns.saturating_add(self.offset_ns)))
    }

    /// Adds the counters of a part of the profile. `process_of` returns the process of a counter.
    pub(super) fn read_counters(
        &self,
        builder: &mut ModelBuilder,
        part: &Object<'_, '_>,
        process_of: impl Fn(&Object<'_, '_>) -> Result<usize, ReadError>,
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
            builder.profile.counters.push(Counter {
                process: process_of(&counter)?,
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
        let table = part.require("samples", "a table")?.object("a table")?;
        let columns = (&["count", "time", "number"][..], 2);
        each_row(self.form, &table, columns, |_, row| {
            let number = |column| row.get(column).map(|number| number.count("a number"));
            samples.push(CounterSample {
                time_ns: row.time_ns()?.saturating_add(self.offset_ns),
                delta: row.require("count", "a number")?.count("a number")?,
                operations: number("number").transpose()?.map(|number| number as u64),
            });
            Ok(())
        })
    }
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
